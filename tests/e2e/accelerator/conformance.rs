//! The npm package http-cache-tests, which checks the requirements of RFC 9111 and the behaviour of an optimal cache,
//! run against `flatout accelerate` as its README describes.
//!
//! `docs/conformance.md` publishes the scores next to those of nginx and Varnish. `cargo xtask cache-tests` writes it.

use super::super::harness::{Folder, Server};
use super::super::tool::{run, tool};
use super::{accelerate_url, configure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Cases that require the opposite of a standard, or something unsafe, whatever the settings; each with the reason.
/// They count in the published scores.
const EXEMPT: &[(&str, &str)] = &[
    ("age-parse-nonnumeric", INVALID_AGE),
    ("age-parse-negative", INVALID_AGE),
    ("age-parse-float", INVALID_AGE),
    ("age-parse-parameter", INVALID_AGE),
    ("age-parse-numeric-parameter", INVALID_AGE),
    ("age-parse-prefix-twoline", FIRST_AGE),
    ("age-parse-dup-0", FIRST_AGE),
    ("age-parse-dup-0-twoline", FIRST_AGE),
    ("age-parse-dup-old", FIRST_AGE),
    ("status-400-fresh", FORM),
    ("status-400-stale", FORM),
    ("stale-close-must-revalidate", NOT_STALE),
    ("stale-close-proxy-revalidate", NOT_STALE),
    ("stale-close-no-cache", NOT_STALE),
    ("stale-close-s-maxage=2", NOT_STALE),
];

const INVALID_AGE: &str = "RFC 9111 section 5.1: an invalid Age is ignored; the case wants the response to be stale";
const FIRST_AGE: &str = "RFC 9111 section 5.1: the first member of Age counts; the case wants the response to be stale";
const FORM: &str = "400 speaks of the form of one request: stored, it would take the page from everybody else";
const NOT_STALE: &str = "it depends on `stale-close`, a question without a wrong answer: by default nothing stale is served \
                         when the origin cannot be reached";

/// Cases that are unsafe by default: one visitor's cookie would go to all visitors, and content in an unknown transfer
/// coding cannot be distinguished from other content once it is forwarded.
const UNWISE: &[&str] = &[
    "headers-store-Set-Cookie",
    "headers-store-Transfer-Encoding",
    "304-etag-update-response-Set-Cookie",
    "other-set-cookie",
];

fn is_exempt(id: &str) -> bool {
    EXEMPT.iter().any(|(exempt, reason)| *exempt == id && !reason.is_empty())
}

/// Settings for what the cases require but is unsafe by default: storing a response with a visitor's cookie, a response
/// for a different Accept-Language, a contradictory 206, and a response in an unknown transfer coding.
const SWITCHES: &str = "set-cookie \"store\"; language-select #true; mismatched-ranges #true";

fn package() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target/tools/cache-tests/node_modules/http-cache-tests");
    assert!(folder.join("cli.mjs").is_file(), "http-cache-tests is not installed; please run: tools/setup.sh test");
    folder
}

fn script(role: &str) -> Command {
    let mut command = tool("node");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cache_tests.mjs")).arg(package()).arg(role);
    command
}

/// The origin of the package.
struct TestOrigin {
    child: Child,
    url: String,
}

impl TestOrigin {
    fn start() -> Self {
        let mut child = script("origin").stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("Listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        // The origin keeps printing a line for each warning.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Self { child, url }
    }
}

impl Drop for TestOrigin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Results for each kind of case: how many passed, how many there are, and the details of those that failed.
#[derive(Debug, Default)]
struct Score {
    counts: BTreeMap<String, (usize, usize)>,
    /// Kind, name and detail.
    failures: Vec<(String, String, String)>,
}

impl Score {
    fn of(result: &Value) -> Self {
        let mut score = Self::default();
        // The suite counts as a whole: a case that depends on a failed case fails too.
        for case in result["cases"].as_array().unwrap() {
            let word = |key: &str| case[key].as_str().unwrap_or("unknown").to_owned();
            let (held, all) = score.counts.entry(word("kind")).or_default();
            *all += 1;
            if case["held"] == Value::Bool(true) {
                *held += 1;
            } else {
                let detail = format!("{}: {}", word("outcome"), word("detail"));
                score.failures.push((word("kind"), word("id"), detail));
            }
        }
        score
    }

    /// The row for the published table.
    fn row(&self, name: &str) -> String {
        let cell =
            |kind: &str| self.counts.get(kind).map_or_else(String::new, |(held, all)| format!("{held} of {all}"));
        format!("| {name} | {} | {} |", cell("required"), cell("optimal"))
    }

    fn failed(&self, kind: &str, forgiven: &[&str]) -> Vec<String> {
        let is_forgiven = |id: &str| forgiven.contains(&id) || is_exempt(id);
        let failures = self.failures.iter().filter(|(of, id, _)| of == kind && !is_forgiven(id));
        failures.map(|(_, id, detail)| format!("{id}: {detail}")).collect()
    }
}

const PUBLISHED: &str = include_str!("../../../docs/conformance.md");

/// Maximum number of runs of all cases.
const RUNS: usize = 3;

/// Runs all cases, and repeats the run while a case fails that should pass or the row differs from the published one. A
/// case that passes in any run counts. Some cases wait for seconds and then compare an Age, which can be a second older
/// on a busy machine.
fn judge(server: &Server, artefact: &str, name: &str, should_hold: impl Fn(&str, &str) -> bool) -> Score {
    let word = |case: &Value, key: &str| case[key].as_str().unwrap_or_default().to_owned();
    let missed = |case: &Value| case["held"] != true && !is_exempt(&word(case, "id"));
    let required = |case: &Value| missed(case) && should_hold(&word(case, "kind"), &word(case, "id"));
    let mut result = run_cases(server, artefact);
    for _ in 1..RUNS {
        let is_published = PUBLISHED.contains(&Score::of(&result).row(name));
        if is_published && !result["cases"].as_array().unwrap().iter().any(required) {
            break;
        }
        let again = run_cases(server, artefact);
        let again: BTreeMap<String, &Value> =
            again["cases"].as_array().unwrap().iter().map(|case| (word(case, "id"), case)).collect();
        for case in result["cases"].as_array_mut().unwrap() {
            if let Some(again) = again.get(&word(case, "id")).filter(|again| missed(case) && again["held"] == true) {
                *case = (*again).clone();
            }
        }
    }
    Score::of(&result)
}

fn run_cases(server: &Server, artefact: &str) -> Value {
    let text = run(script("client").arg(format!("http://{}", server.address)));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/e2e-artefacts");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(artefact), &text).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn check(score: &Score, name: &str, forgiven: &[&str], optimal_percent: usize) {
    let row = score.row(name);
    println!("{row}\nnot passed: {:#?}", score.failures);
    let required = score.failed("required", forgiven);
    assert!(required.is_empty(), "{name}: {} of the required cases fail: {required:#?}", required.len());
    let optimal = score.failed("optimal", forgiven);
    // Exempt cases count neither as passed nor as failed.
    let (held, _) = score.counts["optimal"];
    let all = held + optimal.len();
    assert!(held * 100 >= all * optimal_percent, "{name}: {held} of {all} optimal cases; these not: {optimal:#?}");
    assert!(PUBLISHED.contains(&row), "docs/conformance.md is stale (cargo xtask cache-tests); it should say: {row}");
}

#[test]
fn http_cache_tests_pass_with_default_settings() {
    let origin = TestOrigin::start();
    let server = accelerate_url(origin.url.trim_end_matches('/'), &[]);
    let should_hold = |kind: &str, id: &str| kind == "required" && !UNWISE.contains(&id);
    let score = judge(&server, "cache-tests.json", "flatout accelerate", should_hold);
    // The cases missing to 95 % are unsafe by default and have settings, which the test below enables.
    check(&score, "flatout accelerate", UNWISE, 90);
}

#[test]
fn http_cache_tests_pass_with_the_optional_settings() {
    let origin = TestOrigin::start();
    let folder = Folder::new();
    let server = configure(&folder, origin.url.trim_end_matches('/'), SWITCHES, "unknown-codings #true");
    let name = "flatout with additional settings";
    let score = judge(&server, "cache-tests-switches.json", name, |kind, _| kind == "required");
    check(&score, name, &[], 95);
}
