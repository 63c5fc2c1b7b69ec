//! A doc comment says what its item is: its first sentence has a subject or a verb, not a clause in its place.

use super::Finding;
use super::tree::Tree;

/// First words that begin a clause without a sentence around it.
const REFUSED: &[(&str, &str)] = &[
    ("What", "name the thing"),
    ("Who", "name the actor"),
    ("Whoever", "name the actor"),
    ("Whether", "\"True if …\", or \"Returns true if …\""),
];

/// Folders whose files may still contain so many; lower these as they are rewritten.
const REMAINING: &[(&str, usize)] = &[("fuzz/", 7), ("tests/", 103), ("xtask/", 63)];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = refused(tree);
    for (folder, limit) in REMAINING {
        let count = findings.iter().filter(|finding| finding.path.starts_with(folder)).count();
        if count <= *limit {
            findings.retain(|finding| !finding.path.starts_with(folder));
        }
    }
    findings
}

fn refused(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.rust() {
        for (line, text) in source.doc_openings() {
            let first = text.split(|c: char| !c.is_alphanumeric()).next();
            if let Some((word, instead)) = REFUSED.iter().find(|(word, _)| first == Some(word)) {
                findings.push(Finding::at(path, line, format!("a doc comment begins with \"{word}\": {instead}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_of_a_doc_comment_is_checked_and_no_other() {
        let text =
            "//! What it is.\n\n/// Whether a.\n/// Whether b.\nfn a() {}\n// What why\n//// Who\n/// Whatever.\n";
        let lines: Vec<usize> =
            check(&Tree::of(&[("src/a.rs", text)])).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 3]);
    }
}
