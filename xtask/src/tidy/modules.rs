//! Which source files the compiler reaches from a package's targets, and which of them only tests reach.

use super::source::{Kind, Source};
use super::tree::{Tree, folder_of, resolve};
use std::collections::BTreeMap;

/// The reached files; true where only a test build reaches them.
pub(super) type Reached = BTreeMap<String, bool>;

/// Follows `mod`, `#[path]` and `include!` from every target of every package.
pub(super) fn reached(tree: &Tree) -> Reached {
    let mut found = Reached::new();
    for package in &tree.packages {
        for root in &package.target_roots {
            // A target's folder is that of its root file, whatever the file's name.
            let test_only = is_test_target(&package.folder, root);
            follow(tree, root, folder_of(root), test_only, &mut found);
        }
    }
    found
}

fn is_test_target(package: &str, root: &str) -> bool {
    let inside = root.strip_prefix(package).unwrap_or(root);
    inside.trim_start_matches('/').starts_with("tests/")
}

/// `folder` is where the file's child modules lie.
fn follow(tree: &Tree, file: &str, folder: &str, test_only: bool, found: &mut Reached) {
    // A file once reached by the product is the product's; one reached by tests may still become so.
    if found.get(file).is_some_and(|known| !known || test_only) {
        return;
    }
    let Some(source) = tree.source(file) else { return };
    found.insert(file.to_owned(), test_only);
    for (at, masked) in source.test_mask.iter().enumerate() {
        let test_only = test_only || *masked;
        if source.matches(at, &["include", "!", "("])
            && let Some(Kind::Text(path)) = source.tokens.get(at + 3).map(|token| &token.kind)
            && let Some(path) = resolve(folder_of(file), path)
        {
            follow(tree, &path, folder_of(&path), test_only, found);
        }
        let Some(name) = declared_module(source, at) else {
            continue;
        };
        let folder = enclosing_folder(source, at, folder);
        if let Some(path) = path_attribute(source, at) {
            if let Some(path) = resolve(folder_of(file), &path) {
                follow(tree, &path, folder_of(&path), test_only, found);
            }
            continue;
        }
        let inside = format!("{folder}/{name}");
        let inside = inside.trim_start_matches('/');
        for path in [format!("{inside}.rs"), format!("{inside}/mod.rs")] {
            follow(tree, &path, inside, test_only, found);
        }
    }
}

/// The name in `mod name;` at `at`.
fn declared_module(source: &Source, at: usize) -> Option<&str> {
    match source.tokens.get(at..at + 3)? {
        [module, name, end] if module.is_word("mod") && end.is_mark(';') => match &name.kind {
            Kind::Word(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// The folder of a module declared inside inline modules: one folder for each.
fn enclosing_folder(source: &Source, at: usize, folder: &str) -> String {
    let mut folder = folder.to_owned();
    for index in 0..at {
        let Some([module, name, open]) = source.tokens.get(index..index + 3) else {
            break;
        };
        let Kind::Word(name) = &name.kind else { continue };
        let is_inline = module.is_word("mod") && open.is_mark('{');
        if is_inline && source.closing(index + 2) > at {
            folder = format!("{folder}/{name}");
        }
    }
    folder
}

/// The path of `#[path = "…"]` among the attributes before `mod` at `at`.
fn path_attribute(source: &Source, at: usize) -> Option<String> {
    // Look back no further than the end of the item before this one.
    let start = source.tokens[..at]
        .iter()
        .rposition(|token| token.is_mark(';') || token.is_mark('}') || token.is_mark('{'))
        .map_or(0, |index| index + 1);
    let found = (start..at).find(|index| source.matches(*index, &["#", "[", "path", "="]))?;
    match source.tokens.get(found + 4).map(|token| &token.kind) {
        Some(Kind::Text(path)) => Some(path.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    #[test]
    fn modules_are_followed_by_every_way_the_language_has() {
        let tree = Tree::of(&[
            (
                "c/src/lib.rs",
                "pub mod a; mod b { mod c; } #[path = \"odd/d.rs\"] mod d; include!(\"e.rs\"); \
                 #[cfg(test)] mod t;",
            ),
            ("c/src/a.rs", "mod deep;"),
            ("c/src/a/deep.rs", ""),
            ("c/src/b/c.rs", ""),
            ("c/src/odd/d.rs", "mod e;"),
            ("c/src/odd/e.rs", ""),
            ("c/src/e.rs", ""),
            ("c/src/t.rs", ""),
            ("c/src/dead.rs", ""),
        ])
        .with(Package::of("c", "c", &[]));
        let found = reached(&tree);
        let product: Vec<&str> = (found.iter().filter(|(_, test)| !**test)).map(|(path, _)| path.as_str()).collect();
        let expected = [
            "c/src/a.rs",
            "c/src/a/deep.rs",
            "c/src/b/c.rs",
            "c/src/e.rs",
            "c/src/lib.rs",
            "c/src/odd/d.rs",
            "c/src/odd/e.rs",
        ];
        assert_eq!(product, expected);
        assert_eq!(found.get("c/src/t.rs"), Some(&true));
        assert!(!found.contains_key("c/src/dead.rs"));
    }
}
