//! Every Rust file is reached by the compiler, and every test file and document is named somewhere.

use super::Finding;
use super::tree::{Tree, has_extension};
use std::collections::HashMap;

/// Folders whose files must be named by some other file.
const NAMED_FOLDERS: &[&str] = &["tests/", "docs/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.rust() {
        if !tree.reached().contains_key(path) && is_compiled(tree, path) {
            let text = "no `mod`, `#[path]` or target reaches this file";
            findings.push(Finding::of(path, text));
        }
    }
    let must_be_named =
        |path: &&str| !has_extension(path, "rs") && NAMED_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let files: Vec<&str> = tree.files.keys().map(String::as_str).filter(must_be_named).collect();
    let mentions = Mentions::read(tree, &files);
    for path in files.into_iter().filter(|path| !mentions.has(path)) {
        let text = "no other file names this one or the folder it lies in";
        findings.push(Finding::of(path, text));
    }
    findings
}

/// Returns true if a file lies where cargo looks for source.
fn is_compiled(tree: &Tree, path: &str) -> bool {
    tree.packages.iter().any(|package| {
        let inside = if package.folder.is_empty() { Some(path) } else { path.strip_prefix(&package.folder) };
        let top = inside.and_then(|rest| rest.trim_start_matches('/').split_once('/'));
        top.is_some_and(|(top, _)| matches!(top, "src" | "tests" | "benches" | "examples" | "fuzz_targets"))
    })
}

/// The files that mention each name of a file or folder, found in one pass over all texts.
struct Mentions<'t>(HashMap<&'t str, Mentioned<'t>>);

#[derive(Default)]
struct Mentioned<'t> {
    /// The first two files with the name alone.
    as_file: Vec<&'t str>,
    /// The first two files with the name followed by a slash, or as the end of a quoted path.
    as_folder: Vec<&'t str>,
}

impl<'t> Mentions<'t> {
    /// Looks for the names of these files and of the folders that hold them.
    fn read(tree: &'t Tree, files: &[&'t str]) -> Self {
        let names = files.iter().flat_map(|path| path.split('/'));
        let mut found: HashMap<&str, Mentioned<'t>> = names.map(|name| (name, Mentioned::default())).collect();
        // Stored reports are megabytes of generated text that keep no file alive.
        for (path, text) in tree.texts().filter(|(path, _)| !path.starts_with("results/")) {
            for (at, word) in words(text) {
                let Some(mentioned) = found.get_mut(word) else { continue };
                let rest = &text[at + word.len()..];
                let quoted_end = rest.starts_with('"') && text[..at].ends_with(['/', '"']);
                let lists = [
                    Some(&mut mentioned.as_file),
                    (rest.starts_with('/') || quoted_end).then_some(&mut mentioned.as_folder),
                ];
                for list in lists.into_iter().flatten() {
                    if list.len() < 2 && list.last() != Some(&path) {
                        list.push(path);
                    }
                }
            }
        }
        Self(found)
    }

    /// Returns true if another file names this one, or a folder that holds it below `tests/` or `docs/`.
    fn has(&self, path: &str) -> bool {
        let elsewhere = |list: &Vec<&str>| list.iter().any(|other| *other != path);
        let mut parts = path.split('/').skip(1).peekable();
        std::iter::from_fn(|| parts.next().map(|name| (name, parts.peek().is_none()))).any(|(name, is_file)| {
            self.0.get(name).is_some_and(|found| elsewhere(if is_file { &found.as_file } else { &found.as_folder }))
        })
    }
}

/// The words of a text as file names have them, each with its offset. A full stop at the end belongs to the sentence.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-') || !byte.is_ascii();
    let mut at = 0;
    text.as_bytes().split(move |byte| !is_part(byte)).filter_map(move |word| {
        let start = at;
        at += word.len() + 1;
        // A word ends at an ASCII character or at the end, so the slice is whole.
        (!word.is_empty()).then(|| (start, text[start..start + word.len()].trim_end_matches('.')))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let tree = Tree::of(files).with(Package::of("flatout-http", "crates/http", &[]));
        check(&tree).into_iter().map(|f| f.path).collect()
    }

    #[test]
    fn a_source_file_nobody_declares_is_dead() {
        let found = findings(&[
            ("crates/http/src/lib.rs", "mod used;"),
            ("crates/http/src/used.rs", "// mod dead;"),
            ("crates/http/src/dead.rs", ""),
        ]);
        assert_eq!(found, ["crates/http/src/dead.rs"]);
    }

    #[test]
    fn a_document_nobody_links_to_is_dead() {
        let found = findings(&[
            ("README.md", "[why](docs/why.md)"),
            ("docs/why.md", ""),
            ("docs/lost.md", "I am docs/lost.md"),
        ]);
        assert_eq!(found, ["docs/lost.md"]);
    }

    #[test]
    fn a_vector_is_named_by_itself_or_by_its_folder() {
        let found = findings(&[
            ("tests/e2e.rs", "read(\"tests/vectors/\"); read(\"one.txt\")"),
            ("tests/vectors/a.txt", ""),
            ("tests/one.txt", ""),
            ("tests/forgotten/b.txt", ""),
        ]);
        assert_eq!(found, ["tests/forgotten/b.txt"]);
    }
}
