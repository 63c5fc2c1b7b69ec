//! One type name has few meanings: a name that many modules define is too vague for an error message or a profile.

use super::Finding;
use super::source::{Kind, Source};
use super::tree::Tree;
use std::collections::BTreeMap;

/// How often one name may be defined in production code.
const DEFINITIONS_MAX: usize = 5;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut definitions: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for (path, source) in tree.product().filter(|(path, _)| path.starts_with("crates/") || path.starts_with("src/")) {
        for (name, line) in defined_types(source) {
            definitions.entry(name).or_default().push((path, line));
        }
    }
    let mut findings = Vec::new();
    for (name, places) in definitions.into_iter().filter(|(_, places)| places.len() > DEFINITIONS_MAX) {
        let count = places.len();
        for (path, line) in places {
            let text = format!("`{name}` names {count} types, more than {DEFINITIONS_MAX}: find a precise name");
            findings.push(Finding::at(path, line, text));
        }
    }
    findings
}

/// The structs, enums, unions, traits and type aliases outside tests, with their lines.
fn defined_types(source: &Source) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    // Where the `impl` or `trait` block around this place ends: a `type` in it is an associated type.
    let mut block_end = 0;
    for (at, token) in source.tokens.iter().enumerate() {
        let Kind::Word(keyword) = &token.kind else { continue };
        if source.test_mask[at] {
            continue;
        }
        let name = source.tokens.get(at + 1).map(|token| &token.kind);
        match (keyword.as_str(), name) {
            ("struct" | "enum" | "union" | "trait", Some(Kind::Word(name))) => found.push((name.as_str(), token.line)),
            ("type", Some(Kind::Word(name))) if at >= block_end => found.push((name.as_str(), token.line)),
            _ => {}
        }
        // `impl` begins an item only where an item may begin; elsewhere it is a type.
        let before = at.checked_sub(1).map(|before| &source.tokens[before]);
        let is_first =
            before.is_none_or(|before| ";{}]".chars().any(|mark| before.is_mark(mark)) || before.is_word("unsafe"));
        if (keyword == "trait" || (keyword == "impl" && is_first))
            && at >= block_end
            && let Some(open) = source.body(at)
        {
            block_end = source.closing(open);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_type_is_counted_once_and_associated_types_are_not() {
        let source = Source::read(
            "pub struct A; pub(crate) enum B { X } unsafe trait C { type Item; } type D = u8; \
             impl<T: Fn(u8) -> impl Copy> Iterator for A { type Item = u8; } fn f(a: impl Fn()) { struct E; } \
             #[cfg(test)] mod tests { struct F; }",
        );
        let names: Vec<&str> = defined_types(&source).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["A", "B", "C", "D", "E"]);
    }

    #[test]
    fn a_name_with_too_many_meanings_is_found_at_each() {
        let text = "struct State;\n".repeat(DEFINITIONS_MAX);
        assert_eq!(check(&Tree::of(&[("crates/a/src/lib.rs", &text)])), []);
        let tree = Tree::of(&[("crates/a/src/lib.rs", &text), ("src/main.rs", "enum State {}")]);
        assert_eq!(check(&tree).len(), DEFINITIONS_MAX + 1);
    }
}
