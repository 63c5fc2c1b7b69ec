//! What is done stays done: after an interruption, after a crash, and for the same suite only.

use super::{FLATOUT, Given, Ran, STEP, assert_nothing_runs, kill_both, processes_of, signal, worker_of};
use crate::e2e::harness::wait_until;

const SLOW: &str = r#"step "slow" { servers "flatout"; path "/"; bench "-c" 1 "-d" "700ms"; repetitions 6 }"#;

/// When results were written, so that a second writing is seen.
fn times(given: &Given) -> Vec<(String, std::time::SystemTime)> {
    let path = |name: &String| given.out().join("steps/slow").join(name);
    given
        .results()
        .into_iter()
        .map(|name| (name.clone(), path(&name).metadata().unwrap().modified().unwrap()))
        .collect()
}

#[test]
fn an_interrupted_suite_stops_everything_and_goes_on_where_it_was() {
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
    assert!(before.len() >= 4 && before.len() < 6, "{before:?}");
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("is resumed: existing results are not measured again"), "{}", ran.stderr);
    let after = times(&given);
    assert_eq!((after.len(), &after[..before.len()]), (6, &before[..]), "nothing was measured twice");
    let report = given.report();
    assert_eq!(
        (report["steps"][0]["cells"][0]["runs"].as_array().unwrap().len(), &report["interrupted"]),
        (6, &false.into())
    );
}

#[test]
fn servers_that_a_crash_left_behind_are_ended_by_the_next_run() {
    let given = Given::of(&[FLATOUT, SLOW]);
    let mut child = given.start();
    wait_until("a result", || !given.results().is_empty());
    kill_both(&mut child);
    let server = given.out().canonicalize().unwrap().join("work").join("fixtures").join("site").display().to_string();
    let left = processes_of(&server);
    assert!(!left.is_empty(), "the crash left the server");
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(given.results().len(), 6);
    assert_nothing_runs(&given);
}

/// `strays`, a server that leaves a process in a session of its own: nobody's descendant when its parent ends.
const STRAYS: &str = r#"server "strays" {
        program "sh"; env "PORT" "{port}"; ready "/" timeout=20
        start "-c" "setsid sh -c 'sleep 7655; :' $0 & exec python3 -m http.server $PORT --bind 127.0.0.1" "{dir}"
    }
    step "long" { servers "strays"; path "/"; bench "-c" 1 "-d" "60s"; repetitions 1 }"#;

#[test]
fn a_suite_that_is_killed_leaves_no_process() {
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
        assert!(ran.stderr.contains("everything that it had started is stopped"), "{}", ran.stderr);
        assert_nothing_runs(&given);
    }
}

#[test]
fn a_keeper_that_is_killed_has_its_suite_end_in_order() {
    let given = Given::of(&[STRAYS]);
    let mut child = given.start();
    let worker = worker_of(child.id());
    let folder = format!("{}/", given.folder.path().display());
    wait_until("the bench", || processes_of(&folder).iter().any(|pid| is_bench(*pid)));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of the suite and all that it had started", || {
        processes_of(&folder).is_empty() && !std::path::Path::new(&format!("/proc/{worker}/ns")).exists()
    });
    assert_eq!(given.report()["interrupted"], true, "it wrote what it had");
}

fn is_bench(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains("\0bench\0")
}

#[test]
fn another_suite_or_way_to_run_is_refused_with_what_differs() {
    let given = Given::of(&[FLATOUT, STEP]);
    assert!(matches!(given.run(&[]).code, 0 | 5));
    let ran = given.run(&["--quick"]);
    let words = "cannot be resumed: it was started without --quick, and this is with --quick; run with --fresh";
    assert_eq!((ran.code, ran.stderr.contains(words)), (1, true), "{}", ran.stderr);
    given.write(&[FLATOUT, "// changed", STEP]);
    let ran = given.run(&[]);
    assert_eq!(
        (ran.code, ran.stderr.contains("the suite's file has changed, first in line 1")),
        (1, true),
        "{}",
        ran.stderr
    );
    assert_eq!(given.results().len(), 2, "what was there stays");
    let ran = given.run(&["--fresh"]);
    assert!(matches!(ran.code, 0 | 5), "{}", ran.stderr);
    assert_eq!(given.results().len(), 2);
}

#[test]
fn a_result_that_cannot_be_read_is_measured_again() {
    let given = Given::of(&[FLATOUT, STEP]);
    assert!(matches!(given.run(&[]).code, 0 | 5));
    let broken = given.out().join("steps/hits/flatout-1.json");
    std::fs::write(&broken, b"{ half").unwrap();
    assert!(matches!(given.run(&[]).code, 0 | 5));
    assert!(std::fs::metadata(&broken).unwrap().len() > 100);
    assert_eq!(given.report()["steps"][0]["cells"][0]["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn two_runs_into_one_folder_do_not_meet() {
    let given = Given::of(&[FLATOUT, SLOW]);
    let child = given.start();
    wait_until("a result", || !given.results().is_empty());
    let ran = given.run(&[]);
    assert_eq!((ran.code, ran.stderr.contains("another process is running a suite into")), (1, true), "{}", ran.stderr);
    signal(child.id(), "INT");
    assert_eq!(Ran::of(&child.wait_with_output().unwrap()).code, 130);
}
