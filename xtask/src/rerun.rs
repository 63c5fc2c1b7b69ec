//! Runs a test program, and runs the few tests that failed once more, each alone.
//!
//! End-to-end tests start servers, browsers and load generators on a machine that may have two cores, and run next to
//! each other. A test that fails only then has usually waited for a busy core. Such a test has a fault, but it says
//! nothing about the change that is being checked. It is therefore reported as unstable, in the last lines of the
//! output, and the step holds only if the test passes every time when it is run alone.

use crate::failure::{Context, Failure, Outcome};
use crate::shell;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitStatus, Stdio};

/// More failures than this are not repeated.
const UNSTABLE_MAX: usize = 3;

/// How often a failed test must pass alone.
const RUNS_ALONE: usize = 3;

/// Runs the tests that `command(arguments)` starts, and returns the names of those that are unstable. `arguments` are
/// for the test programs.
pub(crate) fn test(command: &dyn Fn(&[&str]) -> Command) -> Outcome<Vec<String>> {
    let ran = run(&mut command(&[]))?;
    if ran.status.success() {
        return Ok(Vec::new());
    }
    let shown = shell::shown(&command(&[]));
    let failure = |why: &str| Failure::from(format!("`{shown}` ended with {}{why}", ran.status));
    if ran.failed.is_empty() {
        return Err(failure(" before a test failed"));
    }
    if ran.failed.len() > UNSTABLE_MAX {
        return Err(failure(&format!("; these tests failed:\n    {}", ran.failed.join("\n    "))));
    }
    for name in &ran.failed {
        println!("━━━ {name} failed next to other tests; {RUNS_ALONE} runs alone");
        for _ in 0..RUNS_ALONE {
            let alone = run(&mut command(&["--exact", name, "--test-threads", "1"]))?;
            if !alone.status.success() || alone.passed == 0 {
                return Err(failure(&format!("; {name} did not pass alone")));
            }
        }
    }
    Ok(ran.failed)
}

/// What libtest reported.
struct Ran {
    status: ExitStatus,
    passed: usize,
    /// Names of tests that failed.
    failed: Vec<String>,
}

/// Runs tests and passes their output on.
fn run(command: &mut Command) -> Outcome<Ran> {
    let shown = shell::shown(command);
    let mut child = command.stdout(Stdio::piped()).spawn().cannot(&format!("run `{shown}`"))?;
    let (mut passed, mut failed) = (0, Vec::new());
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.cannot(&format!("read what `{shown}` printed"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            match line.strip_prefix("test ").and_then(|line| line.rsplit_once(" ... ")) {
                Some((_, "ok")) => passed += 1,
                Some((name, "FAILED")) => failed.push(name.to_owned()),
                _ => {}
            }
        }
    }
    Ok(Ran { status: child.wait().cannot(&format!("wait for `{shown}`"))?, passed, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script in place of a test program: `first` is run unless a test is named, then `alone`.
    fn tested(first: &str, alone: &str) -> Outcome<Vec<String>> {
        test(&|arguments| {
            let mut command = Command::new("sh");
            command.args(["-c", if arguments.contains(&"--exact") { alone } else { first }]);
            command
        })
    }

    const ONE_FAILS: &str = "echo 'test a::b ... ok'; echo 'test c::d ... FAILED'; exit 101";

    #[test]
    fn a_test_that_passes_alone_is_unstable_and_one_that_does_not_fails() {
        assert_eq!(tested("echo 'test a::b ... ok'", "exit 1").ok(), Some(vec![]));
        assert_eq!(tested(ONE_FAILS, "echo 'test c::d ... ok'").ok(), Some(vec!["c::d".to_owned()]));
        // The second one runs no test.
        for alone in ["echo 'test c::d ... FAILED'; exit 101", "true"] {
            let said = tested(ONE_FAILS, alone).err().map(|failure| failure.to_string()).unwrap_or_default();
            assert!(said.contains("c::d did not pass alone"), "{said}");
        }
    }

    #[test]
    fn a_program_that_breaks_and_many_failures_fail_at_once() {
        // It did not compile, or was killed before it named a test.
        let alone = "echo 'test c::d ... ok'";
        assert!(tested("exit 101", alone).is_err());
        assert!(tested("echo 'test a::b ... ok'; kill -9 $$", alone).is_err());
        let many = "for i in 1 2 3 4; do echo \"test t$i ... FAILED\"; done; exit 101";
        assert!(tested(many, alone).is_err());
    }
}
