//! No paths of somebody's machine, no loose ends and no numbers of a tracker that the reader cannot see.

use super::Finding;
use super::tree::{Tree, has_extension};

/// What must not stand anywhere, and why. Split in two here, or this file would break its own rule.
const UNWANTED: &[(&str, &str, &str)] = &[
    ("/wo", "rk/", "a path of one machine"),
    ("/ro", "ot/", "a path of one machine"),
    ("/ho", "me/", "a path of one machine"),
    ("/Us", "ers/", "a path of one machine"),
    ("TO", "DO", "a loose end"),
    ("FIX", "ME", "a loose end"),
    ("XX", "X", "a loose end"),
    ("to", "do!", "a loose end"),
    ("unimp", "lemented!", "a loose end"),
];

/// What a document may not say, in whatever case: it was to be replaced, and was not.
const LEFT_OPEN: &[&str] = &["not measured yet", "to be written", "coming soon", "lorem ipsum"];

/// Written by cargo, not by us.
const GENERATED: &[&str] = &["Cargo.lock"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let unwanted = UNWANTED.iter().map(|(first, second, what)| (format!("{first}{second}"), what));
    let unwanted: Vec<_> = unwanted.collect();
    for (path, text) in tree.texts() {
        if GENERATED.contains(&path) {
            continue;
        }
        // Most texts contain none of them, and one search of the whole is quicker than one of each line.
        let unwanted: Vec<_> = unwanted.iter().filter(|(word, _)| text.contains(word.as_str())).collect();
        let may_name_an_issue = ["issue", "Issue", "ISSUE"].iter().any(|word| text.contains(word));
        for (index, line) in text.lines().enumerate() {
            for (word, what) in &unwanted {
                if stands_alone(line, word) {
                    let text = format!("`{word}` is {what}");
                    findings.push(Finding::at(path, index + 1, text));
                }
            }
            if has_extension(path, "md") {
                findings.extend(left_open(line).map(|words| {
                    Finding::at(path, index + 1, format!("\"{words}\" leaves something open: say what is, or nothing"))
                }));
            }
            if may_name_an_issue && names_an_issue(line) {
                let text = "a tracker's number means nothing to the reader: say it in words";
                findings.push(Finding::at(path, index + 1, text));
            }
        }
    }
    findings
}

/// Returns true if the word stands in the line and is not a part of a longer one.
fn stands_alone(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let before_is_part = before.is_some_and(|c| is_part(c) || (word.starts_with('/') && c == '.'));
        let after_is_part = after.is_some_and(is_part) && !word.ends_with(['/', '!']);
        !before_is_part && !after_is_part
    })
}

fn left_open(line: &str) -> Option<&'static str> {
    let lower = line.to_ascii_lowercase();
    LEFT_OPEN.iter().copied().find(|words| lower.contains(words))
}

/// Returns true if the line says "issue" and a number.
fn names_an_issue(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.match_indices("issue").any(|(at, word)| {
        let rest = lower[at + word.len()..].trim_start_matches(['s', ' ']);
        let rest = rest.strip_prefix('#').unwrap_or(rest);
        let begins_word = !lower[..at].ends_with(|c: char| c.is_alphanumeric());
        begins_word && rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let tree = Tree::of(&[("src/main.rs", text)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn every_unwanted_word_is_found() {
        for (first, second, _) in UNWANTED {
            assert_eq!(lines(&format!("ok\n// {first}{second} x\n")), [2], "{first}{second}");
        }
        assert_eq!(lines(&format!("see {} #12", "issue")), [1]);
    }

    #[test]
    fn what_a_document_leaves_open_is_found() {
        let tree = Tree::of(&[("docs/a.md", "# A\n\nNot measured yet.\n"), ("src/a.rs", "// Not measured yet\n")]);
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.to_string()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/a.md:3: \"not measured yet\""), "{found:?}");
    }

    #[test]
    fn longer_words_and_relative_paths_pass() {
        let good =
            concat!("frame/work/done and ./work/x\nTO", "DOS X", "XXL metho", "do!\nan issue of 12 pages, tissue 4\n");
        assert_eq!(lines(good), [0; 0]);
    }
}
