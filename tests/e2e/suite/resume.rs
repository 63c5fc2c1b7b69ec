//! Completed measurements are kept: after an interruption, after a crash, and only for the same suite.

use super::{FLATOUT, Given, Ran, STEP, assert_nothing_runs, kill_both, processes_of, signal, worker_of};
use crate::e2e::harness::wait_until;

const SLOW: &str = r#"step "slow" { servers "flatout"; path "/"; bench "-c" 1 "-d" "700ms"; repetitions 10 }"#;

/// Modification times of the results, which show whether a result was written again.
fn times(given: &Given) -> Vec<(String, std::time::SystemTime)> {
    let path = |name: &String| given.out().join("steps/slow").join(name);
    given
        .results()
        .into_iter()
        .map(|name| (name.clone(), path(&name).metadata().unwrap().modified().unwrap()))
        .collect()
}

#[test]
fn an_interrupted_suite_stops_everything_and_can_be_resumed() {
    let given = Given::of(&[FLATOUT, SLOW]);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let before = given.results().len();
        let child = given.start();
        wait_until("two more results", || given.results().len() >= before + 2);
        signal(child.id(), name);
        let ran = Ran::of(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
        assert_nothing_runs(&given);
        assert_eq!(given.report()["interrupted"], true);
    }
    let before = times(&given);
    assert!(before.len() >= 4 && before.len() < 10, "{before:?}");
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("existing results are not measured again"), "{}", ran.stderr);
    let after = times(&given);
    assert_eq!((after.len(), &after[..before.len()]), (10, &before[..]), "nothing was measured twice");
    let report = given.report();
    assert_eq!(
        (report["steps"][0]["cells"][0]["runs"].as_array().unwrap().len(), &report["interrupted"]),
        (10, &false.into())
    );
}

#[test]
fn servers_left_behind_by_a_crash_are_stopped_by_the_next_run() {
    let given = Given::of(&[FLATOUT, SLOW]);
    let mut child = given.start();
    wait_until("a result", || !given.results().is_empty());
    kill_both(&mut child);
    let server = given.out().canonicalize().unwrap().join("work").join("fixtures").join("site").display().to_string();
    let left = processes_of(&server);
    assert!(!left.is_empty(), "the server is still running after the crash");
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(given.results().len(), 10);
    assert_nothing_runs(&given);
}

/// `strays`, a server that leaves a process in its own session, which has no ancestor left when its parent exits.
const STRAYS: &str = r#"server "strays" {
        program "sh"; env "PORT" "{port}"; ready "/" timeout=20
        start "-c" "setsid sh -c 'sleep 7655; :' $0 & exec python3 -m http.server $PORT --bind 127.0.0.1" "{dir}"
    }
    step "long" { servers "strays"; path "/"; bench "-c" 1 "-d" "60s"; repetitions 1 }"#;

#[test]
fn a_killed_suite_leaves_no_processes() {
    let given = Given::of(&[STRAYS]);
    for name in ["KILL", "ABRT"] {
        let child = given.start();
        let worker = worker_of(child.id());
        let folder = format!("{}/", given.folder.path().display());
        let bench = || processes_of(&folder).iter().any(|pid| is_bench(*pid));
        wait_until("the bench", bench);
        signal(worker, name);
        let ran = Ran::of(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, if name == "KILL" { 137 } else { 134 }, "{}", ran.stderr);
        assert!(ran.stderr.contains("all processes that it had started were stopped"), "{}", ran.stderr);
        assert_nothing_runs(&given);
    }
}

#[test]
fn a_suite_ends_cleanly_when_its_keeper_is_killed() {
    let given = Given::of(&[STRAYS]);
    let mut child = given.start();
    let worker = worker_of(child.id());
    let folder = format!("{}/", given.folder.path().display());
    wait_until("the bench", || processes_of(&folder).iter().any(|pid| is_bench(*pid)));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of the suite and all its processes", || {
        processes_of(&folder).is_empty() && !std::path::Path::new(&format!("/proc/{worker}/ns")).exists()
    });
    assert_eq!(given.report()["interrupted"], true, "it wrote the results so far");
}

fn is_bench(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("\0bench\0")
}

#[test]
fn resuming_with_another_suite_or_other_options_is_refused() {
    let given = Given::of(&[FLATOUT, STEP]);
    assert!(matches!(given.run(&[]).code, 0 | 5));
    let ran = given.run(&["--quick"]);
    let words = "cannot be resumed: it was started without --quick, but this is with --quick; run with --fresh";
    assert_eq!((ran.code, ran.stderr.contains(words)), (1, true), "{}", ran.stderr);
    given.write(&[FLATOUT, "// changed", STEP]);
    let ran = given.run(&[]);
    assert_eq!(
        (ran.code, ran.stderr.contains("the suite's file has changed; the first change is on line 1")),
        (1, true),
        "{}",
        ran.stderr
    );
    assert_eq!(given.results().len(), 2, "existing results stay");
    let ran = given.run(&["--fresh"]);
    assert!(matches!(ran.code, 0 | 5), "{}", ran.stderr);
    assert_eq!(given.results().len(), 2);
}

#[test]
fn an_unreadable_result_is_measured_again() {
    let given = Given::of(&[FLATOUT, STEP]);
    assert!(matches!(given.run(&[]).code, 0 | 5));
    let broken = given.out().join("steps/hits/flatout-1.json");
    std::fs::write(&broken, b"{ half").unwrap();
    assert!(matches!(given.run(&[]).code, 0 | 5));
    assert!(std::fs::metadata(&broken).unwrap().len() > 100);
    assert_eq!(given.report()["steps"][0]["cells"][0]["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn two_runs_cannot_use_one_folder() {
    let given = Given::of(&[FLATOUT, SLOW]);
    let child = given.start();
    wait_until("a result", || !given.results().is_empty());
    let ran = given.run(&[]);
    assert_eq!((ran.code, ran.stderr.contains("another process is running a suite in")), (1, true), "{}", ran.stderr);
    signal(child.id(), "INT");
    assert_eq!(Ran::of(&child.wait_with_output().unwrap()).code, 130);
}
