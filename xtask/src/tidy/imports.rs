//! The paths in the `use` items and in the code of a file.

use super::source::{Kind, Source};

/// One path of a `use` item, such as `a::b` in `use a::{b as c, d};`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// The path in full, without a `self` or `*` at its end.
    pub(super) path: Vec<String>,
    /// The name that it brings into scope; `None` for `*`.
    pub(super) name: Option<String>,
}

/// The imports of the `use` item at `at`, and the index just past it; `None` if none begins there.
pub(super) fn imports(source: &Source, at: usize) -> Option<(Vec<Import>, usize)> {
    // `use<'a>` is a bound, not an import.
    if !source.tokens.get(at)?.is_word("use") || source.matches(at + 1, &["<"]) {
        return None;
    }
    let mut found = Vec::new();
    let end = read_tree(source, at + 1, &mut Vec::new(), &mut found);
    Some((found, end))
}

/// Reads a `use` tree up to its semicolon or closing brace; returns the index just past that.
fn read_tree(source: &Source, mut at: usize, prefix: &mut Vec<String>, found: &mut Vec<Import>) -> usize {
    let depth = prefix.len();
    let (mut alias, mut is_glob, mut is_read) = (None, false, false);
    while let Some(token) = source.tokens.get(at) {
        match &token.kind {
            Kind::Word(word) if word == "as" => {
                if let Some(Kind::Word(name)) = source.tokens.get(at + 1).map(|token| &token.kind) {
                    alias = Some(name.clone());
                }
                at += 1;
            }
            Kind::Word(word) => prefix.push(word.clone()),
            Kind::Mark('*') => is_glob = true,
            Kind::Mark('{') => {
                at = read_tree(source, at + 1, prefix, found) - 1;
                is_read = true;
            }
            Kind::Mark(end @ (',' | '}' | ';')) => {
                if (prefix.len() > depth || is_glob) && !is_read {
                    found.push(import(prefix, alias.take(), is_glob));
                }
                prefix.truncate(depth);
                (is_glob, is_read) = (false, false);
                if *end != ',' {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    at
}

fn import(path: &[String], alias: Option<String>, is_glob: bool) -> Import {
    let mut path = path.to_vec();
    // A path of `self` alone never stands in a `use` item.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let name = if is_glob { None } else { alias.or_else(|| path.last().cloned()) };
    Import { path, name }
}

/// The words of `a::b::c` from `at` on.
pub(super) fn path_at(source: &Source, mut at: usize) -> Vec<String> {
    let mut path = Vec::new();
    while let Some(Kind::Word(word)) = source.tokens.get(at).map(|token| &token.kind) {
        path.push(word.clone());
        if !source.matches(at + 1, &[":", ":"]) {
            break;
        }
        at += 3;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_become_paths_with_the_names_that_they_bring() {
        let source = Source::read("use a::{self, b as c, d::{e, f::*}, r#type}; x");
        let (found, end) = imports(&source, 0).unwrap();
        let found: Vec<String> = (found.iter())
            .map(|import| format!("{} {}", import.path.join("::"), import.name.as_deref().unwrap_or("*")))
            .collect();
        assert_eq!(found, ["a a", "a::b c", "a::d::e e", "a::d::f *", "a::type type"]);
        assert!(source.tokens[end].is_word("x"));
    }

    #[test]
    fn a_glob_of_a_module_has_a_path() {
        let (found, _) = imports(&Source::read("use super::*;"), 0).unwrap();
        assert_eq!(found, [Import { path: vec!["super".to_owned()], name: None }]);
        assert_eq!(imports(&Source::read("use<'a> x;"), 0), None);
    }
}
