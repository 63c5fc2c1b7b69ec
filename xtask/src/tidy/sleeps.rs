//! No unit test sleeps: it waits for a condition, for an event, or sets the clock.
//!
//! A sleep is too short on a busy machine and too long on every other. `flatout_os::testing` has what tests wait with.

use super::Finding;
use super::purity::{Call, called};
use super::source::Source;
use super::tree::Tree;
use std::collections::BTreeSet;

const CALLS: &[Call] = &[
    (&["thread", ":", ":", "sleep"], "a test sleeps"),
    (&["time", ":", ":", "sleep"], "a test sleeps"),
    (&["time", ":", ":", "sleep_until"], "a test sleeps"),
    (&["clock", ":", ":", "sleep"], "a test sleeps"),
];

/// End-to-end tests, which wait for processes, and the tools of the repository.
const EXEMPT: &[&str] = &["tests/", "xtask/", "fuzz/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let product: BTreeSet<&str> = tree.product().map(|(path, _)| path).collect();
    let mut findings = Vec::new();
    for (path, source) in tree.rust().filter(|(path, _)| !EXEMPT.iter().any(|folder| path.starts_with(folder))) {
        let calls = sleeps(source, !product.contains(path)).into_iter();
        findings.extend(calls.map(|(line, call)| Finding::at(path, line, format!("{call}; see flatout_os::testing"))));
    }
    findings
}

/// The sleeps in the tests of a file, or in all of a file that only tests reach.
fn sleeps(source: &Source, all: bool) -> Vec<(usize, String)> {
    let tests = (0..source.tokens.len()).filter(|at| all || source.test_mask[*at]);
    tests.flat_map(|at| called(source, at, CALLS).map(move |call| (source.tokens[at].line, call))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Package;
    use super::*;

    #[test]
    fn sleeps_of_tests_are_found_and_those_of_the_product_are_not() {
        let tree = Tree::of(&[
            ("crates/os/src/lib.rs", "#[cfg(test)] mod tests; fn a() { std::thread::sleep(D); }"),
            ("crates/os/src/tests.rs", "fn b() { thread::sleep(D); }\nasync fn c() { tokio::time::sleep(D).await; }"),
            ("crates/lab/src/lib.rs", "#[cfg(test)] mod tests { fn d() { std::thread::sleep(D); } }"),
        ])
        .with(Package::of("flatout-os", "crates/os", &[]))
        .with(Package::of("flatout-lab", "crates/lab", &[]));
        let found: Vec<String> =
            check(&tree).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
        assert_eq!(found, ["crates/lab/src/lib.rs:1", "crates/os/src/tests.rs:1", "crates/os/src/tests.rs:2"]);
    }
}
