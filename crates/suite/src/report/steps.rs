//! The results of each step: table, charts, effects and classic reports.

use super::columns::{is_open, of_table};
use super::figures::{explained, heading, shown, spread};
use super::seeds::{beside, shown_as};
use super::unsound::unsound_lines;
use super::{Runs, combination, effects, pictures, steps_shown};
use crate::document::{Cell, StepEntry, SuiteReport};
use crate::measure::Measure;
use crate::pairs::other_responses;
use flatout_report::classic::Classic;
use flatout_units::show;
use maud::{Markup, html};

/// Maximum number of classic reports per step. The bundle contains all of them.
const VIEWS_MAX: usize = 48;

/// The measures whose effects are shown if there are enough repetitions.
const EFFECTS: &[&str] = &["requests-per-s", "server-cpu-per-request"];

/// Maximum number of lines about missing figures, and about servers that are not compared. The JSON contains all of
/// them.
const PROBLEMS_MAX: usize = 30;

/// Maximum number of capacity statements per step.
const CAPACITIES_MAX: usize = 30;

/// Returns the results of all steps.
pub(super) fn all(report: &SuiteReport, runs: Runs<'_>) -> Markup {
    html! { @for step in steps_shown(report) { section {
        h2 { "Step: " (step.name) }
        @if !step.about.is_empty() { p { (step.about) } }
        @if let Some(absent) = &step.absent {
            p.bad { "Left out: " (absent.text) }
        } @else {
            (listed(absences(step)))
            (listed(other_responses(step, effects::references(step))))
            (table(report, step))
            (capacity(step))
            (findings(step, runs))
            (pictures::all(report, step))
            (effects::section(step, EFFECTS))
            (limits(step, runs))
            (views(step, runs))
        }
        p.facts {
            @if let Some(testbed) = &step.testbed { "In the testbed " (testbed) ". " }
            "Every measurement: " code { "flatout bench URL " (step.bench.join(" ")) }
        }
    } } }
}

/// Returns the missing figures with the reasons.
fn absences(step: &StepEntry) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for cell in &step.cells {
        let invalid = cell.runs.iter().find_map(|run| run.invalid.first());
        let line = match (&cell.absent, invalid) {
            (Some(why), _) => format!("{}: {}", cell.server, why.text),
            (None, Some(invalid)) if cell.figures.is_empty() => {
                let place =
                    if cell.values.is_empty() { String::new() } else { format!(", {}", combination(&cell.values)) };
                format!("{}{place}: no figure is valid in any run: {invalid}", cell.server)
            }
            _ => continue,
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Lists problems of a step.
fn listed(mut lines: Vec<String>) -> Markup {
    lines.truncate(PROBLEMS_MAX);
    html! { @if !lines.is_empty() { ul { @for line in &lines { li.bad { (line) } } } } }
}

fn table(report: &SuiteReport, step: &StepEntry) -> Markup {
    let measures = of_table(report, step);
    let seeds: Vec<_> = measures
        .iter()
        .flat_map(|measure| beside(report, step, measure).into_iter().map(move |column| (measure, column)))
        .collect();
    let rows: Vec<&Cell> = step.cells.iter().filter(|cell| !cell.figures.is_empty()).collect();
    html! { @if !rows.is_empty() { div.wide { table {
        thead { tr {
            @for name in &step.variables { th scope="col" { (name) } }
            th scope="col" { "server" }
            @for measure in &measures { th scope="col" title=(explained(measure)) { (heading(measure)) } }
            @for (_, column) in &seeds { th.other scope="col" { (column.title()) ": " (column.name.replace('_', " ")) } }
        } }
        tbody { @for cell in rows { tr.invalid[cell.has_invalid()] {
            @for (_, value) in &cell.values { td { (value) } }
            th scope="row" { (cell.server) @if cell.has_invalid() { " *" } }
            @for measure in &measures { td {
                @match cell.figure(measure) {
                    Some(figure) => { (shown(&figure.unit, figure.median)) @if let Some(spread) = spread(figure) { br; small { (spread) } } },
                    None => "–",
                }
            } }
            @for (measure, column) in &seeds {
                td.other { @match cell.values.iter().find(|(name, _)| *name == column.variable).and_then(|(_, value)| column.at(value)) {
                    Some(value) => (shown_as(measure, value)),
                    None => "–",
                } }
            }
        } } }
        caption {
            "Medians of the repetitions; below them, the minimum, the maximum and the standard deviation (σ) of a single repetition."
            @if step.cells.iter().any(Cell::has_invalid) { " * In one or more runs, the figure is not valid; those runs are left out." }
        }
    } }
    @for line in unsound_lines(step) { p.facts { (line) "." } }
    } }
}

/// Returns the capacity statements: the rate of each server per hour, and the link that it would fill.
fn capacity(step: &StepEntry) -> Markup {
    if is_open(step) {
        return html! {};
    }
    let of = |cell: &Cell| {
        let (per_s, bytes) = (cell.figure("requests-per-s")?.median, cell.figure("bytes-per-s")?.median);
        (per_s > 0.0).then(|| {
            let place =
                if cell.values.is_empty() { String::new() } else { format!(" at {}", combination(&cell.values)) };
            format!(
                "{}{place}: {} hits per hour, enough to fill a link of {} Mbit/s.",
                cell.server,
                show::figure(per_s * 3600.0),
                show::figure(bytes * 8.0 / 1e6)
            )
        })
    };
    let lines: Vec<String> = step.cells.iter().filter_map(of).take(CAPACITIES_MAX).collect();
    html! { @if !lines.is_empty() { details open[lines.len() <= 3] {
        summary { "Link capacity" }
        ul { @for line in &lines { li { (line) } } }
    } } }
}

/// Returns the results of searches of `flatout bench`, such as the knee, in the sentences of the findings.
fn findings(step: &StepEntry, runs: Runs<'_>) -> Markup {
    let asks = |argument: &String| matches!(argument.as_str(), "--find-knee" | "--overload" | "--compare");
    if !step.bench.iter().any(asks) {
        return html! {};
    }
    let of = |cell: &Cell| {
        let run = runs(&cell.runs.first()?.path)?;
        let sentences =
            run.findings.values().filter_map(|finding| finding.get("sentence")?.as_str().map(str::to_owned));
        let sentences: Vec<String> = sentences.collect();
        let place = if cell.values.is_empty() { String::new() } else { format!(" at {}", combination(&cell.values)) };
        (!sentences.is_empty()).then(|| format!("{}{place}: {}", cell.server, sentences.join("; ")))
    };
    let lines: Vec<String> = step.cells.iter().filter_map(of).collect();
    html! { @if !lines.is_empty() { ul { @for line in &lines { li { (line) } } } } }
}

/// Returns the machine's limit, if the step measures it.
fn limits(step: &StepEntry, runs: Runs<'_>) -> Markup {
    if !step.bench.iter().any(|argument| argument == "--limit") {
        return html! {};
    }
    let rows = step.cells.iter().filter_map(|cell| {
        let limit = cell.runs.iter().find_map(|run| runs(&run.path)?.limit)?;
        Some((cell, limit))
    });
    let rows: Vec<_> = rows.collect();
    html! { @if !rows.is_empty() {
        h3 { "Compared with the machine's limit" }
        div.wide { table {
            thead { tr { @for head in ["server", "limit", "reached", "share"] { th scope="col" { (head) } } } }
            tbody { @for (cell, limit) in &rows { tr {
                th scope="row" { (cell.server) @if !cell.values.is_empty() { ", " (combination(&cell.values)) } }
                td { (show::figure(limit.value)) " " (limit.unit) }
                td { (show::figure(limit.reached)) " " (limit.unit) }
                td { (show::percent(limit.share)) }
            } } }
            caption { @if let Some((_, limit)) = rows.first() { "The limit is " (limit.words) ", measured in the same way at the same time." } }
        } }
    } }
}

/// Returns the classic reports of a step with `view`.
fn views(step: &StepEntry, runs: Runs<'_>) -> Markup {
    let Some(view) = step.view.as_deref().and_then(|name| Classic::parse(name).ok()) else { return html! {} };
    let shown = step.cells.iter().filter_map(|cell| {
        let run = cell.runs.iter().find(|run| run.invalid.is_empty()).or(cell.runs.first())?;
        Some((cell, run, view.print(&runs(&run.path)?)))
    });
    let shown: Vec<_> = shown.take(VIEWS_MAX).collect();
    html! { @if !shown.is_empty() {
        h3 { "In the format of " (view.name()) }
        @for (cell, run, text) in &shown { details {
            summary { (cell.server) @if !cell.values.is_empty() { ", " (combination(&cell.values)) } ", repetition " (run.repetition + 1) }
            pre { (text) }
        } }
    } }
}

/// Explains the measures in the tables of the steps.
pub(super) fn glossary(report: &SuiteReport) -> Markup {
    let mut names: Vec<String> = Vec::new();
    for name in report.steps.iter().flat_map(|step| of_table(report, step)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    html! { section {
        h2 { "What the figures mean" }
        dl { @for name in names.iter().filter(|name| Measure::parse(name).is_some()) {
            dt { (heading(name)) } dd { (explained(name)) }
        } }
    } }
}
