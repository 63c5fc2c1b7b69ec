use super::page;
use crate::tests::fixture;

/// Everything that would make a browser load something.
const LOADS: [&str; 9] = ["src=", "href=", "url(", "@import", "<link", "<script", "<iframe", "<img", "xlink"];

fn assert_has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "no {part:?}");
    }
}

#[test]
fn the_report_of_one_run_is_complete() {
    let page = page(&[fixture::single()]);
    assert_has(
        &page,
        &[
            "<!DOCTYPE html>",
            "Valid: the figures are reliable.",
            "Latency by percentile",
            "percentile (%, log scale of the share above)",
            "time (log scale)",
            "time since the start (s)",
            "rate (1/s)",
            "response time (log scale)",
            "class=\"heat\"",
            "wait for the first byte",
            "No request failed.",
            "flatout bench http://127.0.0.1:18080/index.html --rate 50 -H 'X-A: b c'",
            "open loop, 50.0 connections/s, equal gaps",
            "Some CPU @ 2 GHz",
            "net.core.somaxconn 4096",
            "flatout 1.2.3",
            "c0ffee",
            "open files 20,000",
            "25.0 %",
        ],
    );
    assert!(!page.contains("against offered rate"), "one step is no curve");
    assert!(LOADS.iter().all(|load| !page.contains(load)), "the page loads something");
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn times_say_which_requests_they_are_of() {
    let failing = page(&[fixture::failing()]);
    assert_has(
        &failing,
        &[
            "<p>Times are of 288 responses; 12 requests without a valid response count as slower in the percentiles.</p>",
        ],
    );
    let both = page(&[fixture::single(), fixture::failing()]);
    assert_has(
        &both,
        &[
            "<p>failing: 50.0 requests/s: times are of 288 responses; 12 requests without a valid response count as slower in the percentiles.</p>",
        ],
    );
    assert!(!page(&[fixture::single()]).contains("without a valid response"));
}

#[test]
fn a_sweep_has_the_curve_and_its_findings() {
    let page = page(&[fixture::sweep("sweep", 10)]);
    assert_has(
        &page,
        &[
            "Reply rate and response time against offered rate",
            "offered rate (1/s)",
            "reply rate (1/s)",
            "Partly valid: not every figure of 1 step is valid.",
            "client-saturated",
            "connreset",
            "epipe",
            "p99&lt;20ms",
            "The highest rate with p99 &lt; 50 ms is 800 requests/s.",
            "lab2",
            "this is the first of 10 steps",
            "By class",
        ],
    );
}

#[test]
fn several_runs_are_laid_over_each_other() {
    let page = page(&[fixture::sweep("before", 10), fixture::sweep("after", 11)]);
    assert_has(
        &page,
        &["before: reply rate", "after: reply rate", "before: 100 requests/s", "Response time over time: after"],
    );
    assert_eq!(page.matches("class=\"verdict").count(), 2);
    // Runs with the same name are distinguished.
    let page = super::page(&[fixture::single(), fixture::single()]);
    assert_has(&page, &["one rate (1)", "one rate (2)"]);
}

#[test]
fn what_a_result_says_is_text_and_nothing_else() {
    let mut report = fixture::single();
    let evil = "<script>alert(1)</script>\"'><img src=x>";
    report.label = evil.to_owned();
    report.url = evil.to_owned();
    report.command = vec![evil.to_owned()];
    report.class_names = vec![evil.to_owned(), "b".to_owned()];
    report.findings.insert(evil.to_owned(), serde_json::json!({ evil: [evil] }));
    report.machine.host = Some(evil.to_owned());
    let page = page(&[report]);
    assert!(!page.contains("<script") && !page.contains("<img") && page.contains("&lt;script"));
    // An empty result also gives a page.
    let mut empty = fixture::single();
    empty.steps.clear();
    assert!(super::page(&[empty]).contains("There are no steps"));
}
