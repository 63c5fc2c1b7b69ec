//! What is done stays done: after an interruption, after a crash, and for the same suite only.

use super::{FLATOUT, Given, Ran, STEP, assert_nothing_runs, processes_of};
use crate::e2e::harness::wait_until;
use std::process::Command;

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

fn signal(child: &std::process::Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn an_interrupted_suite_stops_everything_and_goes_on_where_it_was() {
    let given = Given::of(&[FLATOUT, SLOW]);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let before = given.results().len();
        let child = given.start();
        wait_until("two more results", || given.results().len() >= before + 2);
        signal(&child, name);
        let ran = Ran::of(&child.wait_with_output().unwrap());
        assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
        assert_nothing_runs(&given);
        assert_eq!(given.report()["interrupted"], true);
    }
    let before = times(&given);
    assert!(before.len() >= 4 && before.len() < 6, "{before:?}");
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("is resumed: what is done stays done"), "{}", ran.stderr);
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
    signal(&child, "KILL");
    child.wait().unwrap();
    let server = given.out().canonicalize().unwrap().join("work").join("fixtures").join("site").display().to_string();
    let left = processes_of(&server);
    assert!(!left.is_empty(), "the crash left the server");
    let ran = given.run(&[]);
    assert!(matches!(ran.code, 0 | 5), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(given.results().len(), 6);
    assert_nothing_runs(&given);
}

#[test]
fn another_suite_or_way_to_run_is_refused_with_what_differs() {
    let given = Given::of(&[FLATOUT, STEP]);
    assert!(matches!(given.run(&[]).code, 0 | 5));
    let ran = given.run(&["--quick"]);
    let words = "cannot be resumed: it was begun without --quick, and this is with --quick; run with --fresh";
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
    signal(&child, "INT");
    assert_eq!(Ran::of(&child.wait_with_output().unwrap()).code, 130);
}
