//! The files that are asked for, and what they hold.

use crate::failure::{Context, Outcome};
use std::path::{Path, PathBuf};

/// A file of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    /// The folder below the bench's own that is served.
    pub(super) root: &'static str,
    /// Its path below that folder.
    pub(super) path: &'static str,
    /// Its length.
    pub(super) bytes: usize,
    contents: Contents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// One sentence over and over.
    Text,
    /// What no type is known for and nothing compresses.
    Binary,
    /// A web page of common words in no order, which compresses about as pages do.
    Page,
}

/// The folder that nearly everything is served from.
pub(super) const SITE: &str = "site";

/// 1 KiB, as most measurements of servers have it.
pub(super) const SMALL: File = File { root: SITE, path: "1k.html", bytes: 1024, contents: Contents::Text };

/// The same behind a folder that only the last of many routes serves: whoever takes another route finds nothing.
pub(super) const SMALL_BY_LAST_ROUTE: File =
    File { root: "last", path: "last/1k.html", bytes: 1024, contents: Contents::Text };

/// Large enough that only its bytes cost anything.
pub(super) const LARGE: File =
    File { root: SITE, path: "10m.bin", bytes: 10 * 1024 * 1024, contents: Contents::Binary };

/// The size of the file in Jigsaw's experiment (2000).
pub(super) const JIGSAW: File = File { root: SITE, path: "jigsaw.bin", bytes: 6_537_455, contents: Contents::Binary };

/// A page of a usual size.
pub(super) const PAGE: File = File { root: SITE, path: "page.html", bytes: 8192, contents: Contents::Page };

const FILES: &[File] = &[SMALL, SMALL_BY_LAST_ROUTE, LARGE, JIGSAW, PAGE];

impl File {
    /// What it holds.
    pub(super) fn contents(self) -> Vec<u8> {
        match self.contents {
            Contents::Text => {
                "The quick brown fox jumps over the lazy dog. ".bytes().cycle().take(self.bytes).collect()
            }
            Contents::Binary => (0..self.bytes).map(|at| (at * 31 % 251) as u8).collect(),
            Contents::Page => page(self.bytes),
        }
    }

    /// Where it lies.
    pub(super) fn place(self, folder: &Path) -> PathBuf {
        folder.join(self.root).join(self.path)
    }
}

/// Writes all files below a folder.
pub(super) fn write(folder: &Path) -> Outcome<()> {
    for file in FILES {
        let place = file.place(folder);
        let parent = place.parent().cannot("name a file's folder")?;
        std::fs::create_dir_all(parent).cannot("create the site's folders")?;
        std::fs::write(&place, file.contents()).cannot(&format!("write {}", file.path))?;
    }
    Ok(())
}

const WORDS: &str = "a about after all and any as at be because but by can come could day do even find first for \
    from get give go good have he her him his how if in into it its just know like look make man many me more my \
    new no not now of on one only or other our out people say see she so some take than that the their them then \
    there these they thing think this time to two up use very want way we well what when which who will with \
    would year you your server request answer header digest route listener certificate";

fn page(bytes: usize) -> Vec<u8> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = String::from("<!doctype html>\n<html lang=\"en\">\n<head><title>A page</title></head>\n<body>\n");
    let end = "</p>\n</body>\n</html>\n";
    text.push_str("<p class=\"text\">");
    // Knuth's MMIX constants; always the same page.
    let mut state: u64 = 1;
    let mut count = 0;
    while text.len() + end.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(words[(state >> 33) as usize % words.len()]);
        count += 1;
        text.push_str(if count % 80 == 0 { ".</p>\n<p class=\"text\">" } else { " " });
    }
    text.truncate(bytes - end.len());
    text.push_str(end);
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_length() {
        for file in FILES {
            assert_eq!(file.contents().len(), file.bytes, "{}", file.path);
        }
        let page = String::from_utf8(PAGE.contents()).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    }
}
