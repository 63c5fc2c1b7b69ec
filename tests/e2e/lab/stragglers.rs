//! Responses after the measured period are counted and reported separately, and affect no rate.

use super::bench;
use super::responder::{Answer, ok, respond};
use flatout_os::clock::precise_ns;
use std::sync::{Arc, Mutex};

/// A responder that delays one of many requests, and its log of when each response left.
fn with_straggler(late_ns: u64) -> (String, Arc<Mutex<Vec<u64>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&log);
    let address = respond(move |target, arrived_ns| {
        let mut log = kept.lock().unwrap();
        let due_ns = if target == "/" && log.len() == 100 { arrived_ns + late_ns } else { arrived_ns };
        log.push(due_ns);
        Answer::At(due_ns, ok(64))
    });
    (format!("http://{address}/"), log)
}

#[test]
fn one_late_response_does_not_change_the_rate() {
    let (url, log) = with_straggler(8_000_000_000);
    let begun_ns = precise_ns();
    let load = ["--rate", "500", "-d", "2s", "-c", "64", "--timeout", "20s"];
    let run = bench(&[&[url.as_str()], &load[..], &["--require", "rate>=250"]].concat());
    let (log, step) = (log.lock().unwrap(), run.step());
    // By the responder's log, all but one response left within the period, and that one six seconds later.
    let late = log.iter().filter(|left_ns| **left_ns > begun_ns + 7_000_000_000).count();
    assert_eq!((log.len(), late), (1_000, 1));
    let requests = &step["requests"];
    let count = |name: &str| requests[name].as_u64().unwrap();
    assert_eq!((count("offered"), count("begun"), count("failed")), (1_000, 1_000, 0), "{requests}");
    assert_eq!(count("in_time") + count("late"), 1_000, "{requests}");
    // On a busy machine, other responses may be late too. If the rate included the straggler's wait, it would be 125/s.
    assert!((1..=500).contains(&count("late")), "{requests}");
    assert!(count("drain_ns") > 4_000_000_000, "{requests}");
    let rate = step["responses_per_s"].as_f64().unwrap();
    assert!((rate - count("in_time") as f64 / 2.0).abs() < 1e-6 && rate >= 250.0, "{rate}");
    assert_eq!(run.json["thresholds"][0]["met"], true, "{}", run.stdout);
    assert!(run.stdout.contains("after the measurement interval, the last one "), "{}", run.stdout);
}

#[test]
fn one_late_response_does_not_change_the_rate_of_a_run_by_number() {
    let (url, log) = with_straggler(3_000_000_000);
    let run = bench(&[&url, "-n", "2000", "-c", "8", "--threads", "2", "--timeout", "20s"]);
    let step = run.step();
    assert_eq!((log.lock().unwrap().len(), run.number("responses")), (2_000, 2_000));
    let requests = &step["requests"];
    let (in_time, late) = (requests["in_time"].as_u64().unwrap(), requests["late"].as_u64().unwrap());
    // At most the requests that were in progress when the last one was sent.
    assert!(in_time + late == 2_000 && (1..=8).contains(&late), "{requests}");
    let elapsed_s = step["elapsed_ns"].as_u64().unwrap() as f64 / 1e9;
    let rate = step["responses_per_s"].as_f64().unwrap();
    assert!((rate - in_time as f64 / elapsed_s).abs() < 1e-3, "{rate}");
}

#[test]
fn unanswered_requests_rank_slower_than_answered_ones() {
    let address = respond(|_, arrived_ns| if arrived_ns % 5 == 0 { Answer::Never } else { Answer::At(0, ok(8)) });
    let url = format!("http://{address}/");
    let load = ["-n", "200", "-c", "50", "--timeout", "500ms"];
    let run = bench(&[&[url.as_str()], &load[..], &["--require", "p99<10s", "--require", "errors<=200"]].concat());
    let outcome = &run.json["thresholds"][0];
    assert_eq!(outcome["met"], false, "{outcome}");
    assert!(outcome["found"].as_str().unwrap().contains("never got a response"), "{outcome}");
    // Failures that a requirement allows are noted, and the run is not reported as failed.
    let is_busy = run.exit == Some(5) && run.code == Some(0);
    assert!((run.exit == Some(4) || is_busy) && !run.stdout.contains("FAILED"), "{}", run.stdout);
}
