//! Servers that refuse, or never respond: no output may conclude anything from failures.

use super::responder::{Answer, ok, respond};
use super::{Bench, bench, bench_by, soundness};
use crate::e2e::harness::{Folder, Server, flatout};
use crate::e2e::tool::{said, tool};
use std::fs;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// A refusal, which is faster than any response of a server that works.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// Requests per [`WINDOW_NS`] that the shedding server serves. It refuses all others.
const SERVED_PER_WINDOW: u64 = 10;

const WINDOW_NS: u64 = 100_000_000;

/// The URL of a server that refuses everything.
fn refusing() -> String {
    format!("http://{}/", respond(|_, _| Answer::At(0, REFUSAL.to_vec())))
}

/// The URL of a server that serves everything.
fn serving() -> String {
    format!("http://{}/", respond(|_, _| Answer::At(0, ok(64))))
}

/// The URL of a server that serves 100 requests per second.
fn shedding() -> String {
    let state = Mutex::new((0, 0));
    let address = respond(move |_, arrived_ns| {
        let mut state = state.lock().unwrap();
        let window = arrived_ns / WINDOW_NS;
        *state = if state.0 == window { (window, state.1 + 1) } else { (window, 1) };
        Answer::At(0, if state.1 <= SERVED_PER_WINDOW { ok(64) } else { REFUSAL.to_vec() })
    });
    format!("http://{address}/")
}

/// The URL of a server that never responds to one in twenty requests.
fn hanging() -> String {
    let number = AtomicU64::new(0);
    let address = respond(move |_, _| match number.fetch_add(1, Ordering::Relaxed) % 20 {
        19 => Answer::Never,
        _ => Answer::At(0, ok(64)),
    });
    format!("http://{address}/")
}

/// A final 101, and statuses that RFC 9110 §15 does not define, are failures like other unexpected statuses.
#[test]
fn every_unexpected_status_fails_the_run() {
    for (status, text) in
        [(101, "4 requests were answered with 1xx"), (700, "4 requests were answered with a status of 600 or more")]
    {
        let response = format!("HTTP/1.1 {status} Strange\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let url = format!("http://{}/", respond(move |_, _| Answer::Last(response.clone().into_bytes())));
        let run = bench(&[&url, "-n", "4", "-c", "1", "--threads", "1"]);
        assert_eq!((run.exit, run.step()["requests"]["unexpected"].as_u64()), (Some(1), Some(4)), "{run:#?}");
        assert_eq!(run.step()["failing"][0]["name"], "status-other", "{run:#?}");
        assert!(run.stdout.contains(text) && run.stdout.contains(&format!("4 status {status}")), "{}", run.stdout);
    }
}

/// A bench with every output, and the outputs.
struct Outputs {
    run: Bench,
    html: String,
    prometheus: String,
    csv: String,
}

fn outputs(url: &str, arguments: &[&str]) -> Outputs {
    let folder = Folder::new();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (html, prometheus, csv) = (place("run.html"), place("run.prom"), place("csv"));
    let files = ["--html", &html, "--prometheus", &prometheus, "--csv", &csv];
    let run = bench(&[&[url][..], arguments, &files].concat());
    let read = |path: &str| fs::read_to_string(path).unwrap();
    Outputs { run, html: read(&html), prometheus: read(&prometheus), csv: read(&format!("{csv}/steps.csv")) }
}

impl Outputs {
    /// The value of a metric whose line contains these texts.
    fn metric(&self, name: &str, label: &str) -> &str {
        let prefix = format!("flatout_bench_{name}{{");
        let mut lines = self.prometheus.lines().filter(|line| line.starts_with(&prefix) && line.contains(label));
        lines.next().unwrap_or_else(|| panic!("no {name} in {}", self.prometheus)).rsplit(' ').next().unwrap()
    }

    fn field(&self, name: &str) -> &str {
        let mut rows = self.csv.lines();
        let column = rows.next().unwrap().split(',').position(|field| field == name).unwrap();
        rows.next().unwrap().split(',').nth(column).unwrap()
    }
}

#[test]
fn a_server_that_refuses_everything_has_no_rate_and_no_times() {
    let require = ["--require", "errors<=100%", "--require", "rate>=1", "--require", "p50<1h"];
    let made = outputs(&refusing(), &[&["--rate", "200", "-d", "500ms"][..], &require].concat());
    let (json, text) = (&made.run.json, &made.run.stdout);
    assert_eq!(made.run.exit, Some(4), "{text}");
    assert_eq!((json["requests_per_s"].as_f64(), json["error_share"].as_f64()), (Some(0.0), Some(1.0)), "{text}");
    assert!(json["latency"].is_null() && json["unexpected"]["count"] == 100, "{text}");
    assert_eq!(json["statuses"]["503"], 100);
    assert!(text.contains("NOT MET: rate>=1") && text.contains("NOT MET: p50<1h"), "{text}");
    assert!(text.contains("100 status 503") && !text.contains("errors          none"), "{text}");
    assert_eq!((made.metric("responses_per_second", ""), made.metric("error_ratio", "")), ("0", "1"));
    assert_eq!(made.metric("status_responses_total", "status=\"503\""), "100");
    assert!(!made.prometheus.contains("flatout_bench_response_seconds{"), "{}", made.prometheus);
    assert_eq!(
        (made.field("responses_per_s"), made.field("unexpected"), made.field("response_p99_ns")),
        ("0", "100", "")
    );
    assert!(made.html.contains("Unexpected statuses: 503 100") && made.html.contains("100 % of all requests failed"));
}

#[test]
fn requests_without_a_response_are_slower_than_all_others() {
    let arguments = ["--rate", "200", "-d", "1s", "--timeout", "500ms", "--require", "p99<1h", "--require", "p90<1h"];
    let made = outputs(&hanging(), &arguments);
    let (json, text) = (&made.run.json, &made.run.stdout);
    assert_eq!(made.run.exit, Some(1), "{text}");
    // On a busy machine, other responses may be late too.
    let missing = made.run.failures("client-timo");
    assert!((10..20).contains(&missing) && json["latency"]["count"] == 200 - missing, "{text}");
    assert!(json["latency"]["p90_ns"].is_u64() && json["latency"]["p99_ns"].is_null(), "{text}");
    assert!(json["latency"]["max_ns"].is_null() && json["service"]["p99_ns"].is_null(), "{text}");
    assert!(text.contains("   never   never   never\n") && text.contains("NOT MET: p99<1h"), "{text}");
    assert!(text.contains("required p90<1h: met"), "{text}");
    assert_eq!(made.metric("response_seconds", "quantile=\"0.99\""), "+Inf");
    assert!(made.metric("response_seconds", "quantile=\"0.9\"").parse::<f64>().unwrap() < 1.0);
    assert_eq!((made.field("response_p99_ns"), made.field("response_max_ns")), ("inf", "inf"));
    assert!(made.html.contains("<td>never</td>"));
}

#[test]
fn the_knee_is_the_rate_that_a_server_serves_and_not_the_rate_that_it_refuses() {
    let run = bench(&[&shedding(), "--find-knee", "p99<1s", "--rate", "20..1600", "-d", "500ms"]);
    let knee = &run.json["findings"]["knee"];
    assert_eq!(knee["requirement"], "p99<1s and errors<=1%");
    let met = knee["search"]["met_per_s"].as_f64().unwrap_or_else(|| panic!("{knee:#}"));
    assert!(met < 120.0, "{knee:#}");
    // With another limit of errors, the refusals are part of the question.
    let run = bench(&[&shedding(), "--find-knee", "p99<1s,errors<=100%", "--rate", "400..1600", "-d", "300ms"]);
    let search = &run.json["findings"]["knee"]["search"];
    assert!(search["met_per_s"].as_f64().is_some_and(|met| met >= 400.0), "{search:#}");
}

/// Returns the URL of a server that serves 100 requests per second, and redirects all others to an error page.
fn diverting() -> String {
    let state = Mutex::new((0, 0));
    let address = respond(move |_, arrived_ns| {
        let mut state = state.lock().unwrap();
        let window = arrived_ns / WINDOW_NS;
        *state = if state.0 == window { (window, state.1 + 1) } else { (window, 1) };
        Answer::At(0, if state.1 <= SERVED_PER_WINDOW { ok(64) } else { REDIRECT.to_vec() })
    });
    format!("http://{address}/")
}

const REDIRECT: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: /sorry\r\nContent-Length: 0\r\n\r\n";

#[test]
fn the_knee_is_no_rate_at_which_a_server_redirects_to_an_error_page() {
    let run = bench(&[&diverting(), "--find-knee", "p99<1s", "--rate", "20..1600", "-d", "500ms"]);
    let knee = &run.json["findings"]["knee"];
    assert!(knee["search"]["met_per_s"].as_f64().is_none_or(|met| met < 120.0), "{knee:#}");
    let sentence = knee["sentence"].as_str().unwrap();
    assert!(sentence.contains("; the statuses of the responses differ (at "), "{sentence}");
    assert!(run.stdout.contains("  statuses ") && run.stdout.contains("% status 302"), "{}", run.stdout);
    // If the redirects are expected, they are part of the question.
    let load = ["--rate", "400..1600", "-d", "300ms", "--expect-status", "200,302"];
    let url = diverting();
    let run = bench(&[&[url.as_str(), "--find-knee", "p99<1s"], &load[..]].concat());
    let search = &run.json["findings"]["knee"]["search"];
    assert!(search["met_per_s"].as_f64().is_some_and(|met| met >= 400.0), "{search:#}");
}

#[test]
fn servers_with_other_statuses_are_not_compared() {
    let redirecting = format!("http://{}/", respond(|_, _| Answer::At(0, REDIRECT.to_vec())));
    let large = format!("http://{}/", respond(|_, _| Answer::At(0, ok(20_000))));
    let load = ["-d", "1s", "-c", "2", "--threads", "1"];
    let compare =
        |other: &str, more: &[&str]| bench(&[&[large.as_str(), "--compare", other], &load[..], more].concat());
    let run = compare(&redirecting, &[]);
    let comparison = &run.json["findings"]["comparison"];
    let why = "nothing is compared, because the statuses of the responses differ (A: 100.0 % status 200; B: 100.0 % \
               status 302); if that is intended, name each of them with --expect-status";
    assert_eq!(comparison["sentence"], why, "{comparison:#}");
    assert_eq!(run.exit, Some(5), "{}", run.stdout);
    assert!(!run.stdout.contains("faster") && run.stdout.contains(why), "{}", run.stdout);
    // If the user names the statuses, or they are the same, a difference in size is mentioned with the result.
    let same = serving();
    for (other, more) in [(&redirecting, &["--expect-status", "200,302"][..]), (&same, &[][..])] {
        let run = compare(other, more);
        let comparison = &run.json["findings"]["comparison"];
        assert!(!run.stdout.contains("the statuses of the responses differ"), "{}", run.stdout);
        // On a busy machine, no figure may be valid.
        if comparison["comparisons"].as_array().is_some_and(|compared| !compared.is_empty()) {
            let sizes = comparison["sizes"].as_str().unwrap();
            assert!(sizes.starts_with("B's responses are smaller: ") && sizes.ends_with(", A's 19.5 KiB"), "{sizes}");
            assert!(run.stdout.contains(sizes), "{}", run.stdout);
        }
    }
}

#[test]
fn servers_whose_requests_fail_in_different_shares_are_not_compared() {
    let serving = serving();
    let failing = [("refusing", refusing()), ("shedding", shedding()), ("hanging", hanging())];
    let folder = Folder::new();
    let place = |name: &str| folder.path().join(format!("{name}.json"));
    let differ = |name: &str, text: &str| {
        let share = if name == "refusing" { "100.0 % of B's" } else { " % of B's" };
        let why = "requests failed and 0.0 % of A's, more than 0.1 percentage points apart";
        assert!(text.contains("not") && text.contains(&format!("{share} {why}")), "{name}: {text}");
        assert!(!text.contains("faster") && !text.contains("slower"), "{name}: {text}");
    };
    thread::scope(|scope| {
        for (name, url) in failing.iter().map(|(name, url)| (*name, url)).chain([("serving", &serving)]) {
            let file = place(name);
            scope.spawn(move || {
                let status = flatout()
                    .args(["bench", url, "--rate", "200", "-d", "6s", "-c", "40", "--timeout", "1s", "--json"])
                    .arg(file)
                    .stdout(Stdio::null())
                    .status();
                assert!(matches!(status.unwrap().code(), Some(0 | 1 | 5)));
            });
        }
    });
    for (name, url) in &failing {
        let output = flatout().arg("compare").args([place("serving"), place(name)]).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
        differ(name, &said(&output));
        let load = ["-d", "1s", "-c", "2", "--threads", "1", "--timeout", "500ms"];
        let run = bench(&[&[&*serving, "--compare", url][..], &load].concat());
        let comparison = &run.json["findings"]["comparison"];
        assert_eq!(comparison["comparisons"], serde_json::json!([]), "{name}");
        let sentence = comparison["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("nothing is compared, because "), "{sentence}");
        differ(name, sentence);
        assert!(!run.stdout.contains("faster") && run.stdout.contains(sentence), "{}", run.stdout);
    }
}

#[test]
fn the_live_line_counts_unexpected_statuses() {
    let command =
        format!("{} bench {} --no-tui --rate 200 -d 1s", flatout().get_program().to_str().unwrap(), refusing());
    let output = tool("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm-256color")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = said(&output);
    // The first line may come before the first response.
    let last = text.split('\r').rfind(|line| line.contains("requests/s  p99")).unwrap_or_else(|| panic!("{text:?}"));
    assert!(last.contains("0.00 requests/s") && last.contains(" errors") && !last.contains("no errors"), "{last:?}");
}

#[test]
fn expected_statuses_are_successes() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let server = Server::start(site.path(), &[]);
    let missing = server.url("/missing");
    let run = bench(&[&missing, "-n", "50", "-c", "2", "--expect-status", "404"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    assert!(run.json["requests_per_s"].as_f64().unwrap() > 0.0 && run.json["latency"]["count"] == 50);
    assert_eq!(run.json["steps"][0]["plan"]["expected"], "404");
    let run = bench(&[&server.url("/a.txt"), "-n", "50", "-c", "2", "--expect-status", "404"]);
    assert_eq!(run.exit, Some(1), "{}", run.stdout);
    assert!(run.stdout.contains("50 status 200") && run.stdout.contains("is not one of 404"), "{}", run.stdout);
    let run = bench(&[&missing, "--expect-status", "ok"]);
    assert!(run.exit == Some(2) && run.stderr.contains("\"ok\" is not a status from 200 to 599"), "{}", run.stderr);
}

#[test]
fn a_client_without_descriptors_does_not_blame_the_server() {
    let url = format!("http://{}/", respond(|_, arrived_ns| Answer::At(arrived_ns + 500_000_000, ok(64))));
    let mut command = tool("prlimit");
    command.arg("--nofile=100:100").arg(flatout().get_program());
    // About 200 requests are in progress at once.
    let run = bench_by(
        command,
        &[&url, "--rate", "400", "-d", "1s", "-c", "300", "--require", "errors<1%", "--require", "p99<1h"],
    );
    assert!(run.failures("fd-unavail") > 50, "{}", run.stdout);
    assert!(run.invalid().contains(&"client-starved"), "{:?}", run.invalid());
    let soundness = |figure: &str| soundness(&run.json, figure);
    assert!(soundness("p99") != "sound" && soundness("counts") == "unknown", "{}", run.json["figures"]);
    for (index, text) in ["errors<1%", "p99<1h"].iter().enumerate() {
        let unsound = run.json["thresholds"][index]["unsound"].as_array().unwrap();
        assert!(unsound.iter().any(|reason| reason == "client-starved"), "{unsound:?}");
        assert!(run.stdout.contains(&format!("UNCERTAIN: {text}")), "{}", run.stdout);
    }
}

#[test]
fn failures_in_the_warm_up_are_noted() {
    let number = AtomicU64::new(0);
    let address = respond(move |_, _| {
        let is_warm = number.fetch_add(1, Ordering::Relaxed) >= 20;
        Answer::At(0, if is_warm { ok(64) } else { REFUSAL.to_vec() })
    });
    let run = bench(&[&format!("http://{address}/"), "--rate", "100", "--warm-up", "1s", "-d", "500ms"]);
    assert!(run.code == Some(0) && run.number("responses") == 50, "{}", run.stdout);
    let text = "20 of 100 requests in the warm-up failed (20 status 503); no figure includes them";
    let notes = run.step()["notes"].as_array().unwrap();
    let note = notes.iter().find(|note| note["name"] == "warm-up-failed").unwrap();
    assert_eq!(note["text"], text);
    assert!(run.stdout.contains("20 of 100 requests in the warm-up failed"), "{}", run.stdout);
    assert_eq!(run.step()["record"]["warm_up_unexpected"]["503"], 20);
}

#[test]
fn a_run_stops_when_too_many_requests_fail() {
    let site = Folder::with(&[("a.txt", b"a")]);
    let server = Server::start(site.path(), &[]);
    let stop = ["--stop-when", "errors>5%", "-c", "2"];
    // Two levels of an hour each.
    let run = bench(&[&[&*server.url("/none"), "--rate", "100..200:100", "-d", "1h"], &stop[..]].concat());
    assert_eq!((run.exit, run.steps().count()), (Some(1), 1), "{run:#?}");
    assert!(run.invalid().contains(&"stopped-early"), "{run:#?}");
    let text = "100 % of the requests had failed, which is more than 5.00 %";
    assert!(run.stdout.contains(text) && (20..2_000).contains(&run.number("responses")), "{run:#?}");
    // A run without failures is complete.
    let run = bench(&[&[&*server.url("/a.txt"), "-n", "100"], &stop[..]].concat());
    assert_eq!((run.code, run.number("responses")), (Some(0), 100), "{run:#?}");
    assert!(!run.stdout.contains("stopped early"), "{}", run.stdout);
    // Failures that a requirement allows do not make the stopped run a complete one.
    let failed = b"HTTP/1.1 500 -\r\ncontent-length: 0\r\n\r\n".to_vec();
    let (count, error) = (AtomicU64::new(0), failed.clone());
    let half = respond(move |_, arrived_ns| {
        let is_even = count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        Answer::At(arrived_ns, if is_even { ok(1) } else { error.clone() })
    });
    let half = format!("http://{half}/");
    let allowed = ["--rate", "200", "-d", "1h", "--require", "errors<90%"];
    let run = bench(&[&[half.as_str()], &stop[..], &allowed[..]].concat());
    assert!(run.exit == Some(5) && run.invalid().contains(&"stopped-early"), "{run:#?}");
    assert!(!run.stdout.contains("figures are reliable"), "{}", run.stdout);
    // A stop within the warm-up leaves no figure, but requests were sent, and failed.
    let warm = ["--rate", "200", "--warm-up", "1h", "-d", "1h"];
    let run = bench(&[&[half.as_str()], &stop[..], &warm[..]].concat());
    assert!(run.exit == Some(1) && run.invalid().contains(&"stopped-early"), "{run:#?}");
    let said = ["requests in the warm-up failed (", "status 500", "stopped early, in its warm-up, because"];
    assert!(said.iter().all(|said| run.stdout.contains(said)), "{}", run.stdout);
    let contradictions = ["no request was sent", "of 0 sent", "errors          none", "Partly valid"];
    assert!(!contradictions.iter().any(|said| run.stdout.contains(said)), "{}", run.stdout);
    // A run that has sent every request, and waits for the last response, is complete, however many failed.
    let count = AtomicU64::new(0);
    let slow = respond(move |_, arrived_ns| {
        let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
        Answer::At(arrived_ns + if is_first { 500_000_000 } else { 0 }, failed.clone())
    });
    let run = bench(&[&format!("http://{slow}/"), "-n", "40", "-c", "40", "--stop-when", "errors>5%"]);
    assert_eq!(run.number("responses"), 40, "{run:#?}");
    assert!(!run.invalid().contains(&"stopped-early"), "{run:#?}");
}
