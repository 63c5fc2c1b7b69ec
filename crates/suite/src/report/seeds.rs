//! Earlier figures, on other hardware, beside today's.
//!
//! A table's own lines say how it belongs to the suite, among those that say where it is from:
//!
//! - `# beside STEP VARIABLE: MEASURE=COLUMN[*NUMBER] …`: rows of its first column are values of that variable, and the
//!   columns are those measures, in their units after they are multiplied;
//! - `# rank STEP MEASURE COLUMN MHZ`: today's servers take their place in the table, by that measure in the step, see
//!   [`super::rank`].

use super::figures::shown;
use crate::document::{SeedTable, StepEntry, SuiteReport};
use crate::measure::Measure;
use flatout_units::show;
use maud::{Markup, html};

/// Prefix of a table's directives.
const BESIDE: &str = "beside ";
const RANK: &str = "rank ";

/// A column that stands beside a measure of a step.
pub(super) struct Beside<'a> {
    table: &'a SeedTable,
    /// The variable whose values the first column has.
    pub variable: String,
    column: usize,
    factor: f64,
    /// Name of the column.
    pub name: &'a str,
}

impl Beside<'_> {
    /// The figure at a value of the variable, in the measure's unit.
    pub(super) fn at(&self, value: &str) -> Option<f64> {
        let wanted: f64 = value.parse().ok()?;
        let row = self.table.rows.iter().find(|row| {
            row.first().and_then(|cell| cell.parse::<f64>().ok()).is_some_and(|found| (found - wanted).abs() < 1e-9)
        })?;
        Some(row.get(self.column)?.parse::<f64>().ok()? * self.factor)
    }

    /// Its name in a legend, which always mentions the other hardware.
    pub(super) fn title(&self) -> String {
        format!("{}, other hardware", when(self.table))
    }
}

/// Whose figures a table has: its first line up to a colon, such as `Coyote, 1998`.
fn when(table: &SeedTable) -> &str {
    let first = table.source.first().map_or(table.name.as_str(), |line| line.trim());
    first.split_once(':').map_or(first, |(name, _)| name)
}

/// The columns that stand beside a measure of a step.
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

/// The content of a `rank` directive.
pub(super) struct Ranked<'a> {
    /// The table.
    pub table: &'a SeedTable,
    /// The step that today's figures are of.
    pub step: &'a str,
    /// Their measure.
    pub measure: &'a str,
    /// The column they are ranked by.
    pub column: usize,
    /// The column with the clock of a machine with one processor, in MHz.
    pub mhz_column: usize,
}

/// The tables in which today's servers take a place.
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

/// All tables, as they are.
pub(super) fn section(report: &SuiteReport) -> Markup {
    let plain = report.seeds.iter().filter(|table| ranked_of(table).is_none());
    html! { @for table in plain { section {
        h2 { "The first experiment: " (when(table)) }
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

/// The source of the figures.
pub(super) fn provenance(table: &SeedTable) -> Markup {
    let is_ours = |line: &&String| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with(BESIDE) && !line.starts_with(RANK)
    };
    let lines: Vec<&str> = table.source.iter().filter(is_ours).map(|line| line.trim()).collect();
    html! { @if !lines.is_empty() { p.note { (lines.join(" ")) } } }
}

/// A cell of a table: numbers with their thousands apart, nothing as a dash.
pub(super) fn pretty(cell: &str) -> String {
    match cell.parse::<u64>() {
        Ok(number) if number >= 10_000 => show::count(number),
        _ if cell.is_empty() => "–".to_owned(),
        _ => cell.to_owned(),
    }
}

/// A figure of other hardware in the unit of a measure.
pub(super) fn shown_as(measure: &str, value: f64) -> String {
    shown(Measure::parse(measure).map_or("", Measure::unit), value)
}
