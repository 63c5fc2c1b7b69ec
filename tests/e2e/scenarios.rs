//! Scenarios of clients, origins and expectations. The files are in tests/scenarios/, whose README.md explains their
//! language.

mod client;
mod condition;
mod origin;
mod parse;
mod play;
mod script;
mod stage;
mod subject;
mod text;
mod verdict;
mod wire;

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use subject::Kind;

/// Number of scenarios in a folder that run at the same time. They spend most of their time waiting.
const AT_ONCE: usize = 6;

/// Why a scenario failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The line number, starting at 1, or 0 if no particular line is at fault.
    line: usize,
    text: String,
    /// The row of the scenario's table.
    row: String,
    /// A record of the events so far.
    record: String,
}

impl Failure {
    fn at(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into(), row: String::new(), record: String::new() }
    }

    fn in_row(self, row: &str) -> Self {
        Self { row: row.to_owned(), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ":{}: {}", self.line, self.text)?;
        if !self.row.is_empty() {
            write!(f, " (row: {})", self.row)?;
        }
        if self.record.is_empty() { Ok(()) } else { write!(f, "\n{}", self.record) }
    }
}

/// Seconds since 1970.
fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// The files of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs the scenarios of a folder, or those of them whose path contains `FLATOUT_SCENARIO`.
fn play_folder(name: &str) {
    let wanted = std::env::var("FLATOUT_SCENARIO").unwrap_or_default();
    let files = files(&root().join(name));
    let files: Vec<&PathBuf> = files.iter().filter(|path| path.to_string_lossy().contains(&wanted)).collect();
    let (next, report, failed) = (AtomicUsize::new(0), Mutex::new(String::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(files.len()) {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (text, begun) = (fs::read_to_string(path).unwrap(), Instant::now());
                    let short = path.strip_prefix(root()).unwrap_or(path).display().to_string();
                    let outcome = panic::catch_unwind(|| play::play_text(&text, Kind::chosen()));
                    let outcome = outcome.unwrap_or_else(|panic| {
                        let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                        Err(vec![Failure::at(1, format!("it could not be played: {said}"))])
                    });
                    let mut report = report.lock().unwrap();
                    if let Err(failures) = outcome {
                        failed.fetch_add(1, Ordering::Relaxed);
                        for failure in failures {
                            writeln!(report, "FAILED tests/scenarios/{short}{failure}").unwrap();
                        }
                    } else if !wanted.is_empty() {
                        println!("passed {short} in {:?}", begun.elapsed());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert!(failed == 0, "{failed} of {} scenarios in {name} failed:\n{}", files.len(), report.into_inner().unwrap());
}

macro_rules! folders {
    ($($test:ident $folder:literal)*) => {
        const FOLDERS: &[&str] = &[$($folder),*];
        $(
            #[test]
            fn $test() {
                play_folder($folder);
            }
        )*
    };
}

folders! {
    basic "basic"
    keys "rfc9111-2-key"
    storing "rfc9111-3-storing"
    partial "rfc9111-3.3-partial"
    vary "rfc9111-4.1-vary"
    freshness "rfc9111-4.2-freshness"
    validation "rfc9111-4.3-validation"
    invalidation "rfc9111-4.4-invalidation"
    directives "rfc9111-5.2-directives"
    hop_by_hop "rfc9110-7.6-hop-by-hop"
    conditions "rfc9110-13-conditions"
    ranges "rfc9110-14-ranges"
    stale "rfc5861-stale"
    immutable "rfc8246-immutable"
    cache_status "rfc9211-cache-status"
    targeted "rfc9213-targeted"
    groups "rfc9875-groups"
    no_vary_search "no-vary-search"
    forwarding "forwarding"
    coalescing "coalescing"
    purge "purge"
    esi "esi"
    early_hints "early-hints"
    upgrade "upgrade"
    faults "faults"
    regression "regression"
}

/// Every file has a number and a name that matches its claim, and is run by a test.
#[test]
fn every_scenario_is_numbered_named_after_its_claim_and_run() {
    let (mut numbers, mut problems) = (BTreeSet::new(), String::new());
    let mut folders: BTreeSet<&str> = FOLDERS.iter().copied().collect();
    for folder in files(&root()) {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        if !folder.is_dir() {
            continue;
        }
        if !folders.remove(name.as_str()) {
            writeln!(problems, "no test plays {name}/").unwrap();
        }
        for file in files(&folder) {
            let file_name = file.file_name().unwrap().to_string_lossy().into_owned();
            let number: String = file_name.chars().take_while(|c| *c != '-').collect();
            let well_named = number.len() == 6
                && number[1..].chars().all(|c| c.is_ascii_digit())
                && file.extension().is_some_and(|ending| ending == "scn")
                && file_name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c));
            if !well_named {
                writeln!(problems, "{name}/{file_name} is not named like b00001-a-claim.scn").unwrap();
            }
            if !numbers.insert(number) {
                writeln!(problems, "{name}/{file_name} has the number of another").unwrap();
            }
            let text = fs::read_to_string(&file).unwrap();
            if !text.lines().next().unwrap_or("").starts_with("# ") {
                writeln!(problems, "{name}/{file_name} does not begin with its claim").unwrap();
            }
        }
    }
    assert!(folders.is_empty(), "no such folders: {folders:?}");
    assert!(problems.is_empty(), "{problems}");
    assert!(numbers.len() >= 250, "{} scenarios", numbers.len());
}

/// Errors in the scenario language are reported with their line.
#[test]
fn an_error_in_a_scenario_names_its_line() {
    let cases = [
        ("client GET /\n", 1, "accelerate"),
        ("accelerate\nclient\n", 2, "client METHOD TARGET"),
        ("accelerate\n\nserver GET /\n", 3, "no block begins so"),
        ("accelerate\nclient GET /\n    expect staus 200\n", 3, "nothing is expected so"),
        ("accelerate\norigin GET /\n    answer 200\n    body one\n", 4, "double quotes"),
        ("accelerate\norigin GET /\n    Age: 1\n", 3, "without a head"),
        ("accelerate\nclient GET /{unknown}\n", 2, "{unknown}"),
        ("accelerate\nclient GET /\n    expect Age ~ 1\n", 3, "no test is called"),
        ("each a | b\n    1\naccelerate\n", 2, "2 columns, but 1 values"),
        ("    Age: 1\n", 1, "belongs to none"),
    ];
    for (text, line, part) in cases {
        let failures = play::play_text(text, Kind::Flatout).unwrap_err();
        assert!(failures[0].line == line && failures[0].text.contains(part), "{text}: {failures:?}");
    }
}
