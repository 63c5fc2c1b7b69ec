//! `unsafe` stands in crates/os alone, and above each use of it stands the reason why it is sound.

use super::Finding;
use super::source::{Kind, Source};
use super::tree::Tree;
use std::collections::BTreeMap;

/// Where `unsafe` may stand at all.
const ALLOWED: &str = "crates/os/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in tree.rust() {
        for (at, token) in source.tokens.iter().enumerate() {
            if !token.is_word("unsafe") {
                continue;
            }
            if !path.starts_with(ALLOWED) {
                let text = format!("`unsafe` outside {ALLOWED}");
                findings.push(Finding::at(path, token.line, text));
            } else if needs_reason(source, at) && !has_reason(tree.text(path).unwrap_or(""), source, token.line) {
                let text = "`unsafe` without a `// SAFETY:` comment directly above";
                findings.push(Finding::at(path, token.line, text));
            }
        }
    }
    findings
}

/// Blocks, implementations and foreign blocks assert something; a signature only asks for it.
fn needs_reason(source: &Source, at: usize) -> bool {
    let next = |offset: usize| source.tokens.get(at + offset).map(|token| &token.kind);
    match next(1) {
        Some(Kind::Mark('{')) => true,
        Some(Kind::Word(word)) if word == "impl" => true,
        Some(Kind::Word(word)) if word == "extern" => {
            let after_abi = if matches!(next(2), Some(Kind::Text(_))) { 3 } else { 2 };
            next(after_abi) == Some(&Kind::Mark('{'))
        }
        _ => false,
    }
}

/// Returns true if the comment lines directly above the line, or above the statement it belongs to, give a reason.
fn has_reason(text: &str, source: &Source, line: usize) -> bool {
    let comments: BTreeMap<usize, &str> =
        (source.comments.iter()).map(|comment| (comment.line, comment.text.as_str())).collect();
    let lines: Vec<&str> = text.lines().collect();
    let written = |number: usize| lines.get(number - 1).map_or("", |line| line.trim());
    let is_comment = |number: usize| comments.contains_key(&number) && written(number).starts_with("//");
    let mut above = line - 1;
    // The statement may have begun on an earlier line: step back while the line above does not end one.
    while above > 0 && !is_comment(above) {
        let ended = written(above).ends_with([';', '{', '}', ',']) || written(above).is_empty();
        let is_attribute = written(above).starts_with("#[");
        if ended && !is_attribute {
            return false;
        }
        above -= 1;
    }
    while above > 0 && is_comment(above) {
        if comments[&above].trim_start_matches('/').trim_start().starts_with("SAFETY:") {
            return true;
        }
        above -= 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<usize> {
        let tree = Tree::of(&[(path, text)]);
        check(&tree).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unsafe_outside_the_net_crate_is_found_in_code_only() {
        let text = "// unsafe\nfn a() { let b = \"unsafe\"; }\n// SAFETY: no.\nunsafe fn c() {}\n";
        assert_eq!(findings("crates/http/src/lib.rs", text), [4]);
        assert_eq!(findings("src/main.rs", "#![deny(unsafe_code)]\n"), [0; 0]);
    }

    #[test]
    fn a_block_without_its_reason_is_found() {
        for bad in [
            "fn a() {\n    unsafe { b() }\n}\n",
            "// SAFETY: too far away.\n\nfn a() {\n    unsafe { b() }\n}\n",
            "fn a() {\n    // Safe enough.\n    unsafe { b() }\n}\n",
            "unsafe impl Send for A {}\n",
            "fn a() {\n    // SAFETY: for the first only.\n    unsafe { b() };\n    unsafe { c() };\n}\n",
        ] {
            assert_eq!(findings("crates/os/src/sys.rs", bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_block_with_its_reason_passes() {
        for good in [
            "fn a() {\n    // SAFETY: b has no conditions.\n    unsafe { b() }\n}\n",
            "fn a() {\n    // SAFETY: the reason\n    // goes on.\n    let c =\n        unsafe { b() };\n}\n",
            "// SAFETY: no shared state.\n#[allow(x)]\nunsafe impl Send for A {}\n",
            "pub unsafe fn a() {}\n",
        ] {
            assert_eq!(findings("crates/os/src/sys.rs", good), [0; 0], "{good}");
        }
    }
}
