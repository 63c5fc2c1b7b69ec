//! The checks for every change, in an order that finds cheap failures first. A failed step does not keep the next from
//! running.
//!
//! One development build serves everything that runs. The release build, which takes minutes, and the tests of it are
//! left to `make soak`.

mod libtest;
mod programs;
mod scope;
mod testing;

use crate::failure::{Context, Failure, Outcome};
use crate::{docs_commands, shell, tidy};
use programs::TestProgram;
use scope::Scope;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use testing::{Results, Setup};

/// What a step came to when it did not fail.
enum Verdict {
    Passed,
    /// It could not be checked here, and why.
    NotChecked(String),
}

/// What the steps of a run share.
#[derive(Default)]
struct Run {
    /// The test programs, once they have been built.
    programs: Option<Vec<TestProgram>>,
    /// What to test; everything if `None`.
    scope: Option<Scope>,
    results: Results,
}

struct Step {
    name: &'static str,
    what: &'static str,
    /// The step that builds what this one uses.
    needs: Option<&'static str>,
    run: fn(&mut Run) -> Outcome<Verdict>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", what: "cargo fmt --check", needs: None, run: |_| cargo(&["fmt", "--all", "--check"]) },
    Step { name: "scripts", what: "bash reads every script", needs: None, run: |_| scripts() },
    Step { name: "tidy", what: "the rules of the house", needs: None, run: |_| tidy::run().map(|()| Verdict::Passed) },
    Step {
        name: "clippy",
        what: "cargo clippy, warnings denied",
        needs: None,
        run: |_| {
            let args = "clippy --workspace --all-targets --keep-going -- -D warnings";
            cargo(&args.split(' ').collect::<Vec<_>>())
        },
    },
    Step { name: "doc", what: "cargo doc, warnings denied", needs: None, run: |_| doc() },
    Step { name: "build", what: "all binaries and test programs", needs: None, run: Run::build },
    Step {
        name: "test",
        what: "unit and integration tests",
        needs: None,
        run: |run| {
            let seeds = run.scope.is_some().then(|| ("FLATOUT_SEEDS", SEEDS_OF_CHECK.into()));
            run.unit_tests("test", seeds.into_iter().collect())
        },
    },
    Step {
        name: "doc-tests",
        what: "the examples in doc comments",
        needs: None,
        run: |_| cargo(&["test", "--doc", "--workspace", "--no-fail-fast"]),
    },
    Step { name: "e2e", what: "end-to-end tests", needs: None, run: |run| run.end_to_end("e2e", "e2e", None) },
    Step {
        name: "fuzz-smoke",
        what: "each fuzz target for a moment",
        needs: Some("build"),
        run: |run| {
            run.binaries()?;
            must_succeed(&mut Command::new(binary("smoke")))
        },
    },
    Step {
        name: "docs-commands",
        what: "the documents' commands, run for real",
        needs: Some("build"),
        run: |run| {
            run.binaries()?;
            docs_commands::check(&binary("flatout")).map(|()| Verdict::Passed)
        },
    },
    Step {
        name: "demo",
        what: "the demo, once and shortly",
        needs: Some("build"),
        run: |run| {
            run.binaries()?;
            demo(&binary("flatout"))
        },
    },
];

/// Number of seeds of the accelerator's simulation in `check`: a tenth of those of a whole run, which take 45 s.
const SEEDS_OF_CHECK: &str = "400";

/// Steps that run only when they are named.
const NAMED_STEPS: &[Step] = &[
    Step {
        // It needs packages that `make test` does not install.
        name: "apps",
        what: "applications behind the accelerator",
        needs: None,
        run: |run| run.end_to_end("apps", "apps", None),
    },
    Step {
        name: "e2e-release",
        what: "end-to-end tests, on the release binary",
        needs: None,
        run: |run| {
            let binary = shell::release_binary()?;
            run.end_to_end("e2e-release", "e2e", Some(binary))
        },
    },
    Step {
        name: "new-cases",
        what: "unit and integration tests, with new cases for property tests",
        needs: None,
        run: Run::new_cases,
    },
    // The installation of cargo-deny takes minutes. The step `tidy` checks licences and sources.
    Step { name: "deny", what: "licences, advisories and sources of dependencies", needs: None, run: |_| deny() },
];

/// Runs every step, or those named.
pub(crate) fn run(args: &[String]) -> Outcome<()> {
    if args.iter().any(|arg| arg == "--list") {
        for step in STEPS.iter().chain(NAMED_STEPS) {
            println!("{:<14} {}", step.name, step.what);
        }
        return Ok(());
    }
    run_steps(&chosen(args)?, Run::default(), &records())
}

/// Most end-to-end tests wait more than they compute.
const END_TO_END_THREADS: usize = 4;

/// Modules that libtest, which goes by the alphabet, would run last, with tests of up to a minute: with all others
/// done, those would keep one core busy or none. They take a quarter of the time of all tests together, so they share
/// the threads as 1 to 3.
const LAST_MODULES: &[&str] = &[
    "e2e::redbot::",
    "e2e::suite::",
    "e2e::timeouts::",
    "e2e::tls::",
    "e2e::upgrade::",
    "e2e::versions::",
    "e2e::worker::",
];

/// The steps of `check`: what a change in progress must pass before it is committed.
const CHECK_STEPS: &[&str] = &["fmt", "scripts", "tidy", "clippy", "build", "test"];

/// `cargo xtask check [COMMIT]`: checks what changed since a commit.
pub(crate) fn check(args: &[String]) -> Outcome<()> {
    let scope = Scope::since(args.first().map_or("HEAD", String::as_str))?;
    let names: Vec<_> = CHECK_STEPS.iter().map(|name| (*name).to_owned()).collect();
    let mut steps = chosen(&names)?;
    if !scope.modules.is_empty() {
        steps.extend(chosen(&["e2e".to_owned()])?);
    }
    let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let left = STEPS.iter().map(|step| step.name).filter(|name| steps.iter().all(|step| step.name != *name));
    let said = format!(
        "checked: unit tests of {}, with {SEEDS_OF_CHECK} seeds for the simulation\n         end-to-end tests {}\nleft to `cargo xtask ci`: {}; unit tests of {} other packages; \
         other end-to-end tests\nleft to `make soak` and `make test-apps`: the release build, new cases, cargo-deny, applications",
        list(&scope.packages),
        list(&scope.modules),
        left.collect::<Vec<_>>().join(", "),
        scope.packages_left
    );
    let outcome = run_steps(&steps, Run { scope: Some(scope), ..Run::default() }, &records());
    println!("{said}");
    outcome
}

/// The folder for the times of tests and for the list of flaky ones.
fn records() -> PathBuf {
    shell::target_dir().join("ci")
}

/// Runs the steps, prints a summary, and writes the records of the tests to `folder`. A step whose need failed is not
/// run, and counts as failed.
fn run_steps(steps: &[&Step], mut run: Run, folder: &Path) -> Outcome<()> {
    let mut rows = Vec::new();
    let mut notes = Vec::new();
    let mut failed = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("━━━ {}/{} {}: {}", index + 1, steps.len(), step.name, step.what);
        let start = Instant::now();
        let result = match step.needs.filter(|needed| failed.contains(needed)) {
            Some(needed) => Err(format!("not run, because the step `{needed}` failed").into()),
            None => (step.run)(&mut run),
        };
        let seconds = start.elapsed().as_secs_f64();
        let outcome = match result {
            Ok(Verdict::Passed) => "passed".to_owned(),
            Ok(Verdict::NotChecked(why)) => {
                notes.push(format!("!!! NOT CHECKED HERE: {}: {why}", step.name));
                "not checked".to_owned()
            }
            Err(failure) => {
                failed.push(step.name);
                notes.push(format!(
                    "ci: step `{name}` failed; repeat: cargo xtask ci {name}\n{failure}",
                    name = step.name
                ));
                format!("FAILED: {}", failure.to_string().lines().next().unwrap_or_default())
            }
        };
        println!("    {} {outcome}, {seconds:.1} s", step.name);
        rows.push((step.name, seconds, outcome));
    }
    run.results.record(folder)?;
    println!("━━━ {} of {} steps passed", steps.len() - failed.len(), steps.len());
    for note in notes {
        println!("{note}");
    }
    println!("{}", run.results.summary());
    for (name, seconds, outcome) in &rows {
        println!("{seconds:>8.1} s  {name:<14} {outcome}");
    }
    println!("{:>8.1} s  in all", rows.iter().map(|(_, seconds, _)| seconds).sum::<f64>());
    match failed.len() {
        0 if run.results.has_too_many_flaky() => Err("ci: too many flaky tests".into()),
        0 => Ok(()),
        count => Err(format!("ci: {count} of {} steps failed: {}", steps.len(), failed.join(", ")).into()),
    }
}

impl Run {
    /// Builds all binaries and test programs.
    fn build(&mut self) -> Outcome<Verdict> {
        let built = programs::build()?;
        self.programs = Some(built.programs);
        if built.is_complete { Ok(Verdict::Passed) } else { Err("not everything compiles".into()) }
    }

    /// The test programs; those that compile, if some do not.
    fn programs(&mut self) -> Vec<TestProgram> {
        if self.programs.is_none() {
            // The error is that of the step `build`, or of a program that is missing.
            let _ = self.build();
        }
        self.programs.clone().unwrap_or_default()
    }

    /// Builds the binaries, unless the step `build` has.
    fn binaries(&mut self) -> Outcome<()> {
        if self.programs.is_some() { Ok(()) } else { self.build().map(|_| ()) }
    }

    fn unit_tests(&mut self, step: &'static str, environment: Vec<(&'static str, OsString)>) -> Outcome<Verdict> {
        let programs = self.programs();
        if programs.is_empty() {
            return Err("no test program compiles".into());
        }
        let in_scope = |package: &str| self.scope.as_ref().is_none_or(|scope| scope.packages.contains(package));
        let wanted = |program: &&TestProgram| !program.is_end_to_end() && in_scope(&program.package);
        let programs: Vec<_> = programs.iter().filter(wanted).collect();
        self.results.run(&programs, &Setup { step, environment, ..Setup::default() }).map(|()| Verdict::Passed)
    }

    /// Runs the unit tests with another seed for the property tests.
    fn new_cases(&mut self) -> Outcome<Verdict> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).cannot("read the clock")?.as_secs().to_string();
        println!("PROPTEST_RNG_SEED={seed}");
        self.unit_tests("new-cases", vec![("PROPTEST_RNG_SEED", seed.into())])
    }

    /// Runs the tests of tests/`file`.rs, all or those of the scope, against `binary`, or against the development build
    /// if it is `None` and the environment names no other.
    fn end_to_end(&mut self, step: &'static str, file: &str, binary: Option<PathBuf>) -> Outcome<Verdict> {
        let programs = self.programs();
        let target = format!("--test {file}");
        let wanted = |program: &&TestProgram| program.is_end_to_end() && program.target == target;
        let what = format!("run tests/{file}.rs, which does not compile");
        let program = programs.iter().find(wanted).cannot(&what)?;
        let modules = self.scope.iter().flat_map(|scope| &scope.modules);
        let runs_all = file == "e2e" && self.scope.is_none();
        let setup = Setup {
            step,
            beside: if runs_all { LAST_MODULES } else { &[] },
            environment: binary.map(|binary| ("FLATOUT_BIN", binary.into())).into_iter().collect(),
            filters: modules.map(|module| format!("e2e::{module}::")).collect(),
            threads: Some(END_TO_END_THREADS),
            // Each application prints how long it took.
            shows_output: file == "apps",
        };
        self.results.run(&[program], &setup).map(|()| Verdict::Passed)
    }
}

/// Runs the fuzz targets' smoke mode, which needs no nightly compiler.
pub(crate) fn fuzz_smoke() -> Outcome<()> {
    run_steps(&chosen(&["fuzz-smoke".to_owned()])?, Run::default(), &records())
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
    if status.success() { Ok(Verdict::Passed) } else { Err(format!("`{shown}` ended with {status}").into()) }
}

fn cargo(args: &[&str]) -> Outcome<Verdict> {
    must_succeed(shell::cargo().args(args))
}

/// A binary of the development build.
fn binary(name: &str) -> PathBuf {
    let path = shell::target_dir().join("debug").join(name);
    std::path::absolute(&path).unwrap_or(path)
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
    Ok(Verdict::Passed)
}

fn doc() -> Outcome<Verdict> {
    let mut command = shell::cargo();
    command.args(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    must_succeed(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn deny() -> Outcome<Verdict> {
    cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    let mut advisories = shell::cargo();
    advisories.args(["deny", "check", "advisories"]);
    let output = advisories.output().cannot("run cargo-deny")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(Verdict::Passed)
    } else if said.contains("failed to fetch advisory database") {
        Ok(Verdict::NotChecked("advisories could not be fetched; licences, bans and sources held".to_owned()))
    } else {
        Err(format!("`{}` ended with {}\n{said}", shell::shown(&advisories), output.status).into())
    }
}

fn demo(binary: &Path) -> Outcome<Verdict> {
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
    check_demo(&said).map(|()| Verdict::Passed)
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
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    fn a_failed_step_stops_only_those_that_need_it() {
        static RAN: AtomicUsize = AtomicUsize::new(0);
        let step = |name, needs, run| Step { name, what: "", needs, run };
        let works: fn(&mut Run) -> Outcome<Verdict> = |_| {
            RAN.fetch_add(1, Ordering::Relaxed);
            Ok(Verdict::Passed)
        };
        let steps = [
            step("first", None, |_| Err("a reason".into())),
            step("second", None, works),
            step("third", Some("first"), works),
            step("fourth", Some("second"), works),
        ];
        let folder = std::env::temp_dir().join(format!("flatout-xtask-{}-steps", std::process::id()));
        let outcome = run_steps(&steps.each_ref(), Run::default(), &folder);
        let said = outcome.err().map(|failure| failure.to_string()).unwrap_or_default();
        assert_eq!(said, "ci: 2 of 4 steps failed: first, third");
        assert_eq!(RAN.load(Ordering::Relaxed), 2);
        assert!(run_steps(&[&steps[1]], Run::default(), &folder).is_ok());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_step_that_ends_badly_fails() {
        assert!(must_succeed(&mut Command::new("false")).is_err());
        assert!(must_succeed(&mut Command::new("true")).is_ok());
    }
}
