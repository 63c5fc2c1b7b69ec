//! Every Rust file is reached by the compiler, and every test file and document is named somewhere.

use super::Finding;
use super::modules;
use super::tree::{Tree, folder_of, has_extension};

/// Folders whose files must be named by some other file.
const NAMED_FOLDERS: &[&str] = &["tests/", "docs/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let reached = modules::reached(tree);
    let mut findings = Vec::new();
    for (path, _) in tree.rust() {
        if !reached.contains_key(path) && is_compiled(tree, path) {
            let text = "no `mod`, `#[path]` or target reaches this file";
            findings.push(Finding::of(path, text));
        }
    }
    for path in tree.files.keys() {
        let folder = NAMED_FOLDERS.iter().find(|folder| path.starts_with(**folder));
        if let Some(folder) = folder
            && !has_extension(path, "rs")
            && !is_named(tree, path, folder)
        {
            let text = "no other file names this one or the folder it lies in";
            findings.push(Finding::of(path, text));
        }
    }
    findings
}

/// Whether a file lies where cargo looks for source.
fn is_compiled(tree: &Tree, path: &str) -> bool {
    tree.packages.iter().any(|package| {
        let inside = if package.folder.is_empty() { Some(path) } else { path.strip_prefix(&package.folder) };
        let top = inside.and_then(|rest| rest.trim_start_matches('/').split_once('/'));
        top.is_some_and(|(top, _)| matches!(top, "src" | "tests" | "benches" | "examples" | "fuzz_targets"))
    })
}

/// Whether another file names this one, or a folder below `top` that holds it.
fn is_named(tree: &Tree, path: &str, top: &str) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let mut wanted = vec![name.to_owned()];
    let mut folder = folder_of(path);
    while folder.len() > top.len() {
        let last = folder.rsplit_once('/').map_or(folder, |(_, last)| last);
        wanted.extend([format!("{last}/"), format!("/{last}\""), format!("\"{last}\"")]);
        folder = folder_of(folder);
    }
    tree.texts()
        // Kept reports are megabytes of generated text that keep no file alive.
        .filter(|(other, _)| *other != path && !other.starts_with("results/"))
        .any(|(_, text)| wanted.iter().any(|wanted| text.contains(wanted.as_str())))
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
