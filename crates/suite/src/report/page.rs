//! The HTML page: the results of the checks come first, the information for repeating the run last.

use super::{Runs, checks_by_weight, headline, left_out_by_only, memory, rank, repeat, seeds, steps};
use crate::document::{CheckEntry, SuiteReport, Verdict};
use flatout_report::html::{date, document};
use maud::{Markup, html};

/// The style sheet of this page, in addition to that of the lab's pages.
const MORE_STYLE: &str = include_str!("page.css");

pub(super) fn page(report: &SuiteReport, runs: Runs<'_>) -> String {
    let header = html! {
        h1 { (report.suite) }
        p { (report.about) }
        (verdict(report))
    };
    let main = html! {
        (checks(report))
        (repeat::troubles(report))
        (steps::all(report, runs))
        (memory::section(report))
        (rank::section(report))
        (seeds::section(report))
        (steps::glossary(report))
        (repeat::servers(report))
        (repeat::method(report))
    };
    document(&format!("{} – suite report", report.suite), MORE_STYLE, &header, &main)
}

fn verdict(report: &SuiteReport) -> Markup {
    let is_missed = report.checks.iter().any(|check| check.verdict == Verdict::Missed);
    let is_open = checks_by_weight(report).iter().any(|check| check.verdict.is_open());
    let class = match (is_missed || !report.troubles.is_empty(), is_open || report.quick || report.interrupted) {
        (true, _) => "invalid",
        (false, true) => "failed",
        (false, false) => "good",
    };
    let absent = report.servers.iter().filter_map(|server| Some((server, server.absent.as_ref()?)));
    html! { section.verdict.(class) {
        p.headline { (headline(report)) }
        ul {
            @for (server, why) in absent { li { "Left out: " (server.name) ": " (why.text) } }
            @for testbed in &report.testbeds { @if let Some(why) = &testbed.absent { li { "Left out: testbed " (testbed.name) ": " (why.text) } } }
            @if let Some(line) = left_out_by_only(report) { li { (line) } }
        }
        p.facts { (date(report.begun_unix_ms)) ", flatout " (report.flatout_version) ", " (report.machine.cpu_model) }
    } }
}

fn checks(report: &SuiteReport) -> Markup {
    let checks = checks_by_weight(report);
    html! { @if !checks.is_empty() { section {
        h2 { "Checks" }
        @for check in checks {
            h3 { span.mark.(class_of(check.verdict)) { (check.verdict.word()) } " " (check.name) }
            (findings(check))
        }
    } } }
}

fn findings(check: &CheckEntry) -> Markup {
    html! {
        @if check.findings.is_empty() { p.note { "None of its figures was measured." } }
        ul.findings { @for finding in &check.findings { li.(class_of(finding.verdict)) {
        (finding.sentence)
    } } } }
}

const fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::NotShown | Verdict::NotJudged => "open",
        Verdict::Missed => "missed",
    }
}
