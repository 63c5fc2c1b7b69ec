//! Tests each kind of check with the verdicts met, missed and not judged.

use super::{judge, with_unit};
use crate::document::{Cell, Figure, RunEntry, StepEntry, SuiteReport, Verdict, Why};
use crate::{Suite, read};
use flatout_config::MemorySource;
use flatout_load::judge::{Evidence, Invalid, InvalidReason, figures};
use flatout_load::stats::responses::Responses;
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
    read(path, &MemorySource::new().file(path, text)).unwrap()
}

fn cell(server: &str, n: &str, measure: &str, values: &[f64]) -> Cell {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let figure = Figure {
        measure: measure.to_owned(),
        unit: crate::measure::Measure::parse(measure).unwrap().unit().to_owned(),
        values: values.to_vec(),
        repetitions: (0..values.len() as u32).collect(),
        median: sorted[sorted.len() / 2],
        min: sorted[0],
        max: sorted[sorted.len() - 1],
    };
    Cell {
        server: server.to_owned(),
        values: vec![("n".to_owned(), n.to_owned())],
        figures: vec![figure],
        runs: (0..).zip(values).map(|(repetition, _)| RunEntry { repetition, ..RunEntry::default() }).collect(),
        ..Cell::default()
    }
}

/// Returns a run of a closed loop that is invalid for these reasons.
fn invalid(reasons: &[InvalidReason]) -> RunEntry {
    let invalid: Vec<Invalid> =
        reasons.iter().map(|reason| Invalid { reason: *reason, text: "so".to_owned() }).collect();
    RunEntry {
        figures: figures::verdicts(&Evidence::default(), &invalid),
        invalid: invalid.iter().map(|invalid| format!("{}: {}", invalid.reason.name(), invalid.text)).collect(),
        ..RunEntry::default()
    }
}

fn step(name: &str, cells: Vec<Cell>) -> StepEntry {
    let servers = ["a", "b", "c"].map(str::to_owned).to_vec();
    StepEntry { name: name.to_owned(), servers, cells, ..StepEntry::default() }
}

/// Returns verdict and sentence of the only finding.
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
        ("at-least 2; times \"b\"", Verdict::Met, ", 2.00 × b's 50.0/s; required: at least 2.00 ×: met"),
        ("at-least 2.01; times \"b\"", Verdict::Missed, ", 2.00 × b's 50.0/s; required: at least 2.01 ×: missed"),
        ("at-least 1; times \"best\"", Verdict::Missed, ", 0.50 × c's 200/s; required: at least 1.00 ×: missed"),
        ("at-most 4; times-step \"t\"", Verdict::Met, ", 4.00 × step t's 25.0/s; required: at most 4.00 ×: met"),
        ("at-least 100", Verdict::Met, "; required: at least 100/s: met"),
        ("at-most 99", Verdict::Missed, "; required: at most 99.0/s: missed"),
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
    report.steps[0].cells[2].runs[0] = invalid(&[InvalidReason::ClientSaturated]);
    assert!(
        one(&best, &report).1.ends_with("not judged: c's requests-per-s is not valid in any run: client-saturated: so")
    );
    report.steps[0].cells[2].runs.clear();
    report.steps[0].cells[2].absent =
        Some(Why { name: "program-missing".to_owned(), text: "c is not installed".to_owned() });
    assert!(one(&best, &report).1.ends_with("not judged: c was left out: c is not installed"));
    report.steps[0].cells[0].runs = vec![RunEntry::default(); 7];
    let (verdict, sentence) = one(&best, &report);
    assert_eq!(verdict, Verdict::NotJudged);
    assert!(sentence.ends_with("a's requests-per-s is valid in only 3 of 7 runs"), "{sentence}");
    report.steps.clear();
    assert!(one(&best, &report).1.ends_with("not judged: step s has not run"));
}

#[test]
fn where_the_client_was_the_limit_cost_is_judged() {
    let mut report = report();
    let check = format!("{FIGURE} at-least 1.25; times \"best\"; client-limit \"server-cpu-per-request\"");
    assert_eq!(one(&check, &report).0, Verdict::Missed, "rates are known");
    // One of the other servers might be faster than the load it was offered, so no rate is known to be the best.
    let c = &mut report.steps[0].cells[2];
    c.figures.clear();
    c.runs[0] = invalid(&[InvalidReason::ClientSaturated, InvalidReason::ConnectionsNotReached]);
    let (verdict, sentence) = one(&check, &report);
    assert_eq!(verdict, Verdict::NotJudged);
    assert!(sentence.contains("c's requests-per-s is not valid in any run: client-saturated: so"), "{sentence}");
    let costs = [("a", 8_000.0), ("b", 30_000.0), ("c", 10_000.0)];
    for ((server, cost), cell) in costs.iter().zip(&mut report.steps[0].cells) {
        cell.figures.extend(self::cell(server, "1", "server-cpu-per-request", &[*cost]).figures);
        cell.runs.truncate(1);
    }
    assert_eq!(one(&check, &report).0, Verdict::NotJudged, "what made it invalid was not the client alone");
    report.steps[0].cells[2].runs[0] = invalid(&[InvalidReason::ClientSaturated]);
    let (verdict, sentence) = one(&check, &report);
    assert_eq!(
        (verdict, sentence.as_str()),
        (
            Verdict::Met,
            "s, n 1: the client was the bottleneck, or started requests late: a's server-cpu-per-request is 8.00 µs, 0.80 × \
             c's 10.0 µs; required: at most 0.80 ×: met"
        )
    );
}

#[test]
fn servers_that_took_turns_are_compared_turn_by_turn() {
    let mut report = report();
    // The machine was slow in the second turn. By medians, 60 compared with 90, `a` would be ahead.
    report.steps[0].cells[0] = cell("a", "1", "requests-per-s", &[100.0, 50.0, 90.0]);
    report.steps[0].cells[1] = cell("b", "1", "requests-per-s", &[110.0, 60.0, 60.0]);
    let check = format!("{FIGURE} at-least 1; times \"b\"");
    let (verdict, sentence) = one(&check, &report);
    // 90.0 and 60.0 in the third turn: the range of the ratios includes 1, so neither is ahead.
    assert_eq!(verdict, Verdict::NotShown);
    assert!(
        sentence
            .contains("90.0/s (50.0/s to 100/s), 0.91 × b's 60.0/s (60.0/s to 110/s) per repetition (0.83 to 1.50);"),
        "{sentence}"
    );
    assert!(sentence.ends_with("required: at least 1.00 ×: inconclusive"), "{sentence}");
    for (bound, verdict) in [("0.8", Verdict::Met), ("1.6", Verdict::Missed)] {
        assert_eq!(one(&format!("{FIGURE} at-least {bound}; times \"b\""), &report).0, verdict, "{bound}");
    }
    // Seven turns that agree have a narrow confidence interval.
    let around = |figure: f64| [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0].map(|share| share * figure);
    report.steps[0].cells[0] = cell("a", "1", "requests-per-s", &around(105.0));
    report.steps[0].cells[1] = cell("b", "1", "requests-per-s", &around(100.0));
    assert_eq!(one(&check, &report).0, Verdict::Met);
    report.steps[0].cells[0] = cell("a", "1", "requests-per-s", &[100.0, 50.0, 90.0]);
    report.steps[0].cells[1] = cell("b", "1", "requests-per-s", &[110.0, 60.0, 60.0]);
    // A single pair is not enough for a comparison by turns.
    for repetition in &mut report.steps[0].cells[1].figures[0].repetitions {
        *repetition += 2;
    }
    let (verdict, sentence) = one(&check, &report);
    assert_eq!(verdict, Verdict::Met);
    assert!(sentence.contains(", 1.50 × b's 60.0/s (60.0/s to 110/s);"), "{sentence}");
}

#[test]
fn the_best_is_of_all_who_were_there() {
    let mut report = report();
    let best = format!("{FIGURE} at-least 2; times \"best\"");
    let why = |name: &str| Some(Why { name: name.to_owned(), text: String::new() });
    // The server died in a later repetition: its earlier results count.
    report.steps[0].cells[2].absent = why("died");
    assert!(one(&best, &report).1.contains("0.50 × c's"));
    // The server died before its first result, so it might have been the best.
    report.steps[0].cells[2].runs.clear();
    report.steps[0].cells[2].figures.clear();
    assert_eq!(one(&best, &report).0, Verdict::NotJudged);
    report.steps[0].cells[2].absent = why("program-missing");
    assert!(one(&best, &report).1.contains("2.00 × b's"));
    // The sentence says so if a peak covers only some of the values.
    let peak = "step \"s\"; measure \"requests-per-s\"; of \"a\"; where \"n\" 2; at-least 0.95; times-peak \"n\"";
    report.steps[0].cells[0].figures.clear();
    let (_, sentence) = one(peak, &report);
    assert!(sentence.contains("1.00 × its best over n (known at 1 of 2)'s 40.0/s"), "{sentence}");
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

/// Adds responses to every run of a cell: their statuses with counts, and their mean size.
fn respond(cell: &mut Cell, statuses: &[(u16, u64)], mean_bytes: u64, are_named: bool) {
    let count: u64 = statuses.iter().map(|(_, count)| count).sum();
    let by_status: std::collections::BTreeMap<u16, u64> = statuses.iter().copied().collect();
    let responses = serde_json::json!({
        "statuses": by_status, "count": count, "body_bytes": count * mean_bytes, "are_mixed": false,
        "are_named": are_named,
    });
    let responses: Option<Responses> = serde_json::from_value(responses).unwrap();
    cell.runs.iter_mut().for_each(|run| run.responses.clone_from(&responses));
}

#[test]
fn servers_with_other_statuses_are_not_compared() {
    let check = |measure: &str, cells: Vec<Cell>| {
        let report = SuiteReport { steps: vec![step("s", cells)], ..SuiteReport::default() };
        one(&format!("step \"s\"; measure \"{measure}\"; of \"a\"; where \"n\" 1; at-most 10; times \"b\""), &report)
    };
    let references = ["b".to_owned()];
    let differ = |step: &StepEntry| crate::pairs::other_responses(step, &references);
    for (measure, is_judged) in [("requests-per-s", false), ("knee-per-s", false), ("memory", true)] {
        let cells = |are_named: bool, statuses: &[(u16, u64)], mean_bytes: u64| {
            let mut cells = vec![cell("a", "1", measure, &[10.0; 3]), cell("b", "1", measure, &[20.0; 3])];
            respond(&mut cells[0], statuses, mean_bytes, are_named);
            respond(&mut cells[1], &[(200, 500)], 100, are_named);
            cells
        };
        let redirects = cells(false, &[(302, 900)], 0);
        assert_eq!(crate::pairs::pairs(&redirects[0], &redirects[1], measure).len(), if is_judged { 3 } else { 0 });
        let why = "the statuses of the responses differ (a: 100.0 % status 302; b: 100.0 % status 200)";
        let (verdict, sentence) = check(measure, redirects.clone());
        assert_eq!((verdict == Verdict::Met, sentence.contains(why)), (is_judged, !is_judged), "{sentence}");
        let lines = differ(&step("s", redirects));
        assert!(lines.len() == 1 && lines[0].starts_with("n 1: b and a are not compared, because the"), "{lines:?}");
        assert_eq!(check(measure, cells(true, &[(302, 900)], 0)).0, Verdict::Met, "the suite names the statuses");
        // Sizes are said, and do not prevent a comparison.
        let pages = cells(false, &[(200, 900)], 10);
        assert_eq!(differ(&step("s", pages.clone())), ["n 1: a's responses are smaller: 10 B on average, b's 100 B"]);
        assert_eq!(check(measure, pages).0, Verdict::Met);
        assert_eq!(differ(&step("s", cells(false, &[(200, 900)], 100))), Vec::<String>::new());
    }
}

#[test]
fn a_finding_names_the_servers_from_which_the_best_was_not_chosen() {
    let mut report = report();
    let cells = &mut report.steps[0].cells;
    respond(&mut cells[0], &[(200, 500)], 100, false);
    respond(&mut cells[1], &[(200, 500)], 100, false);
    respond(&mut cells[2], &[(302, 900)], 0, false);
    let best = format!("{FIGURE} at-least 2; times \"best\"");
    let (verdict, sentence) = one(&best, &report);
    assert_eq!(verdict, Verdict::Met);
    let why = "c does not take part, because the statuses of the responses differ (a: 100.0 % status 200; c: 100.0 %";
    assert!(sentence.contains(&format!("2.00 × b's 50.0/s; required: at least 2.00 ×: met; {why}")), "{sentence}");
    // If no server can be compared, the check is not judged.
    respond(&mut report.steps[0].cells[1], &[(204, 500)], 0, false);
    let (verdict, sentence) = one(&best, &report);
    assert_eq!(verdict, Verdict::NotJudged);
    assert!(sentence.contains("not judged: the statuses of the responses differ"), "{sentence}");
}

#[test]
fn servers_whose_requests_failed_in_different_shares_are_not_compared() {
    let cells = |measure: &str, share: f64| {
        let failed = cell("b", "1", "error-share", &[share; 3]).figures;
        let mut cells =
            vec![cell("a", "1", measure, &[10.0, 11.0, 12.0]), cell("b", "1", measure, &[20.0, 21.0, 22.0])];
        cells[0].figures.extend(cell("a", "1", "error-share", &[0.0; 3]).figures);
        cells[1].figures.extend(failed);
        cells
    };
    for (measure, share, is_compared) in [
        ("requests-per-s", 0.0, true),
        ("requests-per-s", 0.94, false),
        ("response-p50", 0.94, false),
        ("server-cpu-per-request", 0.94, false),
        ("goodput-per-s", 0.94, true),
        ("memory", 0.94, true),
    ] {
        let cells = cells(measure, share);
        let why = crate::pairs::incomparable(&cells[0], &cells[1], measure);
        assert_eq!(why.is_none(), is_compared, "{measure}: {why:?}");
        assert_eq!(crate::pairs::pairs(&cells[0], &cells[1], measure).len(), if is_compared { 3 } else { 0 });
        let report = SuiteReport { steps: vec![step("s", cells)], ..SuiteReport::default() };
        let check = format!("step \"s\"; measure \"{measure}\"; of \"a\"; where \"n\" 1; at-most 10; times \"b\"");
        let (verdict, sentence) = one(&check, &report);
        let refusal = "not judged: 94.0 % of b's requests failed and 0.0 % of a's";
        assert_eq!(
            (verdict == Verdict::NotJudged, sentence.contains(refusal)),
            (!is_compared, !is_compared),
            "{sentence}"
        );
    }
}
