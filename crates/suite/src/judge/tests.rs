//! Each kind of check, met, missed and not judged.

use super::{judge, with_unit};
use crate::document::{Cell, Figure, RunEntry, StepEntry, SuiteReport, Verdict, Why};
use crate::{Suite, read};
use flatout_config::Memory;
use std::path::Path;

fn suite(checks: &str) -> Suite {
    let text = format!(
        "suite \"x\" {{ let \"n\" 1 2
            server \"a\" {{ program \"a\" }}; server \"b\" {{ program \"b\" }}; server \"c\" {{ program \"c\" }}
            step \"s\" {{ servers \"a\" \"b\" \"c\"; path \"/{{n}}\" }}
            step \"t\" {{ servers \"a\"; path \"/{{n}}\" }}
            {checks} }}"
    );
    let path = Path::new("a.kdl");
    read(path, &Memory::new().file(path, text)).unwrap()
}

fn cell(server: &str, n: &str, measure: &str, values: &[f64]) -> Cell {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let figure = Figure {
        measure: measure.to_owned(),
        unit: crate::measure::Measure::parse(measure).unwrap().unit().to_owned(),
        values: values.to_vec(),
        median: sorted[sorted.len() / 2],
        min: sorted[0],
        max: sorted[sorted.len() - 1],
    };
    Cell {
        server: server.to_owned(),
        values: vec![("n".to_owned(), n.to_owned())],
        figures: vec![figure],
        runs: vec![RunEntry::default(); values.len()],
        ..Cell::default()
    }
}

fn step(name: &str, cells: Vec<Cell>) -> StepEntry {
    let servers = ["a", "b", "c"].map(str::to_owned).to_vec();
    StepEntry { name: name.to_owned(), servers, cells, ..StepEntry::default() }
}

/// Verdict and sentence of the only finding.
fn one(check: &str, report: &SuiteReport) -> (Verdict, String) {
    let entries = judge(&suite(&format!("check \"c\" {{ {check} }}")), report, false);
    assert_eq!(entries[0].findings.len(), 1, "{entries:?}");
    (entries[0].verdict, entries[0].findings[0].sentence.clone())
}

fn report() -> SuiteReport {
    let rate = |server, n, values: &[f64]| cell(server, n, "requests-per-s", values);
    let s = vec![
        rate("a", "1", &[90.0, 100.0, 110.0]),
        rate("b", "1", &[50.0]),
        rate("c", "1", &[200.0]),
        rate("a", "2", &[40.0]),
    ];
    SuiteReport { steps: vec![step("s", s), step("t", vec![rate("a", "1", &[25.0])])], ..SuiteReport::default() }
}

const FIGURE: &str = "step \"s\"; measure \"requests-per-s\"; of \"a\"; where \"n\" 1;";

#[test]
fn met_and_missed_are_said_in_one_form() {
    let report = report();
    let ours = "s, n 1: a's requests-per-s is 100/s (90.0/s to 110/s)";
    for (check, verdict, sentence) in [
        ("at-least 2; times \"b\"", Verdict::Met, ", 2.00 × b's 50.0/s; asked: at least 2.00 ×: met"),
        ("at-least 2.01; times \"b\"", Verdict::Missed, ", 2.00 × b's 50.0/s; asked: at least 2.01 ×: missed"),
        ("at-least 1; times \"best\"", Verdict::Missed, ", 0.50 × c's 200/s; asked: at least 1.00 ×: missed"),
        ("at-most 4; times-step \"t\"", Verdict::Met, ", 4.00 × step t's 25.0/s; asked: at most 4.00 ×: met"),
        ("at-least 100", Verdict::Met, "; asked: at least 100/s: met"),
        ("at-most 99", Verdict::Missed, "; asked: at most 99.0/s: missed"),
    ] {
        assert_eq!(one(&format!("{FIGURE} {check}"), &report), (verdict, format!("{ours}{sentence}")), "{check}");
    }
    let peak = "step \"s\"; measure \"requests-per-s\"; of \"a\"; where \"n\" 2; at-least 0.95; times-peak \"n\"";
    let (verdict, sentence) = one(peak, &report);
    assert_eq!(verdict, Verdict::Missed);
    assert!(sentence.contains("0.40 × its best over n's 100/s"), "{sentence}");
}

#[test]
fn what_cannot_be_judged_says_why() {
    let mut report = report();
    let best = format!("{FIGURE} at-least 1; times \"c\"");
    report.steps[0].cells[2].figures.clear();
    report.steps[0].cells[2].runs[0].invalid.push("the client was busy".to_owned());
    assert!(one(&best, &report).1.ends_with("not judged: no run of c can be believed: the client was busy"));
    report.steps[0].cells[2].runs.clear();
    report.steps[0].cells[2].absent =
        Some(Why { name: "program-missing".to_owned(), text: "c is not installed".to_owned() });
    assert!(one(&best, &report).1.ends_with("not judged: c was left out: c is not installed"));
    report.steps[0].cells[0].runs = vec![RunEntry::default(); 7];
    let (verdict, sentence) = one(&best, &report);
    assert_eq!(verdict, Verdict::NotJudged);
    assert!(sentence.ends_with("only 3 of 7 runs of a can be believed"), "{sentence}");
    report.steps.clear();
    assert!(one(&best, &report).1.ends_with("not judged: the step s has not run"));
}

#[test]
fn the_worst_finding_is_the_checks_own() {
    let check = "check \"c\" { step \"s\"; measure \"requests-per-s\"; of \"a\"; at-least 50 }";
    let entries = judge(&suite(check), &report(), false);
    let verdicts: Vec<Verdict> = entries[0].findings.iter().map(|finding| finding.verdict).collect();
    assert_eq!(
        (verdicts.as_slice(), entries[0].verdict),
        ([Verdict::Met, Verdict::Missed].as_slice(), Verdict::Missed)
    );
}

#[test]
fn figures_have_units_for_people() {
    for (value, unit, shown) in [
        (12_500.0, "ns", "12.5 µs"),
        (2.5e9, "ns", "2.50 s"),
        (1_864.0 * 1_024.0, "B", "1.82 MiB"),
        (11_250_000.0, "B/s", "11.2 MB/s"),
        (0.0, "", "0.00"),
        (0.0001, "", "1.00e-4"),
    ] {
        assert_eq!(with_unit(value, unit), shown);
    }
}
