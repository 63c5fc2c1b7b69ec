//! Sizes as a ratchet: large files and functions are printed at every run, and only a very large file fails.
//!
//! Lines of tests do not count: a table of cases may be as long as it likes. [`OVERVIEW`] has a limit in bytes, so that
//! contributors can read all of it.

use super::Finding;
use super::source::{Function, Source};
use super::tree::Tree;

const FILE_LINES_PRINTED: usize = 400;
const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_PRINTED: usize = 100;

const OVERVIEW: &str = "ARCHITECTURE.md";

/// Size in bytes from which the overview is too large.
const OVERVIEW_BYTES: usize = 30_000;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let too_large = |(path, lines): (&str, usize)| {
        let text = format!("{lines} lines before its tests, more than {FILE_LINES_MAX}: find the second noun");
        (lines > FILE_LINES_MAX).then(|| Finding::of(path, text))
    };
    file_lines(tree).into_iter().filter_map(too_large).chain(large_overview(tree)).collect()
}

/// The finding that the overview is too large.
fn large_overview(tree: &Tree) -> Option<Finding> {
    let bytes = tree.text(OVERVIEW)?.len();
    let text = format!("{bytes} bytes, and {OVERVIEW_BYTES} are too many: move decisions to docs/decisions/");
    (bytes >= OVERVIEW_BYTES).then(|| Finding::of(OVERVIEW, text))
}

/// What is large but allowed, for the reader of the report.
pub(super) fn ratchet(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, length) in file_lines(tree) {
        if length > FILE_LINES_PRINTED {
            lines.push(format!("{path}: {length} lines before its tests"));
        }
    }
    for (path, source) in tree.product() {
        for Function { name, line, lines: length, .. } in source.functions() {
            if length > FUNCTION_LINES_PRINTED {
                lines.push(format!("{path}:{line}: fn {name}, {length} lines"));
            }
        }
    }
    lines
}

fn file_lines(tree: &Tree) -> Vec<(&str, usize)> {
    tree.product().map(|(path, source)| (path, lines_before_tests(source))).collect()
}

/// The lines of a file without those of its test items.
fn lines_before_tests(source: &Source) -> usize {
    let mut lines = source.lines;
    let mut start = None;
    for (token, masked) in source.tokens.iter().zip(&source.test_mask) {
        match (start, masked) {
            (None, true) => start = Some(token.line),
            (Some(first), false) => {
                lines -= token.line - first;
                start = None;
            }
            _ => {}
        }
    }
    if let Some(first) = start {
        lines -= source.lines + 1 - first;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_very_large_file_fails_and_a_large_one_is_printed() {
        let line = "fn a() {}\n";
        let tree = Tree::of(&[
            ("a.rs", &line.repeat(FILE_LINES_MAX + 1)),
            ("b.rs", &line.repeat(FILE_LINES_PRINTED + 1)),
            ("c.rs", &line.repeat(FILE_LINES_PRINTED)),
        ]);
        let failed: Vec<String> = check(&tree).into_iter().map(|f| f.path).collect();
        assert_eq!(failed, ["a.rs"]);
        assert_eq!(ratchet(&tree).len(), 2, "{:?}", ratchet(&tree));
    }

    #[test]
    fn an_overview_of_too_many_bytes_fails() {
        let findings = |bytes: usize| {
            let text = "a".repeat(bytes);
            check(&Tree::of(&[(OVERVIEW, &text), ("docs/a.md", &text)]))
        };
        assert_eq!(findings(OVERVIEW_BYTES - 1), []);
        let found = findings(OVERVIEW_BYTES);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].to_string().starts_with("ARCHITECTURE.md: 30000 bytes"), "{found:?}");
    }

    #[test]
    fn tests_do_not_count() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        assert_eq!(lines_before_tests(&Source::read(text)), 2);
        assert_eq!(lines_before_tests(&Source::read("a;\n#[cfg(test)]\nmod t {\n}\n")), 1);
    }

    #[test]
    fn a_long_function_is_printed() {
        let text = format!("fn short(a: [u8; 2]) -> u8;\nfn long() {{\n{}}}\n", "x;\n".repeat(FUNCTION_LINES_PRINTED));
        let tree = Tree::of(&[("a.rs", &text)]);
        assert_eq!(ratchet(&tree), ["a.rs:2: fn long, 102 lines"]);
    }
}
