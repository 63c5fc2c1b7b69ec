//! Earlier figures from other hardware, shown next to the new figures.
//!
//! Comment lines of a table relate it to the suite:
//!
//! - `# beside STEP VARIABLE: MEASURE=COLUMN[*NUMBER] …`: the first column contains values of the variable. Each named
//!   column, multiplied by its number, contains the measure in its unit;
//! - `# rank STEP MEASURE COLUMN MHZ`: the new servers are ranked in the table by this measure of the step; see
//!   [`super::rank`].

use super::figures::shown;
use crate::document::{SeedTable, StepEntry, SuiteReport};
use crate::measure::Measure;
use flatout_units::show;
use maud::{Markup, html};

/// The prefix of a `beside` directive.
const BESIDE: &str = "beside ";
const RANK: &str = "rank ";

/// A column that is shown next to a measure of a step.
pub(super) struct Beside<'a> {
    table: &'a SeedTable,
    /// Name of the variable in the first column.
    pub variable: String,
    column: usize,
    factor: f64,
    /// Name of the column.
    pub name: &'a str,
}

impl Beside<'_> {
    /// Returns the figure for a value of the variable, in the measure's unit.
    pub(super) fn at(&self, value: &str) -> Option<f64> {
        let wanted: f64 = value.parse().ok()?;
        let row = self.table.rows.iter().find(|row| {
            row.first().and_then(|cell| cell.parse::<f64>().ok()).is_some_and(|found| (found - wanted).abs() < 1e-9)
        })?;
        Some(row.get(self.column)?.parse::<f64>().ok()? * self.factor)
    }

    /// Returns the label for a legend, which says that the figures are from other hardware.
    pub(super) fn title(&self) -> String {
        format!("{}, other hardware", when(self.table))
    }
}

/// Returns where and when a table comes from, such as `Coyote, 1998`: its first line up to the colon.
fn when(table: &SeedTable) -> &str {
    let first = table.source.first().map_or(table.name.as_str(), |line| line.trim());
    first.split_once(':').map_or(first, |(name, _)| name)
}

/// Returns the columns that are shown next to a measure of a step.
pub(super) fn beside<'a>(report: &'a SuiteReport, step: &StepEntry, measure: &str) -> Vec<Beside<'a>> {
    let mut found = Vec::new();
    for table in &report.seeds {
        for line in table.source.iter().filter_map(|line| line.trim().strip_prefix(BESIDE)) {
            let Some((head, columns)) = line.split_once(':') else { continue };
            let Some((of_step, variable)) = head.trim().split_once(' ') else { continue };
            if of_step != step.name {
                continue;
            }
            for (of_measure, column) in columns.split_whitespace().filter_map(|part| part.split_once('=')) {
                let (name, factor) = column.split_once('*').unwrap_or((column, "1"));
                let index = table.columns.iter().position(|column| column == name);
                if let (true, Some(index), Ok(factor)) = (of_measure == measure, index, factor.parse()) {
                    let (name, variable) = (table.columns[index].as_str(), variable.trim().to_owned());
                    found.push(Beside { table, variable, column: index, factor, name });
                }
            }
        }
    }
    found
}

/// A table with its `rank` directive.
pub(super) struct Ranked<'a> {
    /// The table with the directive.
    pub table: &'a SeedTable,
    /// Name of the step with the new figures.
    pub step: &'a str,
    /// Name of the measure of the new figures.
    pub measure: &'a str,
    /// Index of the column by which servers are ranked.
    pub column: usize,
    /// Index of the column with the clock rate in MHz of a machine with one processor.
    pub mhz_column: usize,
}

/// Returns the tables with a `rank` directive.
pub(super) fn ranked(report: &SuiteReport) -> Vec<Ranked<'_>> {
    let of = |table| ranked_of(table);
    report.seeds.iter().filter_map(of).collect()
}

fn ranked_of(table: &SeedTable) -> Option<Ranked<'_>> {
    let line = table.source.iter().find_map(|line| line.trim().strip_prefix(RANK))?;
    let mut words = line.split_whitespace();
    let (step, measure, column, mhz) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let index = |name: &str| table.columns.iter().position(|column| column == name);
    Some(Ranked { table, step, measure, column: index(column)?, mhz_column: index(mhz)? })
}

/// Returns all tables without a `rank` directive, unchanged.
pub(super) fn section(report: &SuiteReport) -> Markup {
    let plain = report.seeds.iter().filter(|table| ranked_of(table).is_none());
    html! { @for table in plain { section {
        h2 { "The original experiment: " (when(table)) }
        p.note { strong { "Other hardware." } " These figures were not measured here and cannot be compared with today's." }
        (provenance(table))
        div.wide { table {
            thead { tr { @for column in &table.columns { th scope="col" { (column.replace('_', " ")) } } } }
            tbody { @for row in &table.rows { tr {
                @for (index, cell) in row.iter().enumerate() {
                    @if index == 0 { th scope="row" { (pretty(cell)) } } @else { td { (pretty(cell)) } }
                }
            } } }
        } }
    } } }
}

/// Returns the source of the figures.
pub(super) fn provenance(table: &SeedTable) -> Markup {
    let is_ours = |line: &&String| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with(BESIDE) && !line.starts_with(RANK)
    };
    let lines: Vec<&str> = table.source.iter().filter(is_ours).map(|line| line.trim()).collect();
    html! { @if !lines.is_empty() { p.note { (lines.join(" ")) } } }
}

/// Formats a cell: numbers have thousands separators, and an empty cell becomes a dash.
pub(super) fn pretty(cell: &str) -> String {
    match cell.parse::<u64>() {
        Ok(number) if number >= 10_000 => show::count(number),
        _ if cell.is_empty() => "–".to_owned(),
        _ => cell.to_owned(),
    }
}

/// Formats a figure from other hardware in the unit of a measure.
pub(super) fn shown_as(measure: &str, value: f64) -> String {
    shown(Measure::parse(measure).map_or("", Measure::unit), value)
}
