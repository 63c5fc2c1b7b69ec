mod fixture;

use super::{effects, headline, html, text};
use crate::document::{CheckEntry, StepEntry, SuiteReport, Verdict};
use crate::why::{LEFT_OUT_BY_ONLY, Reason};
use fixture::{EVIL, hostile, report};
use flatout_report::style::Style;

/// Everything that would make a browser load something.
const LOADS: [&str; 9] = ["src=", "href=", "url(", "@import", "<link", "<script", "<iframe", "<img", "xlink"];

fn page(report: &SuiteReport) -> String {
    html(report, &|_| None)
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_suite_is_told_whole() {
    let page = page(&report());
    assert_has(
        &page,
        &[
            "<!DOCTYPE html>",
            "default-src 'none'",
            "1 of 3 checks met, 1 missed, 0 inconclusive, 1 not judged. 1 problem occurred during the run.",
            "Left out: h2o: h2o is not installed; the Debian package h2o provides it",
            "Left out: testbed wire",
            // Missed checks are worded like met checks, and come first.
            "flatout has 50.0 µs, nginx has 83.3 µs",
            "flatout has 83.3 µs, nginx has 50.0 µs",
            "nginx ended by signal 9",
            "suites/coyote.kdl:40",
            "[emerg] something",
            // Figures from other hardware are marked.
            "Coyote, 1998, other hardware",
            "84.2",
            "The original experiment: Coyote, 1998",
            // The rank, and the figures per MHz.
            "Comparison with 1 published results",
            "class=\"today\"",
            "per dollar",
            "not given",
            "5.33",
            // Capacity: 20,080 per second are 72,288,000 per hour.
            "hits per hour",
            "against the offered load",
            "95 % CI",
            "workers 1",
            "To repeat this run",
        ],
    );
    assert!(page.find("ours is ahead").unwrap() < page.find("ours costs less").unwrap());
    assert!(!page.contains("rank hits") && !page.contains("beside hits size"), "a table's own lines are not text");
    assert!(LOADS.iter().all(|load| !page.contains(load)), "the page loads something");
}

#[test]
fn what_comes_from_outside_is_text() {
    let page = page(&hostile());
    assert!(!page.contains(EVIL) && !page.contains("<script") && !page.contains("<img"));
    assert_has(&page, &["&lt;script&gt;"]);
}

#[test]
fn nothing_at_all_is_a_page_too() {
    let empty = SuiteReport { quick: true, interrupted: true, ..SuiteReport::default() };
    assert_has(&page(&empty), &["This suite has no checks.", "This was a quick run", "The run was interrupted"]);
    assert!(text(&empty, Style::PLAIN).contains("This suite has no checks."));
}

#[test]
fn effects_have_an_interval_and_are_not_told_of_noise() {
    let report = report();
    let found = effects::of(&report.steps[0], &["requests-per-s", "server-cpu-per-request"]);
    // Two sizes, two compared servers, two measures.
    assert_eq!(found.len(), 8);
    let words: Vec<String> = found.iter().map(effects::Effect::sentence).collect();
    assert!(
        words
            .iter()
            .any(|words| words.contains("nginx (size 317): responses per second is 0.600 times that of flatout")
                && words.contains("nginx is behind")),
        "{words:?}"
    );
    assert!(
        words.iter().any(|words| words.contains("nginx (size 317): server CPU per response is 1.667")
            && words.contains("nginx costs more")),
        "{words:?}"
    );
    // Too few repetitions give no interval.
    let mut few = report.clone();
    for cell in &mut few.steps[0].cells {
        cell.runs.truncate(3);
        for figure in &mut cell.figures {
            figure.values.truncate(3);
        }
    }
    assert!(effects::of(&few.steps[0], &["requests-per-s"]).is_empty());
}

#[test]
fn a_terminal_has_the_same_in_short() {
    let text = text(&report(), Style::PLAIN);
    assert_has(
        &text,
        &[
            "coyote: Pages of two sizes",
            "responses per second",
            "204317  nginx",
            "ours costs less: met",
            "ours is ahead: missed",
            "  flatout has 83.3 µs, nginx has 50.0 µs",
            "72 measurements",
            "h2o was left out: h2o is not installed; the Debian package h2o provides it",
            "network namespaces require root",
            "1 of 3 checks met",
        ],
    );
    assert!(text.lines().all(|line| !line.ends_with(' ')), "{text}");
}

#[test]
fn steps_that_only_leaves_out_are_counted_in_one_line() {
    let mut report = report();
    let (name, check) = (report.steps[0].name.clone(), report.checks[0].clone());
    report.steps.push(StepEntry {
        name: "later".to_owned(),
        absent: Some(Reason::Skipped.why(LEFT_OUT_BY_ONLY)),
        ..StepEntry::default()
    });
    report.checks = vec![check.clone(), CheckEntry { name: "other".to_owned(), step: "later".to_owned(), ..check }];
    let (text, page) = (text(&report, Style::PLAIN), page(&report));
    assert_has(&text, &[&name, "1 step and 1 check left out by --only", "1 of 1 check met"]);
    assert_has(&page, &["1 step and 1 check left out by --only", "1 of 1 check met"]);
    assert!(!text.contains("later") && !text.contains("other:"), "{text}");
    assert!(!page.contains("Step: later"), "{page}");
}

#[test]
fn the_headline_counts_what_came_of_the_checks() {
    let mut report = report();
    report.troubles.clear();
    report.checks.retain(|check| check.verdict == Verdict::Met);
    assert_eq!(headline(&report), "1 of 1 check met, 0 missed, 0 inconclusive, 0 not judged.");
    report.quick = true;
    assert!(headline(&report).ends_with("do not quote its figures."));
}
