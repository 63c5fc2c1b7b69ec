//! Reports of a suite: a self-contained HTML page, and text for a terminal.
//!
//! Both have the same content. Missed targets are worded like met targets, figures from other hardware are marked, and
//! a missing figure is replaced by the reason.

mod bars;
mod columns;
mod effects;
mod figures;
mod memory;
mod page;
mod pictures;
mod rank;
mod repeat;
mod seeds;
mod steps;
mod tables;
mod text;
mod unsound;

use crate::bundle::write_whole;
use crate::document::{CheckEntry, StepEntry, SuiteReport, Verdict};
use flatout_load::report::RunReport;
use flatout_report::style::Style;
use flatout_units::show;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Finds the result of one measurement, given its path in the bundle.
pub type Runs<'a> = &'a dyn Fn(&str) -> Option<RunReport>;

/// Returns the HTML page. `runs` finds the results of single measurements, for the classic views and the machine's
/// limit. Parts whose results are not found are left out.
pub fn html(report: &SuiteReport, runs: Runs<'_>) -> String {
    page::page(report, runs)
}

/// Writes the page into a bundle's folder, as `report.html`.
///
/// # Errors
/// Returns the error of the system if the page cannot be written.
pub fn write(report: &SuiteReport, folder: &Path) -> io::Result<()> {
    let runs = |path: &str| flatout_report::bundle::read(&folder.join(path)).ok();
    write_whole(&folder.join("report.html"), html(report, &runs).as_bytes())
}

/// Returns a short report for a terminal.
pub fn text(report: &SuiteReport, style: Style) -> String {
    text::text(report, style)
}

/// Returns the tables of all steps as Markdown, for use in documents.
pub fn tables(report: &SuiteReport) -> String {
    tables::tables(report)
}

/// Summarises the results of all checks in one sentence.
pub fn headline(report: &SuiteReport) -> String {
    let checks = checks_by_weight(report);
    let count = |verdict: Verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let [met, missed, not_shown, not_judged] =
        [Verdict::Met, Verdict::Missed, Verdict::NotShown, Verdict::NotJudged].map(count);
    let mut text = match checks.len() {
        0 if report.checks.is_empty() => "This suite has no checks.".to_owned(),
        0 => "These steps have no checks.".to_owned(),
        all => format!(
            "{met} of {} met, {missed} missed, {not_shown} inconclusive, {not_judged} not judged.",
            show::plural(all as u64, "check", "checks")
        ),
    };
    if report.quick {
        text.push_str(" This was a quick run, which only tests that the suite works; do not quote its figures.");
    }
    if report.interrupted {
        text.push_str(" The run was interrupted; this report contains the results up to that point.");
    }
    if !report.troubles.is_empty() {
        let count = report.troubles.len() as u64;
        // Writing to a String cannot fail.
        let _ = write!(text, " {} during the run.", show::plural(count, "problem occurred", "problems occurred"));
    }
    text
}

/// Formats a combination of values as text: `size 317, clients 5`.
fn combination(values: &[(String, String)]) -> String {
    let words: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
    words.join(", ")
}

/// Returns the steps that `--only` does not leave out.
fn steps_shown(report: &SuiteReport) -> impl Iterator<Item = &StepEntry> {
    report.steps.iter().filter(|step| !step.is_left_out_by_only())
}

/// Returns a line with the number of steps that `--only` leaves out, and of their checks; `None` if it leaves out none.
fn left_out_by_only(report: &SuiteReport) -> Option<String> {
    let steps = report.steps.len() - steps_shown(report).count();
    let checks = report.checks.len() - checks_by_weight(report).len();
    (steps > 0).then(|| {
        let steps = show::plural(steps as u64, "step", "steps");
        format!("{steps} and {} left out by --only", show::plural(checks as u64, "check", "checks"))
    })
}

/// Returns the checks of the steps that `--only` does not leave out, in order of importance: missed checks come first.
fn checks_by_weight(report: &SuiteReport) -> Vec<&CheckEntry> {
    let is_shown = |check: &&CheckEntry| !report.step(&check.step).is_some_and(StepEntry::is_left_out_by_only);
    let mut checks: Vec<&CheckEntry> = report.checks.iter().filter(is_shown).collect();
    checks.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    checks
}

#[cfg(test)]
mod tests;
