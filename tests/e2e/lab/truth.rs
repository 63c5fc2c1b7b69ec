//! The truth test: what the lab reports of a server whose schedule is known.
//!
//! The server notes when each answer left it. In an open loop of fixed arrivals request N was due N gaps after the run's
//! start; so what the lab should have reported follows from the server's own notes. The lab's percentiles must be these
//! to within 1 %, or 50 µs. Both sides run before all other work on the machine, where the user may ask for that, so
//! that the tests beside this one are not measured with it. What the machine itself takes from both (a hypervisor's other
//! guests) a witness measures at the same time. Where no run is true by that measure, each percentile may be wrong by what
//! the witness was late at the same percentile besides; how often the strict measure held is told.

use super::responder::{Answer, ok, put_before_others, respond_before_others};
use super::{Bench, before_others, before_others_alone, bench_by};
use crate::e2e::harness::Folder;
use flatout_net::clock::precise_ns;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Runs in which nothing disturbs the machine are waited for so often; then its lateness is allowed for.
const ATTEMPTS: usize = 4;

/// A schedule: how long after its arrival a request is answered.
type Delay = fn(number: u64, arrived_ns: u64, begun_ns: u64) -> u64;

const MS: u64 = 1_000_000;

/// Runs the lab against a schedule, of whose times `check` knows what they must look like, until its percentiles are the truth; the last run's differences fail the test.
fn assert_true(rate: u64, requests: u64, delay: Delay, check: impl Fn(&[u64])) {
    let _alone = before_others_alone();
    let mut told = String::new();
    let mut is_explained = false;
    let mut strict = [0; QUANTILES.len()];
    for attempt in 1..=ATTEMPTS {
        told.clear();
        let departures: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(vec![0; requests as usize]));
        let begun_ns = precise_ns();
        let notes = Arc::clone(&departures);
        let address = respond_before_others(move |target, arrived_ns| {
            let number: u64 = target.trim_start_matches('/').parse().unwrap();
            let due_ns = arrived_ns + delay(number, arrived_ns, begun_ns);
            notes.lock().unwrap()[number as usize] = due_ns;
            Answer::At(due_ns, ok(100))
        });
        let folder = Folder::new();
        let list = folder.path().join("urls");
        let urls: String = (0..requests).fold(String::new(), |mut urls, number| {
            let _ = writeln!(urls, "/{number}");
            urls
        });
        std::fs::write(&list, urls).unwrap();
        let (rate_text, requests_text) = (rate.to_string(), requests.to_string());
        let witness = Witness::start();
        let run = bench_by(
            before_others(),
            &[
                &format!("http://{address}/"),
                "--rate",
                &rate_text,
                "-n",
                &requests_text,
                "--urls",
                list.to_str().unwrap(),
                "--threads",
                "1",
                "-c",
                "300",
            ],
        );
        let lateness_ns = witness.finish();
        assert_eq!(run.number("responses"), requests, "{run:#?}");
        let truth = truth_of(&run, &departures.lock().unwrap(), rate);
        if at(&lateness_ns, 1.0) < 2 * MS {
            check(&truth);
        }
        let mut is_true = true;
        is_explained = true;
        for ((name, quantile), strict) in QUANTILES.into_iter().zip(&mut strict) {
            let reported = run.json["latency"][name].as_u64().unwrap();
            let (expected, late_ns) = (at(&truth, quantile), at(&lateness_ns, quantile));
            let (difference, allowed) = (reported.abs_diff(expected), 50_000.max(expected / 100));
            is_true &= difference <= allowed;
            *strict += u32::from(difference <= allowed);
            // Nothing makes an answer come before it left.
            is_explained &= reported + allowed >= expected && difference <= allowed + late_ns;
            let _ = writeln!(
                told,
                "{name}: reported {reported}, true {expected}, {difference} apart; the machine was late by {late_ns}"
            );
        }
        if is_true || attempt == ATTEMPTS {
            let names = QUANTILES.iter().zip(strict).map(|((name, _), held)| format!("{name} {held}"));
            eprintln!("within 1 % or 50 µs, of {attempt} runs: {}", names.collect::<Vec<_>>().join(", "));
        }
        if is_true {
            return;
        }
    }
    assert!(is_explained, "in {ATTEMPTS} runs none told the truth; the last one:\n{told}");
    eprintln!("shown no better than this machine keeps time:\n{told}");
}

/// What is compared.
const QUANTILES: [(&str, f64); 4] = [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99), ("p99_9_ns", 0.999)];

/// A quantile of values in order, as the lab takes it.
fn at(values: &[u64], quantile: f64) -> u64 {
    values[((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1]
}

/// A thread of the same standing that only wakes every millisecond: how late it does is the machine's doing.
struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u64>>,
}

impl Witness {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            put_before_others();
            let mut lateness_ns = Vec::new();
            while !over.load(Ordering::Relaxed) || lateness_ns.is_empty() {
                let due_ns = precise_ns() + MS;
                thread::sleep(Duration::from_nanos(MS));
                lateness_ns.push(precise_ns().saturating_sub(due_ns));
            }
            lateness_ns.sort_unstable();
            lateness_ns
        });
        Self { is_over, thread }
    }

    /// By how much it was late, in order.
    fn finish(self) -> Vec<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Response times from when each request was due to when its answer left, in order.
fn truth_of(run: &Bench, departures: &[u64], rate: u64) -> Vec<u64> {
    let start_ns = run.step()["record"]["series"]["start_ns"].as_u64().unwrap();
    let due = |number: usize| start_ns + number as u64 * 1_000_000_000 / rate;
    let mut times: Vec<u64> =
        departures.iter().enumerate().map(|(number, left_ns)| left_ns.saturating_sub(due(number))).collect();
    times.sort_unstable();
    times
}

#[test]
fn of_a_server_that_always_takes_as_long() {
    assert_true(
        400,
        800,
        |_, _, _| 10 * MS,
        |truth| {
            assert!(truth[0] >= 9 * MS, "the server answers after 10 ms: {truth:?}");
        },
    );
}

#[test]
fn of_a_server_that_is_quick_or_slow() {
    let delay: Delay = |number, _, _| if number % 5 == 4 { 60 * MS } else { 6 * MS };
    assert_true(400, 1_000, delay, |truth| {
        assert!(truth[499] < 50 * MS && truth[900] >= 59 * MS);
    });
}

#[test]
fn of_a_server_that_stalls_a_second_in_every_three() {
    // Stalled from the third second on of each three: everything waits for the stall's end.
    let delay: Delay = |_, arrived_ns, begun_ns| {
        let phase_ns = arrived_ns.saturating_sub(begun_ns) % (3_000 * MS);
        5 * MS + if phase_ns < 2_000 * MS { 0 } else { 3_000 * MS - phase_ns }
    };
    assert_true(100, 600, delay, |truth| {
        // A third of all requests wait, half a second in the mean, as one that arrives by the clock must.
        assert!(truth[300] < 100 * MS && truth[500] > 200 * MS && truth[590] > 900 * MS, "{truth:?}");
    });
}
