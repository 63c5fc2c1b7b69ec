//! A load generator that something stops during the run measures the stop and not the server, and says so.

use super::agents::Running;
use super::reasons_of;
use super::responder::{Answer, ok, respond};
use crate::e2e::harness::{Folder, flatout, wait_until};
use flatout_os::clock::precise_ns;
use flatout_os::procfs::ProcessStat;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of the stop, in nanoseconds.
const STOP_NS: u64 = 800_000_000;

/// The exit code, the output and the result of a bench that is stopped for [`STOP_NS`] when it measures. Responses take
/// 50 ms.
fn bench_stopped(arguments: &[&str]) -> (Option<i32>, String, Value) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let address = respond(move |_, arrived_ns| {
        counted.fetch_add(1, Ordering::Relaxed);
        Answer::At(arrived_ns + 50_000_000, ok(64))
    });
    let folder = Folder::new();
    let place = |name: &str| folder.path().join(name);
    let mut command = flatout();
    command.arg("bench").arg(format!("http://{address}/")).args(arguments).arg("--json").arg(place("run.json"));
    command.stdin(Stdio::null()).stdout(File::create(place("out")).unwrap()).stderr(Stdio::null());
    let mut bench = Running(command.spawn().unwrap());
    wait_until("requests arrive", || count.load(Ordering::Relaxed) > 2);
    let pid = bench.0.id();
    let send = |signal| kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
    send(Signal::STOP);
    wait_until("the process stops", || ProcessStat::read(pid).unwrap().state == 'T');
    let stopped_ns = precise_ns();
    wait_until("the process has been stopped for long enough", || precise_ns() > stopped_ns + STOP_NS);
    send(Signal::CONT);
    let code = bench.0.wait().unwrap().code();
    let json = serde_json::from_str(&fs::read_to_string(place("run.json")).unwrap()).unwrap();
    (code, fs::read_to_string(place("out")).unwrap(), json)
}

/// Checks that the level names the stop and its length, and that these figures are not valid because of it.
fn check(step: &Value, figures: &[&str]) {
    assert!(reasons_of(step).contains(&"client-stopped"), "{}", step["invalid"]);
    let stopped_ns = step["client"]["stopped_ns"].as_u64().unwrap();
    assert!(stopped_ns > STOP_NS - 50_000_000, "{stopped_ns}");
    for figure in figures {
        let verdicts = step["figures"].as_array().unwrap();
        let verdict = verdicts.iter().find(|verdict| verdict["figure"] == *figure).unwrap();
        let reasons = verdict["reasons"].as_array().unwrap();
        assert!(verdict["soundness"] != "sound" && reasons.contains(&"client-stopped".into()), "{verdict}");
    }
}

#[test]
fn a_stopped_client_does_not_blame_the_server() {
    let load = ["-c", "2", "-d", "4s", "--require", "p99<400ms"];
    let (code, text, json) = bench_stopped(&load);
    assert_eq!(code, Some(5), "{text}");
    check(&json["steps"][0], &["rate", "p50", "p99"]);
    assert!(text.contains("  client-stopped: ") && text.contains("the load generator did not run for "), "{text}");
    assert!(text.contains("UNCERTAIN: p99<400ms") && !text.contains("figures are reliable"), "{text}");
}

#[test]
fn a_stop_shows_with_few_requests_too() {
    let (_, text, json) = bench_stopped(&["--rate", "8", "-d", "4s"]);
    check(&json["steps"][0], &["p50", "p99"]);
    assert!(!text.contains("figures are reliable"), "{text}");
}

#[test]
fn a_stop_in_the_warm_up_affects_no_figure() {
    let (_, text, json) = bench_stopped(&["-c", "2", "--warm-up", "8s", "-d", "1s"]);
    // The host of a virtual machine may also stop the process for some time.
    let stopped_ns = json["steps"][0]["client"]["stopped_ns"].as_u64().unwrap();
    assert!(stopped_ns < STOP_NS / 2, "{text}");
}
