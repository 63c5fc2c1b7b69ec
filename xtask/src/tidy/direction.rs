//! Crates depend downwards only, and the pure ones on nothing that touches the machine.
//!
//! main → {daemon → {server, engine → {serve, proxy, pages, fastcgi} → upstream}, suite → lab → {report, client}} → net →
//! handler → os. Handlers never see one another, nor the server; the server, upstream and client never see one another;
//! reason and units depend on nothing; http, cache and load are held to more (see [`PURE`]).

use super::Finding;
use super::tree::{Package, Tree};

/// Each package of the workspace and the packages of the workspace that it may name.
const MAY_SEE: &[(&str, &[&[&str]])] = &[
    ("flatout-reason", &[]),
    ("flatout-units", &[]),
    ("flatout-http", &[REASON]),
    ("flatout-load", &[REASON, UNITS, &["flatout-http"]]),
    ("flatout-cache", &[REASON, &["flatout-http"]]),
    ("flatout-config", &[REASON, UNITS, &["flatout-http", "flatout-cache"]]),
    ("flatout-os", &[]),
    ("flatout-overload", &[]),
    ("flatout-handler", &[REASON, &["flatout-http", "flatout-os", "flatout-overload"]]),
    ("flatout-access-log", &[&["flatout-http", "flatout-os", "flatout-handler"]]),
    ("flatout-net", &[REASON, &["flatout-http", "flatout-os", "flatout-handler"]]),
    (
        "flatout-server",
        &[
            REASON,
            &["flatout-http", "flatout-os", "flatout-handler", "flatout-overload", "flatout-access-log", "flatout-net"],
        ],
    ),
    (
        "flatout-upstream",
        &[REASON, &["flatout-http", "flatout-os", "flatout-handler", "flatout-net", "flatout-balance"]],
    ),
    ("flatout-client", &[REASON, &["flatout-http", "flatout-load", "flatout-os", "flatout-net"]]),
    ("flatout-data", &[REASON, &["flatout-os"]]),
    ("flatout-serve", &[STEP, UNITS]),
    ("flatout-balance", &[REASON, &["flatout-http", "flatout-config", "flatout-handler", "flatout-overload"]]),
    ("flatout-store", &[REASON, &["flatout-os", "flatout-handler"]]),
    ("flatout-proxy", &[STEP, UNITS, &["flatout-cache", "flatout-balance", "flatout-store"]]),
    ("flatout-template", &[REASON, &["flatout-http", "flatout-config"]]),
    ("flatout-pages", &[UNITS, STEP, &["flatout-overload", "flatout-data", "flatout-template"]]),
    ("flatout-fastcgi", &[STEP, &["flatout-balance"]]),
    ("flatout-report", &[REASON, UNITS, &["flatout-http", "flatout-load"]]),
    ("flatout-lab", LAB),
    ("flatout-suite", &[LAB[0], LAB[1], &["flatout-lab"]]),
    ("flatout-engine", &[BASE, STEPS, &["flatout-overload"]]),
    ("flatout-daemon", &[BASE, STEPS, &["flatout-overload", "flatout-engine", "flatout-access-log", "flatout-server"]]),
    ("flatout-http2-oracle", &[&["flatout-http"]]),
    ("flatout-sim", &[BASE]),
    (
        "flatout-accelerator-sim",
        &[
            BASE,
            STEPS,
            &["flatout-overload", "flatout-engine", "flatout-access-log", "flatout-server", "flatout-store"],
        ],
    ),
    ("flatout", EVERYTHING),
    ("flatout-fuzz", EVERYTHING),
    ("flatout-benches", EVERYTHING),
    ("xtask", &[]),
];

const REASON: &[&str] = &["flatout-reason"];

const UNITS: &[&str] = &["flatout-units"];

/// What a kind of step is made of that keeps no answers and drives no load.
const STEP: &[&str] = &[
    "flatout-reason",
    "flatout-http",
    "flatout-config",
    "flatout-os",
    "flatout-overload",
    "flatout-handler",
    "flatout-net",
    "flatout-upstream",
];

const BASE: &[&str] = &[
    "flatout-reason",
    "flatout-units",
    "flatout-http",
    "flatout-cache",
    "flatout-load",
    "flatout-config",
    "flatout-os",
    "flatout-handler",
    "flatout-net",
    "flatout-upstream",
];

/// The lab connects as a client only.
const LAB: &[&[&str]] = &[
    &["flatout-reason", "flatout-units", "flatout-http", "flatout-load", "flatout-config", "flatout-os"],
    &["flatout-net", "flatout-client", "flatout-report"],
];

/// The kinds of steps, and what one of them keeps.
const STEPS: &[&str] = &[
    "flatout-serve",
    "flatout-proxy",
    "flatout-balance",
    "flatout-store",
    "flatout-data",
    "flatout-template",
    "flatout-pages",
    "flatout-fastcgi",
];

const EVERYTHING: &[&[&str]] = &[
    BASE,
    STEPS,
    &["flatout-access-log", "flatout-server", "flatout-engine", "flatout-daemon"],
    LAB[1],
    &["flatout-lab", "flatout-suite", "flatout-http2-oracle"],
];

/// Seen by tests alone.
const ONLY_FOR_TESTS: &str = "flatout-sim";

/// The packages that do no input or output and do not read the clock: time and bytes are arguments.
pub(super) const PURE: &[&str] =
    &["flatout-overload", "flatout-http", "flatout-cache", "flatout-load", "flatout-template"];

/// What a build of a pure package must not link, by whatever way.
const IMPURE: &[&str] = &[
    "flatout-os",
    "flatout-net",
    "tokio",
    "rustix",
    "libc",
    "nix",
    "mio",
    "socket2",
    "polling",
    "rustls",
    "quinn",
    "log",
    "tracing",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let manifest = manifest.trim_start_matches('/');
        let mut report = |text: String| findings.push(Finding::of(manifest, text));
        let Some((_, may_see)) = MAY_SEE.iter().find(|(name, _)| *name == package.name) else {
            report(format!("{} has no place in the direction table of xtask/src/tidy/direction.rs", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|d| d.is_ours) {
            let for_tests = dependency.is_dev && dependency.name == ONLY_FOR_TESTS;
            if !for_tests && !may_see.iter().any(|some| some.contains(&dependency.name.as_str())) {
                report(format!("{} must not see {}", package.name, dependency.name));
            }
        }
        for text in impure_ways(package) {
            report(text);
        }
    }
    findings
}

fn impure_ways(package: &Package) -> Vec<String> {
    if !PURE.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let named = package
        .dependencies
        .iter()
        .filter(|dependency| !dependency.is_dev && IMPURE.contains(&dependency.name.as_str()))
        .map(|dependency| format!("{} must not depend on {}", package.name, dependency.name));
    let linked = package
        .reaches
        .iter()
        .filter(|(name, way)| IMPURE.contains(&name.as_str()) && way.len() > 1)
        .map(|(_, way)| format!("{} must not link {}", package.name, way.join(" → ")));
    named.chain(linked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(package: Package) -> Vec<String> {
        let tree = Tree::of(&[]).with(package);
        check(&tree).into_iter().map(|f| f.to_string()).collect()
    }

    #[test]
    fn siblings_must_not_see_one_another() {
        let package = Package::of("flatout-lab", "crates/lab", &["flatout-net", "flatout-serve"]);
        assert_eq!(findings(package), ["crates/lab/Cargo.toml: flatout-lab must not see flatout-serve"]);
    }

    #[test]
    fn a_pure_crate_must_not_touch_the_machine_directly() {
        let found = findings(Package::of("flatout-load", "crates/load", &["flatout-net", "tokio"]));
        assert_eq!(found.len(), 3, "{found:?}"); // net both as an upward look and as an impure dependency
        assert!(found.iter().any(|text| text.contains("tokio")));
    }

    #[test]
    fn nor_by_way_of_another() {
        let mut package = Package::of("flatout-http", "crates/http", &["sneaky"]);
        let way = vec!["sneaky".to_owned(), "libc".to_owned()];
        package.reaches.insert("libc".to_owned(), way);
        let found = findings(package);
        assert!(found[0].ends_with("must not link sneaky → libc"), "{found:?}");
    }

    #[test]
    fn the_simulator_is_for_tests_only() {
        let mut package = Package::of("flatout-net", "crates/net", &["flatout-sim"]);
        assert_eq!(findings(package.clone()).len(), 1);
        package.dependencies[0].is_dev = true;
        assert_eq!(findings(package).len(), 0);
    }

    #[test]
    fn a_new_crate_must_find_its_place() {
        let found = findings(Package::of("flatout-extra", "crates/extra", &[]));
        assert!(found[0].contains("no place in the direction table"), "{found:?}");
    }
}
