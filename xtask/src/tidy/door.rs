//! One door to time and to randomness: only `os` reads a clock, pauses a thread or draws random bytes, so that a
//! simulation can take its place.
//!
//! Every crate is held to it except those that a simulation never links: the tools.

use super::Finding;
use super::purity::{Call, called};
use super::source::Source;
use super::tree::Tree;

/// The door itself, and the tools.
const EXEMPT: &[&str] = &[
    "flatout-os",
    "flatout",
    "flatout-client",
    "flatout-lab",
    "flatout-report",
    "flatout-suite",
    "flatout-sim",
    "flatout-fuzz",
    "xtask",
];

/// Calls that go past the door, whatever the type was imported as.
const CALLS: &[Call] = &[
    (&["Instant", ":", ":", "now"], "the clock"),
    (&["SystemTime", ":", ":", "now"], "the clock"),
    (&["Timestamp", ":", ":", "now"], "the clock"),
    (&["Zoned", ":", ":", "now"], "the clock"),
    (&["Uuid", ":", ":", "now_v7"], "the clock"),
    (&[".", "elapsed", "(", ")"], "the clock"),
    (&["clock_gettime"], "the clock"),
    (&["thread", ":", ":", "sleep"], "a thread's pause"),
];

/// Calls that draw randomness past the door. Maps with the standard library's hasher are not among them: nothing that a
/// simulation compares may depend on their order.
const RANDOM_CALLS: &[Call] = &[
    (&["rand", ":", ":", "fill"], "randomness"),
    (&["getrandom"], "randomness"),
    (&["Uuid", ":", ":", "new_v4"], "randomness"),
    (&["RandomState"], "randomness"),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in tree.packages.iter().filter(|package| !EXEMPT.contains(&package.name.as_str())) {
        for (path, source) in tree.product_of(package) {
            for (calls, door) in [(CALLS, "os::clock"), (RANDOM_CALLS, "os::random")] {
                let passes = passes(source, calls).into_iter();
                findings.extend(passes.map(|(line, call)| Finding::at(path, line, format!("{call}; use {door}"))));
            }
        }
    }
    findings
}

fn passes(source: &Source, calls: &'static [Call]) -> Vec<(usize, String)> {
    let product = (0..source.tokens.len()).filter(|at| !source.test_mask[*at]);
    product.flat_map(|at| called(source, at, calls).map(move |call| (source.tokens[at].line, call))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    fn findings(package: &str, text: &str) -> Vec<String> {
        let in_folder = |folder: &str, file: &str| {
            let tree = Tree::of(&[(file, text)]).with(Package::of(package, folder, &[]));
            check(&tree).into_iter().map(|finding| finding.text).collect::<Vec<_>>()
        };
        let found = in_folder("crates/x", "crates/x/src/lib.rs");
        assert_eq!(found, in_folder("", "src/lib.rs"), "the root package");
        found
    }

    #[test]
    fn clocks_pauses_and_randomness_go_through_the_door() {
        let bad = [
            "fn a() { let _ = std::time::Instant::now(); }",
            "use std::time::SystemTime as S; fn a() -> SystemTime { SystemTime::now() }",
            "fn a(t: std::time::Instant) { t.elapsed(); }",
            "fn a() { rustix::time::clock_gettime(ClockId::Realtime); }",
            "fn a() { std::thread::sleep(D); }",
            "fn a() { aws_lc_rs::rand::fill(&mut [0]); }",
            "fn a() { uuid::Uuid::new_v4(); }",
            "use foldhash::fast::RandomState;",
        ];
        for text in bad {
            assert_eq!(findings("flatout-data", text).len(), 1, "{text}");
            assert_eq!(findings("flatout-lab", text), [""; 0], "a tool");
        }
    }

    #[test]
    fn tests_and_arguments_are_free() {
        let good = "use std::time::Instant; fn a(now: Instant) { clock::sleep(D); clock::since(now); } \
                    #[cfg(test)] mod tests { fn b() { Instant::now(); } }";
        assert_eq!(findings("flatout-data", good), [""; 0]);
    }
}
