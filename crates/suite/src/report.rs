//! Reports of a suite: one self-contained page of HTML, and text for a terminal.
//!
//! Both have the same content. Results where flatout is not ahead are worded like those where it is; figures of other
//! hardware are marked; omitted figures are replaced by the reason.

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
use crate::document::{CheckEntry, SuiteReport, Verdict};
use flatout_load::report::RunReport;
use flatout_report::style::Style;
use flatout_units::show;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Finds the result of one measurement by its path in the bundle.
pub type Runs<'a> = &'a dyn Fn(&str) -> Option<RunReport>;

/// The page. `runs` gives the results of single measurements, for the classic views and the machine's limit beside them;
/// where it gives none, those are left out.
pub fn html(report: &SuiteReport, runs: Runs<'_>) -> String {
    page::page(report, runs)
}

/// Writes the page into a bundle's folder, as `report.html`.
///
/// # Errors
/// What the system said.
pub fn write(report: &SuiteReport, folder: &Path) -> io::Result<()> {
    let runs = |path: &str| flatout_report::bundle::read(&folder.join(path)).ok();
    write_whole(&folder.join("report.html"), html(report, &runs).as_bytes())
}

/// The same in short, for a terminal.
pub fn text(report: &SuiteReport, style: Style) -> String {
    text::text(report, style)
}

/// The tables of all steps as Markdown, for documents.
pub fn tables(report: &SuiteReport) -> String {
    tables::tables(report)
}

/// The result of all checks, in one sentence.
pub fn headline(report: &SuiteReport) -> String {
    let count = |verdict: Verdict| report.checks.iter().filter(|check| check.verdict == verdict).count();
    let [met, missed, not_shown, not_judged] =
        [Verdict::Met, Verdict::Missed, Verdict::NotShown, Verdict::NotJudged].map(count);
    let mut text = match report.checks.len() {
        0 => "This suite checks nothing.".to_owned(),
        all => format!(
            "{met} of {} met, {missed} missed, {not_shown} not shown, {not_judged} not judged.",
            show::plural(all as u64, "check", "checks")
        ),
    };
    if report.quick {
        text.push_str(" A quick run: its figures only show that the suite works; do not quote them.");
    }
    if report.interrupted {
        text.push_str(" The run was interrupted; this report has the results until then.");
    }
    if !report.troubles.is_empty() {
        let count = report.troubles.len() as u64;
        // Writing to a String cannot fail.
        let _ = write!(text, " {} on the way.", show::plural(count, "thing went wrong", "things went wrong"));
    }
    text
}

/// A combination of values in words: `size 317, clients 5`.
fn combination(values: &[(String, String)]) -> String {
    let words: Vec<String> = values.iter().map(|(name, value)| format!("{name} {value}")).collect();
    words.join(", ")
}

/// Checks in the order in which a reader wants them: what was missed first.
fn checks_by_weight(report: &SuiteReport) -> Vec<&CheckEntry> {
    let mut checks: Vec<&CheckEntry> = report.checks.iter().collect();
    checks.sort_by_key(|check| std::cmp::Reverse(check.verdict));
    checks
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
