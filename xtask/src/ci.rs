//! Every check there is, in an order that finds cheap failures first.
//!
//! One development build serves all tests and the fuzz smoke. One release build makes the binary that the end-to-end
//! tests, the documents' commands and the demo drive; so nothing large is compiled twice, and what is judged from
//! outside is what people run.

use crate::failure::{Context, Failure, Outcome};
use crate::shell;
use crate::{docs_commands, rerun, tidy};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What a step came to when it did not fail.
enum Verdict {
    Held,
    /// It could not be checked here, and why.
    Skipped(String),
    /// It held, but these tests failed next to other tests and passed alone.
    Unstable(Vec<String>),
}

impl Verdict {
    fn of_tests(unstable: Vec<String>) -> Self {
        if unstable.is_empty() { Self::Held } else { Self::Unstable(unstable) }
    }
}

struct Step {
    name: &'static str,
    what: &'static str,
    /// The step that builds what this one uses.
    needs: Option<&'static str>,
    run: fn() -> Outcome<Verdict>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", what: "cargo fmt --check", needs: None, run: || cargo(&["fmt", "--all", "--check"]) },
    Step { name: "scripts", what: "bash reads every script", needs: None, run: scripts },
    Step {
        name: "clippy",
        what: "cargo clippy, warnings denied",
        needs: None,
        run: || {
            let args = "clippy --workspace --all-targets --keep-going -- -D warnings";
            cargo(&args.split(' ').collect::<Vec<_>>())
        },
    },
    Step { name: "tidy", what: "the rules of the house", needs: None, run: || tidy::run().map(|()| Verdict::Held) },
    Step { name: "doc", what: "cargo doc, warnings denied", needs: None, run: doc },
    Step { name: "deny", what: "licences, advisories and sources of dependencies", needs: None, run: deny },
    Step {
        name: "test",
        what: "unit and integration tests",
        needs: None,
        run: || {
            let mut unstable = tests(&["--workspace", "--exclude", "flatout"], &[], None)?;
            unstable.extend(tests(&["--package", "flatout", "--bins"], &[], None)?);
            Ok(Verdict::of_tests(unstable))
        },
    },
    Step { name: "release", what: "the release binary", needs: None, run: build_release_binary },
    Step {
        name: "e2e",
        what: "end to end, on the release binary",
        needs: Some("release"),
        run: || test_release_binary("e2e", &[]),
    },
    Step {
        name: "fuzz-smoke",
        what: "each fuzz target for a moment",
        needs: None,
        run: || fuzz_smoke().map(|()| Verdict::Held),
    },
    Step {
        name: "docs-commands",
        what: "the documents' commands, run for real",
        needs: Some("release"),
        run: || docs_commands::check(&release_binary()).map(|()| Verdict::Held),
    },
    Step { name: "demo", what: "the demo, once and shortly", needs: Some("release"), run: demo },
];

/// Steps that run only when they are named, because they need packages that `make test` does not install.
const NAMED_STEPS: &[Step] = &[Step {
    name: "apps",
    what: "applications behind the accelerator, on the release binary",
    needs: Some("release"),
    // With the output of tests that pass: each prints how long it took.
    run: || test_release_binary("apps", &["--show-output"]),
}];

/// Runs every step, or those named. A failed step does not keep the next from running, unless that one uses what the
/// failed one would have built.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    if args.iter().any(|arg| arg == "--list") {
        for step in STEPS.iter().chain(NAMED_STEPS) {
            println!("{:<14} {}", step.name, step.what);
        }
        return Ok(());
    }
    run_steps(&chosen(args)?)
}

fn run_steps(steps: &[&'static Step]) -> Outcome<()> {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut failed: Vec<(&str, String)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("━━━ {}/{} {}: {}", index + 1, steps.len(), step.name, step.what);
        if let Some(needed) = step.needs.filter(|needed| failed.iter().any(|(name, _)| name == needed)) {
            failed.push((step.name, format!("not run, because the step `{needed}` failed")));
            rows.push((step.name, 0.0, "NOT RUN"));
            continue;
        }
        let start = Instant::now();
        let result = (step.run)();
        let seconds = start.elapsed().as_secs_f64();
        let outcome = match result {
            Ok(Verdict::Held) => "passed",
            Ok(Verdict::Skipped(why)) => {
                notes.push(format!("NOT CHECKED HERE: {}: {why}", step.name));
                "not checked"
            }
            Ok(Verdict::Unstable(tests)) => {
                notes.extend(
                    tests.iter().map(|test| format!("UNSTABLE: {test} failed next to other tests and passed alone")),
                );
                "passed"
            }
            Err(failure) => {
                println!("{failure}");
                failed.push((step.name, failure.to_string()));
                "FAILED"
            }
        };
        println!("    {} {outcome}, {seconds:.1} s", step.name);
        rows.push((step.name, seconds, outcome));
    }
    println!("━━━ {} of {} steps passed", steps.len() - failed.len(), steps.len());
    for (name, seconds, outcome) in &rows {
        println!("{seconds:>8.1} s  {name:<14} {outcome}");
    }
    println!("{:>8.1} s  in all", rows.iter().map(|(_, seconds, _)| seconds).sum::<f64>());
    for note in notes {
        println!("!!! {note}");
    }
    if failed.is_empty() {
        return Ok(());
    }
    let each = failed
        .iter()
        .map(|(name, why)| format!("ci: step `{name}` failed; run it again with: cargo xtask ci {name}\n{why}\n"));
    Err(format!("{} of {} steps failed\n{}", failed.len(), steps.len(), each.collect::<String>()).into())
}

/// Runs the fuzz targets' smoke mode, which needs no nightly compiler.
pub(crate) fn fuzz_smoke() -> Outcome<()> {
    cargo(&["run", "--package", "flatout-fuzz", "--profile", "dev", "--bin", "smoke"]).map(|_| ())
}

/// Writes the generated parts of documents. The tests that compare them with the tables in the code write them instead,
/// so this program links none of the product's crates.
pub(crate) fn write_reasons() -> Outcome<()> {
    let mut test = shell::cargo();
    test.args(["test", "--package", "flatout", "--test", "e2e", "is_documented", "--", "--show-output"]);
    must_succeed(test.env("FLATOUT_WRITE_DOCS", "1")).map(|_| ())
}

fn chosen(args: &[String]) -> Outcome<Vec<&'static Step>> {
    if args.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let find = |name: &String| {
        let step = STEPS.iter().chain(NAMED_STEPS).find(|step| step.name == name);
        step.ok_or_else(|| Failure::from(format!("ci has no step `{name}`; `cargo xtask ci --list`")))
    };
    args.iter().map(find).collect()
}

fn must_succeed(command: &mut Command) -> Outcome<Verdict> {
    let shown = shell::shown(command);
    let status = command.status().cannot(&format!("run `{shown}`"))?;
    if status.success() { Ok(Verdict::Held) } else { Err(format!("`{shown}` ended with {status}").into()) }
}

fn cargo(args: &[&str]) -> Outcome<Verdict> {
    must_succeed(shell::cargo().args(args))
}

fn release_binary() -> PathBuf {
    shell::target_dir().join("release/flatout")
}

fn build_release_binary() -> Outcome<Verdict> {
    cargo(&["build", "--release", "--package", "flatout"])
}

/// Runs a test program of the development build against the release binary. Linking the tests themselves with the
/// release profile would take minutes.
fn test_release_binary(program: &str, options: &[&str]) -> Outcome<Verdict> {
    build_release_binary()?;
    let binary = std::path::absolute(release_binary()).cannot("find the release binary")?;
    let selection = ["--package", "flatout", "--test", program];
    tests(&selection, options, Some(&binary)).map(Verdict::of_tests)
}

/// Runs the selected tests, with a binary to test if they are end-to-end tests, and returns the names of those that are
/// unstable.
fn tests(selection: &[&str], options: &[&str], binary: Option<&Path>) -> Outcome<Vec<String>> {
    rerun::test(&|arguments| {
        let mut command = shell::cargo();
        command.args(["test", "--no-fail-fast"]).args(selection).arg("--").args(options).args(arguments);
        command.envs(binary.map(|binary| ("FLATOUT_BIN", binary)));
        command
    })
}

fn scripts() -> Outcome<Verdict> {
    let root = shell::root();
    let mut files = vec![root.join(".ci/run")];
    for entry in std::fs::read_dir(root.join("tools")).cannot("list tools/")? {
        files.push(entry.cannot("list tools/")?.path());
    }
    // Programs for tests have folders of their own.
    files.retain(|file| file.is_file());
    for file in &files {
        must_succeed(Command::new("bash").arg("-n").arg(file))?;
    }
    if shell::is_installed("shellcheck") {
        must_succeed(Command::new("shellcheck").args(&files))?;
    }
    Ok(Verdict::Held)
}

fn doc() -> Outcome<Verdict> {
    let mut command = shell::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    must_succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny() -> Outcome<Verdict> {
    if !shell::is_installed("cargo-deny") {
        let why = "known holes, withdrawn and doubled dependencies: cargo-deny is not installed (cargo install \
                   cargo-deny --locked); licences and sources are checked by the step tidy";
        return Ok(Verdict::Skipped(why.to_owned()));
    }
    cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    let mut advisories = shell::cargo();
    advisories.args(["deny", "check", "advisories"]);
    let output = advisories.output().cannot("run cargo-deny")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(Verdict::Held)
    } else if said.contains("failed to fetch advisory database") {
        Ok(Verdict::Skipped("advisories could not be fetched; licences, bans and sources held".to_owned()))
    } else {
        Err(format!("`{}` ended with {}\n{said}", shell::shown(&advisories), output.status).into())
    }
}

fn demo() -> Outcome<Verdict> {
    let binary = release_binary();
    if !binary.is_file() {
        return Err("there is no release binary yet: cargo xtask ci release".into());
    }
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).cannot("find a free port")?;
    let mut command = Command::new("bash");
    command
        .arg("tools/demo.sh")
        .current_dir(shell::root())
        .env("DEMO_ONCE", "1")
        .env("DEMO_SECONDS", "2")
        .env("DEMO_LISTEN", free.to_string())
        .env("FLATOUT_BIN", binary);
    let said = shell::output_of(&mut command)?;
    print!("{said}");
    check_demo(&said).map(|()| Verdict::Held)
}

/// What a first visitor must see of the demo: figures from both measurements, the limit beside the first, and no verdict
/// against them. That it exited 0 is known by then.
fn check_demo(said: &str) -> Outcome<()> {
    let (cost, wait) =
        said.split_once("2. How long does a visitor wait?").cannot("find the demo's second measurement")?;
    if said.contains("INVALID") {
        return Err("the demo says INVALID".into());
    }
    let is_shown = |part: &str, name: &str| {
        let figure = |line: &str| line.trim_start().strip_prefix(name)?.strip_prefix(' ')?.trim_start().chars().next();
        part.lines().filter_map(figure).any(|first| first.is_ascii_digit() || first == 'p')
    };
    let (cost, limit) = cost.split_once("machine limit").cannot("find the demo's limit of the machine")?;
    for (part, named) in [
        (cost, &["requests/s", "latency", "client CPU", "server CPU"][..]),
        (limit, &["requests/s", "CPU"]),
        (wait, &["requests/s", "latency", "client CPU", "server CPU"]),
    ] {
        if let Some(name) = named.iter().find(|name| !is_shown(part, name)) {
            return Err(format!("the demo shows no figure for `{name}`").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_by_name_and_a_wrong_name_is_an_error() {
        let names = ["tidy".to_owned(), "apps".to_owned()];
        let steps = chosen(&names).unwrap_or_default();
        assert_eq!(steps.iter().map(|step| step.name).collect::<Vec<_>>(), ["tidy", "apps"]);
        let all = chosen(&[]).unwrap_or_default();
        assert!(all.len() == STEPS.len() && all.iter().all(|step| step.name != "apps"));
        assert!(chosen(&["tdiy".to_owned()]).is_err());
    }

    #[test]
    fn a_demo_without_a_figure_or_with_an_invalid_one_fails() {
        let figures = "  requests/s       474   of 474\n  latency          p50 438 µs\n  client CPU       2 µs\n  server CPU       3 µs\n";
        let limit = "  machine limit    bare loop\n    requests/s     14,974\n    CPU            20.2 µs a request\n";
        let whole = format!("1. What?\n{figures}{limit}\n2. How long does a visitor wait?\n{figures}");
        assert!(check_demo(&whole).is_ok());
        for (gone, instead) in [
            ("2. How long", "2. Which"),
            ("machine limit", "machine"),
            ("    requests/s     14,974", "    requests/s     -"),
            ("  latency          p50 438 µs", "  latency          -   nothing was answered"),
            ("  server CPU       3 µs", "  server CPU       -   not known"),
            ("1. What?", "INVALID: no figure is valid"),
        ] {
            assert!(whole.contains(gone) && check_demo(&whole.replace(gone, instead)).is_err(), "{gone}");
        }
        // Each measurement has to show its own.
        let (first, second) = whole.split_once("\n2.").unwrap();
        assert!(check_demo(&format!("{first}\n2. How long does a visitor wait?\n")).is_err());
        assert!(check_demo(&format!("1. What?\n{limit}\n2.{second}")).is_err());
    }

    #[test]
    fn a_step_that_ends_badly_fails() {
        assert!(must_succeed(&mut Command::new("false")).is_err());
        assert!(must_succeed(&mut Command::new("true")).is_ok());
    }
}
