//! Questions that the lab answers: the knee, behaviour under overload, the faster of two servers, steadiness and
//! precision.
//!
//! The servers have one worker with a known service time, so their capacity is known too. A busy machine may make them
//! slower, but never faster.

use super::responder::{Answer, ok, respond, respond_at_high_priority};
use super::{Bench, bench, bench_by, high_priority_flatout, lock_high_priority};
use crate::e2e::harness::{Folder, Server};
use crate::e2e::skip::skip;
use std::fmt::Write as _;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const MS: u64 = 1_000_000;

/// Starts a server with one worker that takes this long per request, while other requests wait. Returns its URL.
fn one_worker(service_ns: u64) -> String {
    let free_ns = Mutex::new(0);
    let address = respond_at_high_priority(move |_, arrived_ns| {
        let mut free_ns = free_ns.lock().unwrap();
        *free_ns = arrived_ns.max(*free_ns) + service_ns;
        Answer::At(*free_ns, ok(64))
    });
    format!("http://{address}/")
}

fn bench_at_high_priority(url: &str, arguments: &[&str]) -> Bench {
    bench_by(high_priority_flatout(), &[&[url][..], arguments].concat())
}

#[test]
fn the_knee_is_never_above_the_capacity_of_the_server() {
    let _alone = lock_high_priority();
    let url = one_worker(4 * MS);
    let mut found = Vec::new();
    for _ in 0..SEARCHES {
        match search_for_the_knee(&url) {
            Ending::Found(met_per_s) if met_per_s > 250.0 / 2.0 => return,
            Ending::Found(met_per_s) => found.push(met_per_s),
            Ending::Other(ending) => {
                let why = format!("on this machine the search for the knee ended as {ending}");
                return skip(&format!("{why}, so its figure was not compared"));
            }
        }
    }
    panic!("the capacity is 250 requests/s; found {found:?}");
}

/// Maximum number of searches. On a busy machine, the server may be slower than its capacity.
const SEARCHES: usize = 3;

/// The result of a search.
enum Ending {
    /// The highest sustainable rate, per second.
    Found(f64),
    /// A different ending, by its name.
    Other(String),
}

/// Searches once, and checks properties that hold on every machine.
fn search_for_the_knee(url: &str) -> Ending {
    let run = bench_at_high_priority(url, &["--find-knee", "p99<100ms", "--rate", "20..2000", "-d", "500ms"]);
    let knee = &run.json["findings"]["knee"];
    let search = &knee["search"];
    let trials = search["trials"].as_array().unwrap();
    assert!(trials.len() >= 3 && trials.len() == run.steps().count(), "{knee:#}");
    // The capacity is 250 requests/s. At 2 % above it, the delay after half a second still stays below 100 ms.
    let beyond = 250.0 * 1.25;
    for trial in trials {
        let (rate, outcome) = (trial["trial"]["rate_per_s"].as_f64().unwrap(), trial["outcome"].as_str().unwrap());
        // Short trials only narrow the search.
        let is_short = trial["trial"]["is_long"] == false;
        assert!(is_short || outcome != "met" || rate < beyond, "{trial:#}");
    }
    if let Some(met) = search["met_per_s"].as_f64() {
        // A rate counts only after three long trials in a row have met the condition.
        let is_long = |trial: &&serde_json::Value| {
            trial["trial"]["is_long"] == true && trial["trial"]["rate_per_s"] == met && trial["outcome"] == "met"
        };
        assert!(met < beyond && trials.iter().filter(is_long).count() >= 3, "{search:#}");
        assert!(search["missed_per_s"].as_f64().is_none_or(|missed| missed > met), "{search:#}");
    }
    let said = knee["sentence"].as_str().unwrap();
    assert!(run.stdout.contains(said), "{}", run.stdout);
    // The checks above hold in every run. The figure itself is close to the truth unless the machine was too busy for
    // any figure, and then the sentence says so.
    let ending = search["ending"].as_str().unwrap();
    let expected = match ending {
        "found" => return Ending::Found(search["met_per_s"].as_f64().unwrap()),
        "between" => "the knee is between",
        "client-limited" if search["met_per_s"].is_number() => "higher",
        "client-limited" | "contradictory" | "unsettled" => "the highest rate for",
        other => panic!("{other}: {said}"),
    };
    assert!(said.contains(expected), "{said}");
    Ending::Other(ending.to_owned())
}

#[test]
fn overload_reports_goodput_and_recovery_time() {
    let _alone = lock_high_priority();
    let url = one_worker(4 * MS);
    let run = bench_at_high_priority(&url, &["--overload", "--rate", "200", "-d", "500ms", "--deadline", "200ms"]);
    let found = &run.json["findings"]["overload"];
    let levels = found["levels"].as_array().unwrap();
    assert!(levels.len() >= 5, "{found:#}");
    let numbers = |name: &str| levels.iter().map(|level| level[name].as_f64().unwrap()).collect::<Vec<_>>();
    let (offered, goodput) = (numbers("offered_per_s"), numbers("goodput_per_s"));
    assert!(offered.is_sorted() && offered.last() > Some(&500.0), "{offered:?}");
    assert!(goodput.iter().all(|goodput| *goodput < 290.0), "goodput exceeds the capacity: {goodput:?}");
    // Clients that wait longer than the deadline get no benefit from the response.
    let overload = &found["overload"];
    let peak = overload["peak"]["goodput_per_s"].as_f64().unwrap();
    let worst = overload["worst"]["goodput_per_s"].as_f64().unwrap();
    assert!(worst < 0.9 * peak, "{overload:#}");
    assert!(found["recovery"].is_object(), "{found:#}");
    assert!(found["sentence"].as_str().unwrap().contains("goodput peaks at"), "{found:#}");
    assert!(run.stdout.contains("goodput peaks at"), "{}", run.stdout);
    assert_ne!(run.exit, Some(1), "errors above the knee are expected: {run:#?}");
}

#[test]
fn connection_rates_are_distinguished_from_request_rates() {
    // Every second response is too late to be useful.
    let seen = AtomicU64::new(0);
    let address = respond(move |_, arrived_ns| {
        let late_ns = (seen.fetch_add(1, Ordering::Relaxed) % 2) * 300 * MS;
        Answer::At(arrived_ns + late_ns, ok(64))
    });
    let url = format!("http://{address}/");
    let run = bench(&[&url, "--overload", "-d", "500ms", "--deadline", "200ms", "--calls", "4", "-c", "8"]);
    let found = &run.json["findings"]["overload"];
    let levels = found["levels"].as_array().unwrap();
    let closed = run.steps().next().unwrap()["responses_per_s"].as_f64().unwrap();
    assert_eq!(levels.len(), 8, "{found:#}");
    for (level, part) in levels.iter().zip([0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0]) {
        let offered = level["offered_per_s"].as_f64().unwrap();
        assert!((offered / (part * closed) - 1.0).abs() < 1e-6, "{part} of {closed} requests/s: {offered}");
    }
    // With half of the responses in time, there are two per connection: twice the arrival rate, which must not be taken
    // for the offered rate.
    assert!(found["recovery"].get("not-within").is_some(), "{found:#}");

    let run = bench(&[&url, "--find-knee", "p99<60s", "--rate", "5..10", "-d", "300ms", "--calls", "4"]);
    let knee = &run.json["findings"]["knee"];
    assert_eq!((&knee["arrivals"], &knee["requests_per_arrival"]), (&"connections".into(), &4.0.into()), "{knee:#}");
    assert_eq!(
        run.step()["offered"]["visits_per_s"].as_f64().map(|visits| 4.0 * visits),
        run.step()["offered"]["rate_per_s"].as_f64()
    );
    let sentence = knee["sentence"].as_str().unwrap();
    assert!(knee["search"]["met_per_s"].is_number(), "any rate meets the condition: {knee:#}");
    assert!(sentence.contains("connections/s of 4 requests") && run.stdout.contains(sentence), "{sentence}");
}

#[test]
fn the_slower_of_two_servers_is_reported() {
    let _alone = lock_high_priority();
    let (quick, slow) = (one_worker(2 * MS), one_worker(12 * MS));
    let run = bench_at_high_priority(&quick, &["--compare", &slow, "-d", "500ms", "-c", "1"]);
    let found = &run.json["findings"]["comparison"];
    let ratio = &found["comparisons"][0]["comparison"]["ratio"];
    let (estimate, low, high) = (&ratio["estimate"], &ratio["low"], &ratio["high"]);
    assert_eq!((&found["a"], &found["b"]), (&quick.as_str().into(), &slow.as_str().into()));
    assert!(low.as_f64() < estimate.as_f64() && estimate.as_f64() < high.as_f64(), "{ratio:#}");
    assert!(high.as_f64().unwrap() < 1.0, "B takes six times as long: {found:#}");
    assert!(found["comparisons"][0]["comparison"]["same"].is_object(), "A was compared with itself: {found:#}");
    assert!(run.stdout.contains("A against A") && run.stdout.contains("  B  http://"), "{}", run.stdout);
    // Turns are not reported one by one, and reasons that apply to all of them are printed once.
    assert!(run.stdout.lines().count() < 40, "{}", run.stdout);
}

#[test]
fn an_automatic_warm_up_lasts_until_latency_is_steady() {
    let _alone = lock_high_priority();
    let mut unsteady = Vec::new();
    // On a busy machine, a run may never become steady.
    for _ in 0..3 {
        // Slow at first: requests in the first half second take five times as long.
        let seen = AtomicU64::new(0);
        let address = respond_at_high_priority(move |_, arrived_ns| {
            let slow = seen.fetch_add(1, Ordering::Relaxed) < 60;
            Answer::At(arrived_ns + if slow { 10 * MS } else { 2 * MS }, ok(64))
        });
        let url = format!("http://{address}/");
        let run = bench_at_high_priority(&url, &["--warm-up", "auto", "-c", "2", "-n", "400", "--threads", "1"]);
        let warm_up = &run.step()["warm_up"];
        if warm_up["steady"] != true {
            unsteady.push(warm_up.clone());
            continue;
        }
        assert!(warm_up["samples"].as_u64().unwrap() >= 60, "{warm_up:#}");
        // The figures exclude the slow beginning.
        assert!(run.json["latency"]["p50_ns"].as_u64().unwrap() < 9 * MS, "{:#}", run.json["latency"]);
        return;
    }
    panic!("never steady: {unsteady:#?}");
}

#[test]
fn a_run_with_a_precision_target_ends_by_itself() {
    let _alone = lock_high_priority();
    let url = one_worker(MS);
    let run = bench_at_high_priority(&url, &["--precision", "20", "-c", "1"]);
    let step = run.step();
    assert!(step["elapsed_ns"].as_u64().unwrap() < 60_000 * MS, "a constant delay is measured quickly: {step:#}");
    assert!(run.number("responses") >= 100);
    assert!(step["plan"]["stop"]["tight"].is_object(), "{:#}", step["plan"]);
}

#[test]
fn response_bodies_are_verified_by_digest() {
    let site = Folder::with(&[("a", b"abc")]);
    let server = Server::start(site.path(), &[]);
    let lists = Folder::new();
    // FIPS 180-4 gives the digest of "abc" as an example.
    let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let wrong = right.replace("ba78", "ba79");
    for (digest, errors) in [(right, 0), (&wrong, 50)] {
        let list = lists.path().join("filelist");
        fs::write(&list, format!("/a 1 #3 #sha256={digest}\n")).unwrap();
        let list = list.to_str().unwrap();
        let run = bench(&[&server.url("/"), "--filelist", list, "--verify-digest", "100%", "-n", "50", "-c", "2"]);
        let found = run.json["errors"]["total"].as_u64().unwrap();
        assert_eq!((found, run.code), (errors, Some(i32::from(errors > 0))), "{run:#?}");
        let run = bench(&[&server.url("/"), "--filelist", list, "-n", "50", "-c", "2"]);
        assert_eq!(run.code, Some(0), "digests were not requested: {run:#?}");
    }
}

#[test]
fn a_log_is_replayed_and_skipped_lines_are_reported() {
    let targets = std::sync::Arc::new(Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&targets);
    let address = respond(move |target, _| {
        seen.lock().unwrap().push(target.to_owned());
        Answer::At(0, ok(3))
    });
    let folder = Folder::new();
    let mut log = String::new();
    for (second, request) in ["GET /a", "GET /b", "POST /c", "GET /d"].iter().enumerate() {
        let _ = writeln!(
            log,
            "127.0.0.9 - - [10/Oct/2000:13:55:{:02} -0700] \"{request} HTTP/1.0\" 200 3",
            30 + 2 * second
        );
    }
    let path = folder.path().join("access.log");
    fs::write(&path, log).unwrap();
    let run = bench(&[&format!("http://{address}/"), "--replay", &format!("{},x4", path.display()), "--threads", "1"]);
    assert_eq!(
        (run.number("responses"), targets.lock().unwrap().as_slice()),
        (3, &["/a", "/b", "/d"].map(String::from)[..])
    );
    let notes = run.json["notes"].as_array().unwrap();
    assert!(notes.iter().any(|note| note["note"] == "log-lines-passed-over"), "{notes:?}");
    assert!(run.stdout.contains("1 line of the log was not replayed"), "{}", run.stdout);
    // Six seconds of log, replayed at four times the speed.
    let spans = run.step()["record"]["intended_span_ns"].as_u64().unwrap();
    assert_eq!(spans / MS, 1_500, "{run:#?}");
}

#[test]
fn results_are_checked_against_the_metrics_of_the_server() {
    let site = Folder::with(&[("a.txt", b"abc")]);
    let text = format!(
        "workers 1\nadmin off=#true\nsite \"*\" {{\n listen \"127.0.0.1:0\"\n route \"/metrics\" {{\n metrics\n }}\n \
         route \"/*\" {{\n files \"{}\"\n }}\n}}\n",
        site.path().display()
    );
    let server = Server::run(&site, &text);
    let run = bench(&[&server.url("/a.txt"), "-n", "200", "-c", "2", "--server-metrics", &server.url("/metrics")]);
    assert_eq!((run.code, run.number("responses")), (Some(0), 200), "{run:#?}");
    let evidence = &run.step()["evidence"]["reconciliation"];
    assert_eq!(evidence["server"]["requests"], 200, "{evidence:#}");
    // The metrics are at the same place as the load.
    let to = format!("flatout.invalid:80:127.0.0.1:{}", server.address.port());
    let routed = ["http://flatout.invalid/a.txt", "--server-metrics", "http://flatout.invalid/metrics"];
    let run = bench(&[&routed[..], &["--connect-to", &to, "-n", "20", "-c", "2"]].concat());
    assert_eq!((run.code, run.number("responses")), (Some(0), 20), "{run:#?}");
    // Requests of other clients in the same metrics are detected.
    let folder = Folder::new();
    let log = folder.path().join("access.log");
    fs::write(&log, "").unwrap();
    let run = bench(&[&server.url("/a.txt"), "-n", "20", "-c", "2", "--server-log", log.to_str().unwrap()]);
    assert!((run.exit, run.invalid().contains(&"counts-differ")) == (Some(5), true), "{run:#?}");
}

#[test]
fn single_machine_measurements_are_refused_with_agents() {
    let agents = ["--agents", "2", "--listen", "127.0.0.1:0", "--certs", "/nowhere"];
    for question in [
        &["--find-knee", "p99<5ms"][..],
        &["--overload"],
        &["--compare", "http://127.0.0.1:8/"],
        &["--server-log", "x"],
    ] {
        let run = bench(&[&["http://127.0.0.1:9/"][..], question, &agents].concat());
        assert_eq!((run.exit, run.stdout.as_str()), (Some(2), ""), "{question:?} {run:#?}");
        assert!(run.stderr.contains("--agents"), "{}", run.stderr);
    }
}
