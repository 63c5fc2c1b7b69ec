//! The test programs of the workspace: building them, and the command that repeats one test.

use super::libtest::{Events, Line, TestOutcome, TestResult};
use crate::failure::{Context, Outcome};
use crate::shell;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A program that prints nothing for this long hangs. No test of the repository takes a third of it.
const HANG_TIMEOUT: Duration = Duration::from_mins(10);

/// Stands for a test program itself in the place of a test's name.
const ITSELF: &str = "(the program itself)";

/// An executable with the unit tests of a library or a binary, or with the tests of a file in `tests`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The package's name.
    pub(crate) package: String,
    /// The option of `cargo test` that selects the program in its package: `--lib`, `--test NAME` or `--bin NAME`.
    pub(crate) target: String,
    executable: PathBuf,
    /// The package's folder, in which cargo runs its tests.
    folder: PathBuf,
}

/// Which tests of a program to run, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection<'a> {
    /// One test by its name; all if `None`.
    pub(crate) only: Option<&'a str>,
    /// The tests whose names contain one of these texts; all if empty.
    pub(crate) filters: &'a [String],
    /// Not the tests whose names contain one of these texts.
    pub(crate) skips: &'a [&'a str],
    /// Runs the tests that have the mark `#[ignore]`, and no others.
    pub(crate) marked: bool,
    /// The number of tests that run at the same time; libtest's default if `None`.
    pub(crate) threads: Option<usize>,
    /// Also passes on what successful tests print.
    pub(crate) shows_output: bool,
}

/// What `cargo build` has built.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) programs: Vec<TestProgram>,
    /// True if everything compiles.
    pub(crate) is_complete: bool,
}

/// Builds all test programs and binaries of the workspace. What does not compile does not keep the rest from being
/// built.
pub(crate) fn build() -> Outcome<Built> {
    let mut command = shell::cargo();
    // Always of the whole workspace: a part of it could need other features of dependencies, and so another build.
    command.args(["build", "--workspace", "--tests", "--bins", "--keep-going"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    let shown = shell::shown(&command);
    let mut child = command.stdout(Stdio::piped()).spawn().cannot(&format!("run `{shown}`"))?;
    let mut messages = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut messages).cannot(&format!("read what `{shown}` printed"))?;
    }
    let status = child.wait().cannot(&format!("wait for `{shown}`"))?;
    let mut programs: Vec<_> = messages.lines().filter_map(parse_artifact).collect();
    // Cargo reports programs in the order in which they are finished.
    programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(Built { programs, is_complete: status.success() })
}

/// Reads a message of `cargo build` about a test program.
fn parse_artifact(line: &str) -> Option<TestProgram> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let name = message["target"]["name"].as_str()?;
    let target = match message["target"]["kind"][0].as_str()? {
        "test" => format!("--test {name}"),
        "bin" => format!("--bin {name}"),
        _ => "--lib".to_owned(),
    };
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    // `path+file:///flatout/crates/http#flatout-http@0.1.0`, or without the name if the folder has the same.
    let (path, version) = message["package_id"].as_str()?.split_once('#')?;
    let package = version.split_once('@').map_or_else(|| path.rsplit('/').next(), |(name, _)| Some(name))?;
    Some(TestProgram {
        package: package.to_owned(),
        target,
        executable: message["executable"].as_str()?.into(),
        folder: folder.to_owned(),
    })
}

impl TestProgram {
    #[cfg(test)]
    pub(crate) fn script(executable: PathBuf) -> Self {
        let folder = executable.parent().map(Path::to_owned).unwrap_or_default();
        Self { package: "sample".to_owned(), target: "--test script".to_owned(), executable, folder }
    }

    /// Returns true for the programs that test the binary from outside.
    pub(crate) fn is_end_to_end(&self) -> bool {
        self.package == "flatout" && self.target.starts_with("--test")
    }

    /// The command that repeats one test alone, or the whole program if the test is [`ITSELF`].
    pub(crate) fn repeat(&self, test: &str, marked: bool, environment: &[(&str, OsString)]) -> String {
        let variables: String =
            environment.iter().map(|(name, value)| format!("{name}={} ", value.display())).collect();
        let mark = if marked { " --ignored" } else { "" };
        let name = if test == ITSELF { String::new() } else { format!(" --exact {test}") };
        format!("{variables}cargo test -p {} {} --{mark}{name}", self.package, self.target)
    }

    /// Runs the selected tests and passes each result to `report` as soon as it is known. Returns the results. A test
    /// during which the program dies or hangs fails.
    pub(crate) fn run(
        &self,
        selection: &Selection<'_>,
        environment: &[(&str, OsString)],
        report: &mut dyn FnMut(&TestResult),
    ) -> Outcome<Vec<TestResult>> {
        let mut child = self.start(selection, environment)?;
        let mut events = Events::default();
        let mut results = Vec::new();
        let lines = child.stdout.take().map(lines_of);
        let is_hanging = lines.is_some_and(|lines| {
            loop {
                let line = match lines.recv_timeout(HANG_TIMEOUT) {
                    Ok(line) => line,
                    Err(RecvTimeoutError::Timeout) => return true,
                    Err(RecvTimeoutError::Disconnected) => return false,
                };
                match events.read(&line) {
                    // A server that a test has left behind may keep the output open.
                    Line::Progress if events.is_complete() => return false,
                    Line::Progress => {}
                    Line::Text => println!("{line}"),
                    Line::Ended(result) => {
                        report(&result);
                        results.push(result);
                    }
                }
            }
        });
        if is_hanging {
            // It leads a process group, to which the servers that its tests started belong.
            let group = format!("-{}", child.id());
            shell::output_of(Command::new("kill").args(["-KILL", "--", &group]))?;
        }
        let status = child.wait().cannot(&format!("wait for {}", self.executable.display()))?;
        let has_failed = |results: &[TestResult]| results.iter().any(|result| result.outcome == TestOutcome::Failed);
        if !events.is_complete() || (!status.success() && !has_failed(&results)) {
            let why = if is_hanging { format!("no test ended in {HANG_TIMEOUT:?}") } else { status.to_string() };
            let mut failed: Vec<_> = events.unfinished().map(str::to_owned).collect();
            // Tests that had not begun did not run. The run therefore fails even if the others pass alone.
            failed.push(ITSELF.to_owned());
            for name in failed {
                let output = format!("the test program ended during this test: {why}");
                let result = TestResult { name, outcome: TestOutcome::Failed, seconds: 0.0, output };
                report(&result);
                results.push(result);
            }
        }
        Ok(results)
    }

    fn start(&self, selection: &Selection<'_>, environment: &[(&str, OsString)]) -> Outcome<Child> {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            // libtest writes events and times only where unstable options are allowed.
            .env("RUSTC_BOOTSTRAP", "1")
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(["-Z", "unstable-options", "--format", "json", "--report-time"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0);
        if let Some(name) = selection.only {
            command.args(["--exact", name]);
        }
        command.args(selection.filters);
        command.args(selection.skips.iter().flat_map(|text| ["--skip", text]));
        if selection.marked {
            command.arg("--ignored");
        }
        if let Some(threads) = selection.threads {
            command.args(["--test-threads", &threads.to_string()]);
        }
        if selection.shows_output {
            command.arg("--show-output");
        }
        command.spawn().cannot(&format!("run {}", self.executable.display()))
    }
}

/// Reads lines in a thread, so that the reader can wait for a limited time.
fn lines_of(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_read_from_the_messages_of_cargo() {
        let line = |reason: &str, kind: &str, id: &str, test: bool| {
            format!(
                r#"{{"reason":"{reason}","package_id":"{id}","manifest_path":"/w/crates/http/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"n"}},"profile":{{"test":{test}}},"executable":"/t/n-1"}}"#
            )
        };
        let named = "path+file:///w/crates/http#flatout-http@0.1.0";
        for (kind, target) in [("lib", "--lib"), ("test", "--test n"), ("bin", "--bin n"), ("proc-macro", "--lib")] {
            let program = parse_artifact(&line("compiler-artifact", kind, named, true)).unwrap();
            assert_eq!((program.package.as_str(), program.target.as_str()), ("flatout-http", target));
            assert_eq!(program.folder, Path::new("/w/crates/http"));
        }
        let unnamed = parse_artifact(&line("compiler-artifact", "bin", "path+file:///w/xtask#0.1.0", true)).unwrap();
        assert_eq!(unnamed.package, "xtask");
        assert_eq!(unnamed.repeat("a::b", false, &[]), "cargo test -p xtask --bin n -- --exact a::b");
        let environment = [("FLATOUT_BIN", "/t/flatout".into())];
        let expected = "FLATOUT_BIN=/t/flatout cargo test -p xtask --bin n -- --ignored --exact a::b";
        assert_eq!(unnamed.repeat("a::b", true, &environment), expected);
        assert_eq!(unnamed.repeat(ITSELF, false, &[]), "cargo test -p xtask --bin n --");
        assert_eq!(parse_artifact(&line("compiler-artifact", "bin", named, false)), None);
        assert_eq!(parse_artifact(&line("build-script-executed", "bin", named, true)), None);
        assert_eq!(parse_artifact("warning: text"), None);
    }
}
