//! The files that are asked for, and what they hold.

use super::coyote;
use super::query;
use super::timed;
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
    /// A page with the time in it, which some servers have from the file and others insert.
    Timed,
    /// Ten rows of a table, which are others each time.
    Queried,
}

/// The folder that nearly everything is served from.
pub(super) const SITE: &str = "site";

/// 1 KiB, as most measurements of servers have it.
pub(super) const SMALL: File = File { root: SITE, path: "1k.html", bytes: 1024, contents: Contents::Text };

/// The same behind a folder that only the last of many routes serves: anyone who takes another route finds nothing.
pub(super) const SMALL_BY_LAST_ROUTE: File =
    File { root: "last", path: "last/1k.html", bytes: 1024, contents: Contents::Text };

/// Large enough that only its bytes cost anything.
pub(super) const LARGE: File =
    File { root: SITE, path: "10m.bin", bytes: 10 * 1024 * 1024, contents: Contents::Binary };

/// The size of the file in Jigsaw's experiment (2000).
pub(super) const JIGSAW: File = File { root: SITE, path: "jigsaw.bin", bytes: 6_537_455, contents: Contents::Binary };

/// A page of a usual size.
pub(super) const PAGE: File = File { root: SITE, path: "page.html", bytes: 8192, contents: Contents::Page };

/// A page of Coyote's experiment, by the seed's figure.
pub(super) const fn timed(path: &'static str, bytes_with_head: usize) -> File {
    File { root: "coyote", path, bytes: bytes_with_head - timed::HEAD_BYTES, contents: Contents::Timed }
}

/// The page with a query.
pub(super) const QUERY: File = File { root: "query", path: "query.html", bytes: 625, contents: Contents::Queried };

const FILES: &[File] = &[SMALL, SMALL_BY_LAST_ROUTE, LARGE, JIGSAW, PAGE, QUERY];

impl File {
    /// What it holds.
    pub(super) fn contents(self) -> Vec<u8> {
        match self.contents {
            Contents::Text => {
                "The quick brown fox jumps over the lazy dog. ".bytes().cycle().take(self.bytes).collect()
            }
            Contents::Binary => (0..self.bytes).map(|at| (at * 31 % 251) as u8).collect(),
            Contents::Page => page(self.bytes),
            Contents::Queried => query::page(1).into_bytes(),
            Contents::Timed => timed::Page::of(self.bytes).with_some_time().into_bytes(),
        }
    }

    /// What an active page has put into it, if all else is right.
    pub(super) fn inserted(self, body: &[u8]) -> Option<String> {
        match self.contents {
            Contents::Timed => timed::Page::of(self.bytes).inserted(body).map(str::to_owned),
            Contents::Queried => query::category(body).map(|category| category.to_string()),
            _ => None,
        }
    }

    /// Returns true if the time is what is put into it.
    pub(super) fn is_timed(self) -> bool {
        self.contents == Contents::Timed
    }

    /// Writes what the servers that make it again read.
    fn write_templates(self, folder: &Path) -> Outcome<()> {
        match self.contents {
            Contents::Timed => timed::Page::of(self.bytes).write_templates(&self.place(folder)),
            Contents::Queried => query::write_templates(folder, self),
            _ => Ok(()),
        }
    }

    /// Its name without what tells its type.
    pub(super) fn stem(self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(stem, _)| stem)
    }

    /// Where it lies.
    pub(super) fn place(self, folder: &Path) -> PathBuf {
        folder.join(self.root).join(self.path)
    }
}

/// Writes all files below a folder.
pub(super) fn write(folder: &Path) -> Outcome<()> {
    let pages = coyote::CASES.iter().map(|case| &case.file);
    for file in FILES.iter().chain(pages) {
        let place = file.place(folder);
        let parent = place.parent().cannot("name a file's folder")?;
        std::fs::create_dir_all(parent).cannot("create the site's folders")?;
        std::fs::write(&place, file.contents()).cannot(&format!("write {}", file.path))?;
        file.write_templates(folder)?;
    }
    Ok(())
}

const WORDS: &str = "a about after all and any as at be because but by can come could day do even find first for \
    from get give go good have he her him his how if in into it its just know like look make man many me more my \
    new no not now of on one only or other our out people say see she so some take than that the their them then \
    there these they thing think this time to two up use very want way we well what when which who will with \
    would year you your server request answer header digest route listener certificate";

/// Common words in no order, without end and always the same.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    // Knuth's MMIX constants.
    let mut state: u64 = 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        words[(state >> 33) as usize % words.len()]
    })
}

fn page(bytes: usize) -> Vec<u8> {
    let mut words = words().zip(1..);
    let mut text = String::from("<!doctype html>\n<html lang=\"en\">\n<head><title>A page</title></head>\n<body>\n");
    let end = "</p>\n</body>\n</html>\n";
    text.push_str("<p class=\"text\">");
    while text.len() + end.len() < bytes
        && let Some((word, count)) = words.next()
    {
        text.push_str(word);
        text.push_str(if count % 80 == 0_u32 { ".</p>\n<p class=\"text\">" } else { " " });
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
