//! A doc comment says more than its item's name: units, bounds, a source, a reason.

use super::Finding;
use super::source::{Kind, Source};
use super::tree::Tree;
use std::collections::BTreeMap;

/// Words of an item before its name.
const KEYWORDS: &[&str] = &[
    "pub", "crate", "super", "in", "const", "static", "fn", "struct", "enum", "type", "mod", "trait", "async",
    "unsafe", "mut", "use",
];

/// Words that add nothing to a name.
const ARTICLES: &[&str] = &["the", "a", "an", "of", "its", "this", "that", "is", "are"];

/// Crates that may still contain so many; lower these as they are rewritten.
const REMAINING: &[(&str, usize)] = &[
    ("crates/handler/", 3),
    ("crates/http/", 11),
    ("crates/lab/", 7),
    ("crates/proxy/", 14),
    ("crates/server/", 1),
    ("crates/suite/", 3),
    ("crates/upstream/", 2),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = all(tree);
    for (folder, limit) in REMAINING {
        let count = findings.iter().filter(|finding| finding.path.starts_with(folder)).count();
        if count <= *limit {
            findings.retain(|finding| !finding.path.starts_with(folder));
        }
    }
    findings
}

/// The number that remains in each crate that has a limit.
pub(super) fn ratchet(tree: &Tree) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for finding in all(tree) {
        if let Some((folder, limit)) = REMAINING.iter().find(|(folder, _)| finding.path.starts_with(folder)) {
            *counts.entry((*folder, *limit)).or_insert(0) += 1;
        }
    }
    let line = |((folder, limit), count)| format!("{folder}: {count} doc comments restate a name, at most {limit}");
    counts.into_iter().map(line).collect()
}

fn all(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.rust() {
        for (line, text, at) in source.doc_lines() {
            let Some(name) = name_at(source, at) else { continue };
            if restates(text, name) {
                let text = format!("\"{text}\" says no more than the name `{name}`: give units, bounds or a reason");
                findings.push(Finding::at(path, line, text));
            }
        }
    }
    findings
}

/// The name of the item, field or variant that begins at this token.
fn name_at(source: &Source, mut at: usize) -> Option<&str> {
    loop {
        match &source.tokens.get(at)?.kind {
            Kind::Word(word) if !KEYWORDS.contains(&word.as_str()) => return Some(word),
            Kind::Word(_) | Kind::Mark('(' | ')') => at += 1,
            _ => return None,
        }
    }
}

/// Returns true if every word of a comment is a word of the name. A literal alone (`no-store`) shows how a protocol
/// writes the name.
fn restates(text: &str, name: &str) -> bool {
    let outside: String = text.split('`').step_by(2).collect();
    if text.contains('`') && !outside.contains(char::is_alphanumeric) {
        return false;
    }
    let known = words(name);
    words(text).iter().filter(|word| !ARTICLES.contains(&word.as_str())).all(|word| known.contains(word))
}

/// The words of a name or a sentence, in lower case and in the singular.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for character in text.chars() {
        let begins = character.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit());
        if begins || !character.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| character.is_alphanumeric()) {
            word.extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    for word in &mut words {
        if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
            word.pop();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_only_repeats_the_name_is_found() {
        let bad = [
            "/// The head.\npub head: Head,",
            "/// State of a volume.\n#[derive(Debug)]\npub(crate) enum VolumeState {}",
            "/// Bytes sent.\npub const fn sent_bytes(&self) -> u64 { 0 }",
            "/// GET.\nGet,",
        ];
        for text in bad {
            assert_eq!(check(&Tree::of(&[("src/a.rs", text)])).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_comment_that_adds_something_passes() {
        let good = [
            "/// The head, at most 8 KiB.\npub head: Head,",
            "/// `no-store`.\npub no_store: bool,",
            "/// The head.\n///\n/// It ends with an empty line.\npub head: Head,",
            "/// Retrieves content (RFC 9110 §9.3.1).\nGet,",
            "//// The head.\npub head: Head,",
        ];
        for text in good {
            assert_eq!(check(&Tree::of(&[("src/a.rs", text)])), [], "{text}");
        }
    }
}
