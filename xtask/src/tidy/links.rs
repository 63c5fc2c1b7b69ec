//! Relative links lead somewhere: in Markdown to a file and a heading, in the demo site to a file or an anchor. A path
//! of the repository that Markdown names in inline code exists as well.

use super::Finding;
use super::tree::{Tree, folder_of, has_extension, resolve};
use crate::markdown;

/// The demo site's root: links there that begin with a slash start here.
const SITE: &str = "demo/site";

/// Pages that the demo runs: a link to `name` may mean `name.lhtml` here.
const PAGES: &str = "demo/pages";

/// An anchor that carries this attribute leads nowhere on purpose.
const MEANT_TO_FAIL: &str = "data-expect";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        if has_extension(path, "md") {
            for link in markdown::links(text) {
                if let Some(why) = markdown_problem(tree, path, text, &link.target) {
                    findings.push(Finding::at(path, link.line, why));
                }
            }
            for (line, code) in markdown::inline_codes(text) {
                if looks_like_a_path(&code) && !names_a_file(tree, path, &code) {
                    findings.push(Finding::at(path, line, format!("there is no file `{code}`")));
                }
            }
        } else if has_extension(path, "html") && path.starts_with(SITE) {
            for (line, target) in html_targets(text) {
                if let Some(why) = html_problem(tree, path, text, &target) {
                    findings.push(Finding::at(path, line, why));
                }
            }
        }
    }
    findings
}

/// Returns true if inline code can only mean a file of this repository.
fn looks_like_a_path(code: &str) -> bool {
    let is_plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let is_relative = code.contains('/') && !code.starts_with('/');
    is_plain && is_relative && ["rs", "md", "sh", "toml"].iter().any(|extension| has_extension(code, extension))
}

/// From the root, from the document's folder, or from crates/, which documents leave out: `net/src/worker.rs`.
fn names_a_file(tree: &Tree, path: &str, code: &str) -> bool {
    let places = ["", folder_of(path), "crates"];
    places.into_iter().filter_map(|folder| resolve(folder, code)).any(|file| tree.files.contains_key(&file))
}

fn is_elsewhere(target: &str) -> bool {
    let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
    target.starts_with("//")
        || (!scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)))
}

fn markdown_problem(tree: &Tree, path: &str, text: &str, target: &str) -> Option<String> {
    if is_elsewhere(target) {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let (text, file) = if file.is_empty() {
        (text, path.to_owned())
    } else {
        let from = if file.starts_with('/') { "" } else { folder_of(path) };
        let Some(file) = resolve(from, file).filter(|file| tree.has(file)) else {
            return Some(format!("`{target}` leads nowhere"));
        };
        (tree.text(&file).unwrap_or(""), file)
    };
    let is_missing = !anchor.is_empty()
        && has_extension(&file, "md")
        && !markdown::anchors(text).iter().any(|known| known == anchor);
    is_missing.then(|| format!("`{target}`: {file} has no heading `#{anchor}`"))
}

fn html_problem(tree: &Tree, path: &str, text: &str, target: &str) -> Option<String> {
    if is_elsewhere(target) {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = file.split('?').next().unwrap_or("");
    let text = if file.is_empty() {
        text
    } else {
        let from = if file.starts_with('/') { SITE } else { folder_of(path) };
        let Some(file) = resolve(from, file).filter(|file| tree.has(file) || is_page(tree, file)) else {
            return Some(format!("`{target}` leads nowhere"));
        };
        match tree.text(&file) {
            Some(text) => text,
            None => tree.text(&format!("{file}/index.html")).unwrap_or(""),
        }
    };
    let is_missing = !anchor.is_empty() && !text.contains(&format!("id=\"{anchor}\""));
    is_missing.then(|| format!("`{target}` leads to no such anchor"))
}

/// Returns true if a path of the site is one of the pages that are run.
fn is_page(tree: &Tree, file: &str) -> bool {
    let name = file.strip_prefix(SITE).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| tree.has(&format!("{PAGES}/{name}.lhtml")))
}

/// What `href` and `src` of a page point to, except links that are there to fail.
fn html_targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find('<').map(|offset| at + offset) {
        let end = text[start..].find('>').map_or(text.len(), |offset| start + offset);
        let tag = &text[start..end];
        if !tag.contains(MEANT_TO_FAIL) {
            for attribute in [" href=\"", " src=\""] {
                let value = tag.split_once(attribute).and_then(|(_, rest)| rest.split_once('"'));
                if let Some((target, _)) = value {
                    found.push((1 + text[..start].matches('\n').count(), target.to_owned()));
                }
            }
        }
        at = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn a_link_to_a_missing_file_folder_or_heading_is_found() {
        let found = findings(&[
            (
                "docs/a.md",
                "[1](b.md) [2](../README.md#here) [3](gone.md)\n[4](b.md#nowhere) [5](#self) [6](../../out)\n# Self\n",
            ),
            ("docs/b.md", "# Other\n[ok](https://example.com/x) [ok](../docs/)\n"),
            ("README.md", "# Here\n"),
        ]);
        let expected = [
            "docs/a.md:1: `gone.md` leads nowhere",
            "docs/a.md:2: `b.md#nowhere`: docs/b.md has no heading `#nowhere`",
            "docs/a.md:2: `../../out` leads nowhere",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_path_in_inline_code_that_does_not_exist_is_found() {
        let found = findings(&[
            ("docs/a.md", "`src/main.rs` `gone/main.rs` `../src/main.rs`\n`net/src/lib.rs` `net/src/gone.rs`\n"),
            (
                "README.md",
                "`/etc/x.toml` `https://a.org/b.md` `a/*.rs` `main.rs` `cat a/b.sh` `docs/b.md` `a/b.html`\n",
            ),
            ("src/main.rs", ""),
            ("crates/net/src/lib.rs", ""),
        ]);
        let expected = [
            "README.md:1: there is no file `docs/b.md`",
            "docs/a.md:1: there is no file `gone/main.rs`",
            "docs/a.md:2: there is no file `net/src/gone.rs`",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_page_of_the_site_links_to_what_is_there() {
        let found = findings(&[
            (
                "demo/site/index.html",
                "<a href=\"/try/#q\"> <a href=\"guestbook\"> <a href=\"gone.html\">\n<img src=\"/logo.svg\"> \
                 <a data-expect=\"404\" href=\"/nowhere\"> <a href=\"try/#p\">",
            ),
            ("demo/site/try/index.html", "<p id=\"q\">"),
            ("demo/pages/guestbook.lhtml", "<?lua ?>"),
        ]);
        let expected = [
            "demo/site/index.html:1: `gone.html` leads nowhere",
            "demo/site/index.html:2: `/logo.svg` leads nowhere",
            "demo/site/index.html:2: `try/#p` leads to no such anchor",
        ];
        assert_eq!(found, expected);
    }
}
