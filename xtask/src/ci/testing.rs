//! Runs test programs, and runs tests that failed again, each alone.
//!
//! Tests start servers, browsers and load generators, and run at the same time on a machine that may have two cores. A
//! test that fails only then, and passes twice alone, is flaky. It has a defect, which may be the product's, but the
//! change under test has probably not caused it. Flaky tests are reported and recorded; a few of them do not fail a run.

use super::libtest::{TestOutcome, TestResult};
use super::programs::{Selection, TestProgram};
use crate::failure::{Context, Outcome};
use crate::shell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often a failed test must pass alone to be flaky instead of broken.
const RUNS_ALONE: usize = 2;

/// More failures than this in a step are not repeated: their cause is not the load of the machine.
const REPEATED_MAX: usize = 8;

/// More flaky tests than this fail a run.
const FLAKY_MAX: usize = 2;

/// Programs that run at the same time. Many wait more than they compute, or have one long test.
const PROGRAMS_AT_ONCE: usize = 2;

/// Lines of a failed test's output in the summary.
const OUTPUT_LINES: usize = 20;

/// Tests that take longer are printed when they end.
const SLOW_SECONDS: f64 = 1.0;

/// How to run the programs of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// The step's name.
    pub(crate) step: &'static str,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// Runs only tests whose names contain one of these texts; all if empty.
    pub(crate) filters: Vec<String>,
    /// The number of tests that run at the same time; libtest's default if `None`.
    pub(crate) threads: Option<usize>,
    /// Tests whose names contain one of these texts run in a process of their own beside the others, on one of the
    /// `threads`.
    pub(crate) beside: &'static [&'static str],
    pub(crate) shows_output: bool,
}

/// The tests that one process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All without a mark.
    All,
    /// All without a mark but those of [`Setup::beside`].
    Others,
    /// Those of [`Setup::beside`] without a mark.
    Beside,
    /// Those with a mark, one at a time.
    Marked,
}

/// A test that failed at least once.
#[derive(Clone, Debug)]
pub(crate) struct FailedTest {
    step: &'static str,
    name: String,
    /// The command that repeats it alone.
    repeat: String,
    output: String,
    /// How often it passed when it was run again.
    passes_alone: usize,
}

/// The results of all tests of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    passed: usize,
    pub(crate) failed: Vec<FailedTest>,
    pub(crate) flaky: Vec<FailedTest>,
    /// Seconds, and the program and the name of each test.
    times: Vec<(f64, String)>,
}

impl Results {
    /// Runs the programs, [`PROGRAMS_AT_ONCE`] at the same time, and then the marked tests of all programs one at a
    /// time. Fails if a test is broken.
    pub(crate) fn run(&mut self, programs: &[&TestProgram], setup: &Setup) -> Outcome<()> {
        let mut failed = Vec::new();
        let mut marked: Vec<&TestProgram> = Vec::new();
        let mut problems = Vec::new();
        for (program, results) in run_programs(programs, setup) {
            match results {
                Ok(results) => {
                    if results.iter().any(|result| result.outcome == TestOutcome::Ignored) && !marked.contains(&program)
                    {
                        marked.push(program);
                    }
                    self.count(program, &results);
                    failed.extend(failures(program, results, false));
                }
                Err(problem) => problems.push(problem.to_string()),
            }
        }
        for program in marked {
            match run_program(program, setup, Part::Marked) {
                Ok(results) => {
                    self.count(program, &results);
                    failed.extend(failures(program, results, true));
                }
                Err(problem) => problems.push(problem.to_string()),
            }
        }
        let repeats = failed.len() <= REPEATED_MAX;
        let mut broken = 0;
        for (program, result, is_marked) in failed {
            let passes_alone = if repeats { run_alone(program, &result.name, setup, is_marked)? } else { 0 };
            let test = FailedTest {
                step: setup.step,
                repeat: program.repeat(&result.name, is_marked, &setup.environment),
                name: result.name,
                output: result.output,
                passes_alone,
            };
            if passes_alone == RUNS_ALONE {
                self.flaky.push(test);
            } else {
                self.failed.push(test);
                broken += 1;
            }
        }
        if !problems.is_empty() {
            return Err(problems.join("\n").into());
        }
        match broken {
            0 => Ok(()),
            1 => Err("a test failed".into()),
            _ => Err(format!("{broken} tests failed").into()),
        }
    }

    fn count(&mut self, program: &TestProgram, results: &[TestResult]) {
        self.passed += results.iter().filter(|result| result.outcome == TestOutcome::Passed).count();
        let label = |name: &str| format!("{}\t{}\t{name}", program.package, program.target);
        self.times.extend(results.iter().map(|result| (result.seconds, label(&result.name))));
    }

    /// Returns whether there are so many flaky tests that the run fails.
    pub(crate) const fn has_too_many_flaky(&self) -> bool {
        self.flaky.len() > FLAKY_MAX
    }

    /// Describes the tests that failed, and counts all of them.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for test in self.flaky.iter().chain(&self.failed) {
            let word = match test.passes_alone {
                0 => "FAILED",
                RUNS_ALONE => "FLAKY",
                _ => "FLAKY AND FAILED ALONE",
            };
            let _ = writeln!(text, "{word} {} (step {}); repeat: {}", test.name, test.step, test.repeat);
            let lines: Vec<_> = test.output.lines().collect();
            for line in &lines[lines.len().saturating_sub(OUTPUT_LINES)..] {
                let _ = writeln!(text, "    {line}");
            }
        }
        let _ = write!(
            text,
            "{} tests passed, {} failed, {} flaky (passed {RUNS_ALONE} times alone; more than {FLAKY_MAX} fail a run)",
            self.passed,
            self.failed.len(),
            self.flaky.len()
        );
        text
    }

    /// Writes the time of each test to `times.tsv`, slowest first, in place of earlier times of the same programs, and
    /// appends the flaky tests to `flaky.tsv`.
    pub(crate) fn record(&self, folder: &Path) -> Outcome<()> {
        let what = format!("write to {}", folder.display());
        fs::create_dir_all(folder).cannot(&what)?;
        let path = folder.join("times.tsv");
        let program_of = |test: &str| test.rsplit_once('\t').map(|(program, _)| program.to_owned());
        let now: BTreeSet<_> = self.times.iter().map(|(_, test)| program_of(test)).collect();
        let earlier = fs::read_to_string(&path).unwrap_or_default();
        let earlier = earlier.lines().filter_map(|line| line.split_once('\t'));
        let earlier = earlier.filter_map(|(seconds, test)| Some((seconds.parse::<f64>().ok()?, test.to_owned())));
        let mut times: Vec<_> = earlier.filter(|(_, test)| !now.contains(&program_of(test))).collect();
        times.extend_from_slice(&self.times);
        times.sort_by(|a, b| b.0.total_cmp(&a.0));
        let lines = times.iter().map(|(seconds, test)| format!("{seconds:.3}\t{test}\n"));
        fs::write(path, lines.collect::<String>()).cannot(&what)?;
        if self.flaky.is_empty() {
            return Ok(());
        }
        let path = folder.join("flaky.tsv");
        let mut lines = fs::read_to_string(&path).unwrap_or_else(|_| "commit\tstep\trepeat\toutput\n".to_owned());
        let commit = shell::output_of(Command::new("git").args(["rev-parse", "--short", "HEAD"])).unwrap_or_default();
        for test in &self.flaky {
            let _ = writeln!(lines, "{}\t{}\t{}\t{:?}", commit.trim(), test.step, test.repeat, test.output);
        }
        fs::write(path, lines).cannot(&what)
    }
}

/// Runs the programs, a few at the same time. Returns the results in the order of the programs.
fn run_programs<'p>(programs: &[&'p TestProgram], setup: &Setup) -> Vec<(&'p TestProgram, Outcome<Vec<TestResult>>)> {
    let parts: &[Part] = if setup.beside.is_empty() { &[Part::All] } else { &[Part::Others, Part::Beside] };
    let runs: Vec<_> = programs.iter().flat_map(|program| parts.iter().map(move |part| (*program, *part))).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..PROGRAMS_AT_ONCE {
            scope.spawn(|| {
                while let Some((index, (program, part))) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    runs.get(index).map(|run| (index, *run))
                } {
                    let results = run_program(program, setup, part);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(index, (program, results));
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

fn run_program(program: &TestProgram, setup: &Setup, part: Part) -> Outcome<Vec<TestResult>> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let (filters, skips, threads, what) = match part {
        Part::All => (setup.filters.clone(), &[][..], setup.threads, ""),
        Part::Others => (Vec::new(), setup.beside, setup.threads.map(|threads| threads - 1), ", most tests"),
        Part::Beside => (owned(setup.beside), &[][..], Some(1), ", the tests beside them"),
        Part::Marked => (setup.filters.clone(), &[][..], Some(1), ", marked tests alone"),
    };
    let selection = Selection {
        filters: &filters,
        skips,
        marked: part == Part::Marked,
        threads,
        shows_output: setup.shows_output,
        ..Selection::default()
    };
    println!("--- {} {}{what}", program.package, program.target);
    let results = program.run(&selection, &setup.environment, &mut |result| show(result, setup.shows_output))?;
    let count = |outcome| results.iter().filter(|result| result.outcome == outcome).count();
    println!(
        "    {} {}: {} passed, {} failed",
        program.package,
        program.target,
        count(TestOutcome::Passed),
        count(TestOutcome::Failed)
    );
    Ok(results)
}

/// Prints the result of a test that failed or was slow, or whose output is wanted.
fn show(result: &TestResult, shows_output: bool) {
    match result.outcome {
        TestOutcome::Failed => {
            println!("test {} ... FAILED after {:.1} s", result.name, result.seconds);
            println!("---- {} stdout ----\n{}", result.name, result.output.trim_end());
        }
        TestOutcome::Passed if result.seconds > SLOW_SECONDS || shows_output => {
            println!("test {} ... ok, {:.1} s", result.name, result.seconds);
            if !result.output.is_empty() {
                println!("{}", result.output.trim_end());
            }
        }
        TestOutcome::Passed | TestOutcome::Ignored => {}
    }
}

/// The failed tests among `results`.
fn failures(
    program: &TestProgram,
    results: Vec<TestResult>,
    marked: bool,
) -> impl Iterator<Item = (&TestProgram, TestResult, bool)> {
    let failed = results.into_iter().filter(|result| result.outcome == TestOutcome::Failed);
    failed.map(move |result| (program, result, marked))
}

/// Runs a test that failed again, alone. Returns how often it passed.
fn run_alone(program: &TestProgram, name: &str, setup: &Setup, marked: bool) -> Outcome<usize> {
    let selection = Selection { only: Some(name), marked, threads: Some(1), ..Selection::default() };
    println!("--- {name} again, {RUNS_ALONE} times alone");
    let mut passed = 0;
    for _ in 0..RUNS_ALONE {
        let results = program.run(&selection, &setup.environment, &mut |result| show(result, false))?;
        // A run that selects no test, or dies after it, is no success.
        let has_passed = matches!(&results[..], [one] if one.name == name && one.outcome == TestOutcome::Passed);
        passed += usize::from(has_passed);
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A folder with a script in place of a test program. The script gets libtest's arguments.
    struct Sample(PathBuf);

    impl Sample {
        fn new(name: &str, script: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("flatout-xtask-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let functions = r#"
                ok() { echo '{ "type": "test", "name": "'$1'", "event": "ok", "exec_time": 0.5 }'; }
                failed() { echo '{ "type": "test", "name": "'$1'", "event": "failed", "stdout": "it was '$2'" }'; }
                started() { echo '{ "type": "test", "event": "started", "name": "'$1'" }'; }
                ignored() { echo '{ "type": "test", "name": "'$1'", "event": "ignored" }'; }
                end() { echo '{ "type": "suite", "event": "ok" }'; }
                alone() { case "$args" in *--exact*) true;; *) false;; esac; }
                marked() { case "$args" in *--ignored*) true;; *) false;; esac; }
                args="$*"
                name=
                for arg in "$@"; do [ "$before" = --exact ] && name=$arg; before=$arg; done
            "#;
            let path = folder.join("program");
            // A program that this process writes cannot be run while another thread starts a process, which inherits the
            // open file for a moment.
            let write = r#"printf '%s\n' '#!/bin/sh' "$1" >"$0" && chmod 755 "$0""#;
            let status =
                Command::new("sh").args(["-c", write]).arg(&path).arg(format!("{functions}\n{script}")).status();
            assert!(status.unwrap().success());
            Self(folder)
        }

        fn run(&self) -> (Outcome<()>, Results) {
            self.run_with(Setup::default())
        }

        fn run_with(&self, setup: Setup) -> (Outcome<()>, Results) {
            let program = TestProgram::script(self.0.join("program"));
            let mut results = Results::default();
            (results.run(&[&program], &Setup { step: "test", ..setup }), results)
        }
    }

    impl Drop for Sample {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Fails at every second call.
    const EVERY_SECOND: &str = r#"
        fickle() { if [ -e "$1" ]; then rm "$1"; ok $1; else touch "$1"; failed $1 first; fi; }
    "#;

    #[test]
    fn a_test_that_fails_alone_too_is_broken() {
        let sample = Sample::new("broken", "ok a; failed b broken; end; exit 101");
        let (outcome, results) = sample.run();
        assert!(outcome.is_err() && results.flaky.is_empty());
        let summary = results.summary();
        for wanted in [
            "FAILED b (step test); repeat: cargo test -p sample --test script -- --exact b\n    it was broken\n",
            "1 tests passed, 1 failed, 0 flaky",
        ] {
            assert!(summary.contains(wanted), "{summary}");
        }
    }

    #[test]
    fn a_test_that_passes_twice_alone_is_flaky_and_three_of_them_fail_the_run() {
        for (tests, is_too_many) in [("a", false), ("a b", false), ("a b c", true)] {
            let script = format!("if alone; then ok $name; else for t in {tests}; do failed $t busy; done; fi; end");
            let (outcome, results) = Sample::new("flaky", &script).run();
            assert!(outcome.is_ok() && results.failed.is_empty());
            assert_eq!(results.flaky.len(), tests.split(' ').count());
            assert_eq!(results.has_too_many_flaky(), is_too_many, "{tests}");
            assert!(results.summary().contains("FLAKY a (step test)"), "{}", results.summary());
        }
    }

    #[test]
    fn a_test_that_fails_every_second_time_is_reported_as_flaky_and_fails_the_run() {
        // It fails, passes alone and fails alone.
        let (outcome, results) = Sample::new("second", &format!("{EVERY_SECOND} fickle a; end")).run();
        assert!(outcome.is_err() && results.failed.len() == 1);
        assert!(results.summary().contains("FLAKY AND FAILED ALONE a (step test)"), "{}", results.summary());
    }

    #[test]
    fn a_run_alone_that_selects_no_test_is_no_success() {
        let (outcome, results) = Sample::new("none", "alone || failed a busy; end").run();
        assert!(outcome.is_err() && results.flaky.is_empty());
    }

    #[test]
    fn many_failures_are_not_repeated() {
        let script = format!("alone && touch repeated; for i in $(seq {}); do failed t$i busy; done; end", 9);
        let sample = Sample::new("many", &script);
        let (outcome, results) = sample.run();
        assert!(outcome.is_err() && results.failed.len() == 9);
        assert!(!sample.0.join("repeated").exists());
    }

    #[test]
    fn a_program_that_dies_fails_the_tests_that_were_running() {
        let sample = Sample::new("dies", "started a; started b; ok a; kill -9 $$");
        let (outcome, results) = sample.run();
        assert!(outcome.is_err());
        assert_eq!(
            results.failed.iter().map(|test| test.name.as_str()).collect::<Vec<_>>(),
            ["b", "(the program itself)"]
        );
        // The tests that had not begun did not run, whether or not this one passes alone.
        let (outcome, results) = Sample::new("dies-once", "alone && { ok b; end; exit; }; started b; kill -9 $$").run();
        assert!(outcome.is_err() && results.flaky.len() == 1 && results.failed.len() == 1);
        // One that dies before it names a test, or after all have passed, fails as well.
        assert!(Sample::new("dies-early", "exit 127").run().0.is_err());
        assert!(Sample::new("dies-late", "ok a; end; kill -9 $$").run().0.is_err());
    }

    #[test]
    fn marked_tests_run_after_the_others() {
        let script = "if marked; then failed slow late; else ok a; ignored slow; fi; end";
        let (outcome, results) = Sample::new("marked", script).run();
        assert!(outcome.is_err());
        assert!(results.summary().contains("-- --ignored --exact slow"), "{}", results.summary());
        // Without marked tests, the program runs once.
        let sample = Sample::new("unmarked", "marked && touch twice; ok a; end");
        assert!(sample.run().0.is_ok() && !sample.0.join("twice").exists());
    }

    #[test]
    fn tests_that_run_beside_the_others_run_once() {
        // In the place of libtest, the script runs the tests that its arguments select.
        let script = r#"
            case "$args" in
                *--ignored*) ok marked;;
                *"--skip m::late --skip m::last --test-threads 3") ok early; ignored marked;;
                *"m::late m::last --test-threads 1") failed m::late busy; ignored marked;;
                *--exact*) alone && ok $name;;
            esac
            end
        "#;
        let setup = Setup { threads: Some(4), beside: &["m::late", "m::last"], ..Setup::default() };
        let (outcome, results) = Sample::new("beside", script).run_with(setup);
        assert!(outcome.is_ok(), "{}", results.summary());
        assert_eq!((results.passed, results.flaky.len()), (2, 1), "{}", results.summary());
        assert!(results.summary().contains("FLAKY m::late"), "{}", results.summary());
    }

    #[test]
    fn times_and_flaky_tests_are_recorded() {
        let sample = Sample::new("recorded", "alone && { ok a; end; exit; }; ok quick; failed a busy; end");
        let (_, results) = sample.run();
        results.record(&sample.0).unwrap();
        results.record(&sample.0).unwrap();
        let read = || fs::read_to_string(sample.0.join("times.tsv")).unwrap();
        assert_eq!(read(), "0.500\tsample\t--test script\tquick\n0.000\tsample\t--test script\ta\n");
        // Times of other programs stay.
        let other = Results { times: vec![(0.25, "sample\t--lib\tb".to_owned())], ..Results::default() };
        other.record(&sample.0).unwrap();
        assert!(read().contains("quick") && read().contains("0.250\tsample\t--lib\tb\n"), "{}", read());
        let flaky = fs::read_to_string(sample.0.join("flaky.tsv")).unwrap();
        assert_eq!(
            flaky.matches("\ttest\tcargo test -p sample --test script -- --exact a\t\"it was busy\"\n").count(),
            2
        );
    }
}
