//! The five suites of the project with `--quick`: checks that they are complete and what they show, not how fast
//! anything was. Peers that are not installed are left out and reported.

use super::super::browser::Browser;
use super::super::harness::{Folder, Server, flatout};
use super::super::tool::said;
use serde_json::Value;
use std::fs;
use std::path::Path;

const WIDE: (u32, u32) = (1280, 3200);
const PHONE: (u32, u32) = (390, 3200);

/// A string field.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// Runs a suite with `--quick` and inspects everything that it produces.
fn run(name: &str, steps: &[&str], words: &[&str]) {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("suites/{name}.kdl"));
    let folder = Folder::new();
    let out = folder.path().join("out");
    let arguments = ["suite", "run", suite.to_str().unwrap(), "--quick", "--out", out.to_str().unwrap()];
    let output = flatout().args(arguments).output().unwrap();
    // Next to other tests, a peer may fail requests, which is reported as trouble. Nothing else may go wrong.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{name} ended with {}:\n{}", output.status, said(&output));

    let report: Value = serde_json::from_str(&fs::read_to_string(out.join("suite.json")).unwrap()).unwrap();
    assert_eq!((text(&report, "schema"), text(&report, "suite")), ("flatout-suite/1", name));
    assert!(report["quick"].as_bool().unwrap() && !report["interrupted"].as_bool().unwrap());
    let of_peers =
        |trouble: &&Value| text(&trouble["why"], "name") == "requests-failed" && trouble["server"] != "flatout";
    let troubles = list(&report, "troubles");
    assert_eq!(troubles.iter().filter(of_peers).count(), troubles.len(), "{:#}", report["troubles"]);
    assert_eq!(output.status.success(), troubles.is_empty(), "{}", said(&output));
    assert!(!list(&report, "seeds").is_empty() && !list(&report, "checks").is_empty());
    for server in list(&report, "servers") {
        // A peer that is not installed is listed with the package that provides it. An installed peer has a version.
        let is_absent = !server["absent"].is_null();
        assert!(is_absent || !text(server, "program").is_empty(), "{server:#}");
        if is_absent {
            let why = text(&server["absent"], "text");
            match text(&server["absent"], "name") {
                "program-missing" | "need-missing" | "too-old" => assert!(why.contains("Debian package"), "{why}"),
                name => assert_eq!((name, why.contains("was left out")), ("needed-absent", true), "{why}"),
            }
        }
    }
    let found: Vec<&str> = list(&report, "steps").iter().map(|step| text(step, "name")).collect();
    assert_eq!(found, steps);
    let mut measured = 0;
    for step in list(&report, "steps").iter().filter(|step| step["absent"].is_null()) {
        for cell in list(step, "cells") {
            if !cell["absent"].is_null() {
                continue;
            }
            // The run exists in the format of `flatout bench`.
            let runs = list(cell, "runs");
            assert!(!runs.is_empty(), "{name}: {cell:#}");
            for run in runs {
                let result: Value =
                    serde_json::from_str(&fs::read_to_string(out.join(text(run, "path"))).unwrap()).unwrap();
                assert_eq!(text(&result, "schema"), "flatout-run");
            }
            measured += 1;
        }
    }
    assert!(measured >= 2, "{name}: {measured} cells");
    look(name, &folder, &out, words);
}

/// Opens the report in a browser: it is complete, loads nothing, and renders in both themes and on a phone.
fn look(name: &str, folder: &Folder, out: &Path, words: &[&str]) {
    fs::copy(out.join("report.html"), folder.path().join("report.html")).unwrap();
    let pages = Server::start(folder.path(), &[]);
    let dom = Browser::report_dom(folder, &pages);
    let always = ["This was a quick run", "To repeat this run", "What the figures mean", "other hardware", "<svg"];
    for word in always.iter().chain(words) {
        assert!(dom.to_lowercase().contains(&word.to_lowercase()), "{name}: no {word:?} in {dom}");
    }
    assert!(!dom.contains("NaN") && !dom.contains("inf "), "{name}: a figure that is none");
    Browser::draw(&pages.url("/report.html"), &format!("suite-{name}"), WIDE, PHONE);
}

#[test]
fn the_coyote_suite_is_complete() {
    let steps = ["hits-close", "hits-kept", "clients-close", "clients-kept", "wire-active", "wire-static"];
    run("coyote", &steps, &["Coyote, 1998", "84.2", "hits per hour", "204317"]);
}

#[test]
fn the_jigsaw_suite_is_complete() {
    run("jigsaw", &["two-minutes", "turns"], &["Jigsaw", "392", "In the format of ptester", "server CPU per MiB"]);
}

#[test]
fn the_tarantula_suite_is_complete() {
    let steps = ["as-then", "knee", "scaled", "overload", "simultaneous", "large-loopback", "large-10mbit"];
    run(
        "tarantula",
        &steps,
        &["TarantulaWEB, 1999", "In the format of httperf", "--quick leaves it out", "Memory during the run"],
    );
}

#[test]
fn the_bordermanager_suite_is_complete() {
    let words = ["Comparison with 35 published results", "AlphaServer", "per dollar", "today", "per MHz"];
    run("bordermanager", &["capacity", "load", "mtu"], &words);
}

#[test]
fn the_iss_suite_is_complete() {
    let steps = [
        "round-trip",
        "bandwidth",
        "simple",
        "standard",
        "features-simple",
        "reuseport",
        "zerocopy",
        "features-standard",
    ];
    run(
        "iss",
        &steps,
        &["WebStone", "linux-2.0.29-iss", "no-defer-accept", "In the format of webstone", "machine's limit"],
    );
}
