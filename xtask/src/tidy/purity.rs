//! The pure crates see no socket, file, thread, process, clock or terminal: bytes and time are arguments.
//!
//! Cargo.toml cannot say this, because the standard library has all of them. Tests are free to use what they like.

use super::Finding;
use super::direction::PURE;
use super::imports::{imports, path_at};
use super::source::Source;
use super::tree::Tree;

/// Paths that no pure crate names, in full or through `use`.
const PATHS: &[(&[&str], &str)] = &[
    (&["std", "net"], "a socket (addresses are in core::net)"),
    (&["std", "fs"], "a file"),
    (&["std", "thread"], "a thread"),
    (&["std", "process"], "a process"),
    (&["std", "env"], "the environment"),
    (&["std", "os"], "the system"),
    (&["std", "io", "stdin"], "the terminal"),
    (&["std", "io", "stdout"], "the terminal"),
    (&["std", "io", "stderr"], "the terminal"),
];

/// Calls that read the clock, whatever the type was imported as.
const CALLS: &[Call] = &[
    (&["Instant", ":", ":", "now"], "the clock"),
    (&["SystemTime", ":", ":", "now"], "the clock"),
    (&[".", "elapsed", "(", ")"], "the clock"),
];

const MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        if !PURE.contains(&package.name.as_str()) {
            continue;
        }
        for (path, source) in tree.product_of(package) {
            for (line, what) in impurities(source) {
                let text = format!("{} must not see {what}", package.name);
                findings.push(Finding::at(path, line, text));
            }
        }
    }
    findings
}

fn impurities(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < source.tokens.len() {
        let line = source.tokens[at].line;
        if source.test_mask[at] {
            at += 1;
            continue;
        }
        if let Some((imports, end)) = imports(source, at) {
            found.extend(imports.iter().filter_map(|import| Some((line, forbidden(&import.path)?))));
            at = end;
            continue;
        }
        if source.tokens[at].is_word("std") {
            let path = path_at(source, at);
            found.extend(forbidden(&path).map(|what| (line, what)));
        }
        found.extend(called(source, at, CALLS).map(|call| (line, call)));
        for name in MACROS {
            if source.matches(at, &[name, "!"]) {
                found.push((line, format!("the terminal: `{name}!`")));
            }
        }
        at += 1;
    }
    found
}

/// A sequence of tokens, and what it reaches.
pub(super) type Call = (&'static [&'static str], &'static str);

/// The `calls` that begin at this token.
pub(super) fn called(source: &Source, at: usize, calls: &'static [Call]) -> impl Iterator<Item = String> {
    let found = calls.iter().filter(move |(call, _)| source.matches(at, call));
    found.map(|(call, what)| format!("{what}: `{}`", call.concat()))
}

fn forbidden(path: &[String]) -> Option<String> {
    let (_, what) =
        PATHS.iter().find(|(wanted, _)| wanted.len() <= path.len() && wanted.iter().zip(path).all(|(a, b)| a == b))?;
    Some(format!("{what}: `{}`", path.join("::")))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let tree = Tree::of(&[("crates/http/src/lib.rs", text)]).with(Package::of("flatout-http", "crates/http", &[]));
        check(&tree).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn every_forbidden_sight_is_found() {
        let bad = [
            "use std::net::TcpStream;",
            "use std::{fmt, fs::File};",
            "use std::{collections::{BTreeMap, BTreeSet}, thread};",
            "fn a() { let _ = std::fs::read(\"x\"); }",
            "use std::time::Instant; fn a() { Instant::now(); }",
            "fn a() -> std::time::SystemTime { std::time::SystemTime::now() }",
            "fn a(t: std::time::Instant) { t.elapsed(); }",
            "fn a() { println!(\"x\"); }",
            "fn a() { eprintln!(\"x\"); }",
            "use std::io::{self, stdout};",
            "use std::env as surroundings;",
        ];
        for text in bad {
            assert_eq!(findings(text).len(), 1, "{text}: {:?}", findings(text));
        }
    }

    #[test]
    fn innocent_code_passes() {
        let good = "use std::{fmt, io::Read, time::{Duration, Instant, SystemTime}}; use core::net::IpAddr; \
                    /// Call println!(\"std::fs\") yourself.\n\
                    fn a(now: Instant) { let b = \"std::net\"; let fs = 1; now.duration_since(now); } \
                    #[cfg(test)] mod tests { use std::fs; fn b() { println!(\"x\"); } }";
        assert_eq!(findings(good), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_only_tests_reach_is_free() {
        let tree = Tree::of(&[
            ("crates/load/src/lib.rs", "#[cfg(test)] mod feed;"),
            ("crates/load/src/feed.rs", "use std::fs;"),
        ])
        .with(Package::of("flatout-load", "crates/load", &[]));
        assert_eq!(check(&tree), []);
    }
}
