//! The short report for a terminal: a table for each step, followed by the results of the checks. Problems are not
//! repeated, because they were printed when they occurred.

use super::columns::of_table;
use super::effects::references;
use super::figures::{heading, shown};
use super::unsound::unsound_lines;
use super::{checks_by_weight, headline, left_out_by_only, steps_shown};
use crate::document::{StepEntry, SuiteReport, Verdict};
use crate::pairs::other_responses;
use flatout_report::page::TextPage;
use flatout_report::style::{Style, Weight};
use flatout_units::show;
use std::fmt::Write as _;

/// Maximum number of measures in a table. More would not fit in a line.
const COLUMNS_MAX: usize = 6;

pub(super) fn text(report: &SuiteReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    page.painted(Weight::Strong, &format!("{}: {}", report.suite, report.about));
    for step in steps_shown(report) {
        add_step(&mut page, report, step);
    }
    page.plain("");
    // The most important check comes last, because the reader of a terminal looks there first.
    for check in checks_by_weight(report).iter().rev() {
        let weight = match check.verdict {
            Verdict::Met => Weight::Good,
            Verdict::NotShown | Verdict::NotJudged => Weight::Warning,
            Verdict::Missed => Weight::Bad,
        };
        page.plain(&format!("{}: {}", check.name, style.paint(weight, check.verdict.word())));
        for finding in &check.findings {
            page.painted(Weight::Faint, &format!("  {}", finding.sentence));
        }
    }
    page.plain(&measurements(report));
    if let Some(line) = left_out_by_only(report) {
        page.plain(&line);
    }
    for server in &report.servers {
        if let Some(why) = &server.absent {
            let line = format!("{} was left out: {}", server.name, why.text);
            page.painted(Weight::Warning, &line);
        }
    }
    for why in report.testbeds.iter().filter_map(|testbed| testbed.absent.as_ref()) {
        page.painted(Weight::Warning, &why.text);
    }
    if report.interrupted {
        let line = "interrupted; to resume, run the suite again with the same --out";
        page.painted(Weight::Warning, line);
    }
    let is_missed = report.checks.iter().any(|check| check.verdict == Verdict::Missed);
    let weight = if is_missed || !report.troubles.is_empty() { Weight::Bad } else { Weight::Good };
    page.painted(weight, &headline(report));
    page.finish()
}

/// Returns the number of measurements, of measurements with an invalid figure, and of measurements without any valid
/// figure.
fn measurements(report: &SuiteReport) -> String {
    let runs = || report.steps.iter().flat_map(|step| &step.cells).flat_map(|cell| &cell.runs);
    let mut text = show::plural(runs().count() as u64, "measurement", "measurements");
    let partly = runs().filter(|run| !run.invalid.is_empty() && run.has_sound()).count();
    if partly > 0 {
        let _ = write!(text, "; in {partly} of them, some figures are not valid and are left out");
    }
    let worthless = runs().filter(|run| !run.has_sound()).count();
    if worthless > 0 {
        let _ = write!(text, "; in {worthless} of them, no figure is valid");
    }
    text
}

fn add_step(page: &mut TextPage, report: &SuiteReport, step: &StepEntry) {
    let about = if step.about.is_empty() { String::new() } else { format!("  {}", step.about) };
    let style = page.style();
    page.plain("");
    page.plain(&format!("{}{}", style.paint(Weight::Strong, &step.name), style.paint(Weight::Faint, &about)));
    if let Some(why) = &step.absent {
        page.painted(Weight::Warning, &format!("  left out: {}", why.text));
        return;
    }
    let mut measures = of_table(report, step);
    measures.truncate(COLUMNS_MAX);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let head =
        step.variables.iter().cloned().chain(["server".to_owned()]).chain(measures.iter().map(|name| heading(name)));
    rows.push(head.collect());
    for cell in &step.cells {
        let mut row: Vec<String> = cell.values.iter().map(|(_, value)| value.clone()).collect();
        row.push(if cell.has_invalid() { format!("{} *", cell.server) } else { cell.server.clone() });
        if cell.figures.is_empty() {
            row.push(cell.absent.as_ref().map_or_else(|| "no valid run".to_owned(), |why| why.name.clone()));
        } else {
            let of = |name: &String| {
                cell.figure(name).map_or_else(|| "-".to_owned(), |figure| shown(&figure.unit, figure.median))
            };
            row.extend(measures.iter().map(of));
        }
        rows.push(row);
    }
    page.table(&rows, step.variables.len() + 1);
    for line in unsound_lines(step) {
        page.painted(Weight::Warning, &format!("  * {line}"));
    }
    for line in other_responses(step, references(step)) {
        page.painted(Weight::Warning, &format!("  {line}"));
    }
}
