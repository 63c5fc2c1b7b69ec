//! Private words and phrases that have been replaced by the field's own terms do not return.

use super::Finding;
use super::remaining::{Found, compare};
use super::tree::{Tree, has_extension};
use std::collections::{BTreeMap, HashMap};

/// Each word or phrase in lower case, and the term to use instead. A word is also found as a part of an identifier.
const RETIRED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("as such", "drop it, or say what as"),
    ("at the least", "at least"),
    ("at the most", "at most"),
    ("bell", "event channel"),
    ("books", "server-side counters, snapshot"),
    ("crew", "worker configuration"),
    ("desk", "shared statistics"),
    ("doom", "invalidate"),
    ("doomed", "invalidated"),
    ("ear", "receiver"),
    ("heed", "obey, respect"),
    ("in vain", "without success, unsuccessfully"),
    ("ledger", "eviction queue (proxy), digest store (serve)"),
    ("muster", "agent coordinator"),
    ("neighbor", "trusted proxy, peer"),
    ("neighbour", "trusted proxy, peer"),
    ("of ours", "our, or the name of the product"),
    ("of theirs", "their"),
    ("patience", "timeouts"),
    ("put aside", "rotate, save"),
    ("rung", "notified"),
    ("save for", "except"),
    ("save that", "except that"),
    ("stranger", "unauthenticated peer"),
    ("strangers", "unauthenticated peers"),
    ("that which", "what, or name it"),
    ("to nobody", "say whom or what"),
    ("vigil", "busy polling"),
    ("what is kept", "cached or stored responses"),
    ("whoever", "the client, the operator, …"),
    ("wish", "listing query"),
    ("workshop", "thread pool"),
];

/// The files that people write; test data and stored results are not ours to reword.
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "kdl", "sh", "service"];

/// Files that must name the old words.
const EXEMPT: &[&str] = &["CHANGELOG.md", "xtask/src/tidy/vocabulary.rs"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    for ((path, word), lines) in occurrences(tree) {
        let instead = RETIRED.iter().find(|(retired, _)| *retired == word).map_or("", |(_, instead)| instead);
        let text = format!("`{word}` is a private word: {instead}");
        let figures = vec![lines.len()];
        let findings = lines.into_iter().map(|line| Finding::at(path, line, text.clone())).collect();
        found.insert(format!("{word} in {path}"), Found { figures, findings });
    }
    compare(tree, "vocabulary", found)
}

/// The lines on which each file contains each retired word.
fn occurrences(tree: &Tree) -> BTreeMap<(&str, &'static str), Vec<usize>> {
    let mut by_first_word: HashMap<&str, Vec<&'static str>> = HashMap::new();
    for (retired, _) in RETIRED {
        by_first_word.entry(retired.split(' ').next().unwrap_or("")).or_default().push(retired);
    }
    let mut found: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (path, text) in tree.texts() {
        if EXEMPT.contains(&path) || !EXTENSIONS.iter().any(|extension| has_extension(path, extension)) {
            continue;
        }
        let lower = text.to_ascii_lowercase();
        let words = words(text, &lower);
        for (at, (line, word)) in words.iter().enumerate() {
            for retired in by_first_word.get(word).into_iter().flatten() {
                let follows =
                    |(offset, wanted): (usize, &str)| words.get(at + offset).is_some_and(|(_, word)| *word == wanted);
                if retired.split(' ').enumerate().all(follows) {
                    found.entry((path, retired)).or_default().push(*line);
                }
            }
        }
    }
    found
}

/// The words of a text with their lines, in lower case; those of an identifier are separate words.
fn words<'t>(text: &str, lower: &'t str) -> Vec<(usize, &'t str)> {
    let mut found = Vec::new();
    let (mut line, mut start, mut before) = (1, None, b' ');
    for (at, byte) in text.bytes().chain([b' ']).enumerate() {
        let ends = !byte.is_ascii_alphabetic() || (byte.is_ascii_uppercase() && before.is_ascii_lowercase());
        if let (true, Some(from)) = (ends, start) {
            found.push((line, &lower[from..at]));
            start = None;
        }
        if start.is_none() && byte.is_ascii_alphabetic() {
            start = Some(at);
        }
        line += usize::from(byte == b'\n');
        before = byte;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "/// Put\n/// aside anew.\nfn vigil_of(doom: Doomed) {}\nlet domed = \"moving anewly\";\n";

    #[test]
    fn words_are_found_in_prose_and_identifiers() {
        let tree = Tree::of(&[("src/a.rs", TEXT), ("tests/data.txt", "anew")]);
        let found: Vec<String> =
            check(&tree).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
        assert_eq!(found, ["src/a.rs:2", "src/a.rs:3", "src/a.rs:3", "src/a.rs:1", "src/a.rs:3"]);
        let rows = "vocabulary\tvigil in src/a.rs\t1\nvocabulary\tdoom in src/a.rs\t1\n";
        let tree = Tree::of(&[("src/a.rs", TEXT), ("xtask/remaining.tsv", rows)]);
        assert_eq!(check(&tree).len(), 3, "what remains is in the table");
    }
}
