//! The tables of a suite as Markdown, for use in documents: the machine, the programs, the results and the checks.

use super::combination;
use super::effects::references;
use super::figures::{heading, shown};
use crate::document::{Cell, StepEntry, SuiteReport};
use crate::measure::Measure;
use crate::pairs::{failed_share, other_responses, ratio};
use std::fmt::Write as _;

/// Returns all steps with results, each with a heading, a table and the results of its checks.
pub(super) fn tables(report: &SuiteReport) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}. {} interleaved repetitions of {} s, with the order of the servers reversed in every second one; servers \
         on core {}, client on core {}. Figures are medians with minimum and maximum; ratios are medians of the ratios \
         within each repetition, with 95 % confidence intervals.\n",
        report.machine,
        report.repetitions,
        report.seconds,
        cores(&report.server_cores),
        cores(&report.client_cores)
    );
    if report.quick {
        text.push_str("**A quick run, which only verifies that everything works: do not quote these figures.**\n\n");
    }
    let _ = writeln!(text, "{}\n", versions(report));
    for step in report.steps.iter().filter(|step| step.cells.iter().any(|cell| !cell.figures.is_empty())) {
        add_step(&mut text, report, step);
    }
    text
}

fn cores(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    if cores.is_empty() { "any".to_owned() } else { cores.join(", ") }
}

/// Returns the versions of the programs, without duplicates.
fn versions(report: &SuiteReport) -> String {
    let servers = report.servers.iter().filter_map(|server| server.version.clone());
    let clients = report.steps.iter().flat_map(|step| &step.clients);
    let clients = clients.filter_map(|line| Some(line.split_once(" (")?.1.strip_suffix(')')?.to_owned()));
    let mut versions: Vec<String> = Vec::new();
    for version in servers.chain(clients) {
        if !versions.contains(&version) {
            versions.push(version);
        }
    }
    format!("Programs: {}.", versions.join("; "))
}

/// Returns the measures in a step's table: those of its checks, and its rate. The ratios refer to the first measure.
fn measures(report: &SuiteReport, step: &StepEntry) -> Vec<String> {
    let judged = report.checks.iter().filter(|check| check.step == step.name).map(|check| check.measure.clone());
    // If some servers are measured with flatout bench and others with other clients, the step compares clients.
    let compares_clients = !step.bench.is_empty() && !step.clients.is_empty();
    let cost = if compares_clients { Measure::ClientCpuPerRequest } else { Measure::ServerCpuPerRequest };
    let mut measures: Vec<String> = Vec::new();
    let has_failed = step.cells.iter().any(|cell| failed_share(cell).is_some_and(|share| share > 0.0));
    let more = [cost, Measure::RequestsPerS].into_iter().chain(has_failed.then_some(Measure::ErrorShare));
    for name in judged.chain(more.map(|measure| measure.name().to_owned())) {
        let is_known = step.cells.iter().any(|cell| cell.figure(&name).is_some());
        if is_known && !measures.contains(&name) {
            measures.push(name);
        }
    }
    measures
}

fn add_step(text: &mut String, report: &SuiteReport, step: &StepEntry) {
    let measures = measures(report, step);
    let _ = writeln!(text, "### {}\n", if step.about.is_empty() { &step.name } else { &step.about });
    let references = references(step);
    let columns = || {
        let variables = step.variables.iter().cloned();
        let ratios = references.iter().map(|server| format!("× {server}"));
        variables.chain(["server".to_owned()]).chain(measures.iter().map(|name| heading(name))).chain(ratios)
    };
    let _ = writeln!(text, "| {} |", columns().collect::<Vec<_>>().join(" | "));
    let left = step.variables.len() + 1;
    let _ = writeln!(text, "|{}{}", "---|".repeat(left), "---:|".repeat(columns().count() - left));
    for cell in &step.cells {
        let mut row: Vec<String> = cell.values.iter().map(|(_, value)| value.clone()).collect();
        row.push(cell.server.clone());
        row.extend(measures.iter().map(|name| figure(cell, name)));
        row.extend(references.iter().map(|server| beside(step, cell, server, &measures)));
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
    for check in report.checks.iter().filter(|check| check.step == step.name) {
        for finding in &check.findings {
            let values = combination(&finding.values);
            let found = match (finding.ratio, finding.ratio_range) {
                (Some(ratio), Some((low, high))) => {
                    format!("{ratio:.2} × {} [{low:.2} – {high:.2}]{}{values}", finding.than, sep(&values))
                }
                _ => finding.sentence.clone(),
            };
            let _ = writeln!(text, "- {} (**{}**): {found}", check.name, finding.verdict.word());
        }
    }
    for cell in &step.cells {
        if let Some(why) = &cell.absent {
            let values = combination(&cell.values);
            let _ = writeln!(text, "- {}{}{values} was left out: {}", cell.server, sep(&values), why.text);
        }
    }
    for line in other_responses(step, references) {
        let _ = writeln!(text, "- {line}");
    }
    text.push('\n');
}

const fn sep(values: &str) -> &'static str {
    if values.is_empty() { "" } else { ", " }
}

/// Formats a median with minimum and maximum, or a dash if the figure is valid in no run.
fn figure(cell: &Cell, measure: &str) -> String {
    cell.figure(measure).map_or_else(
        || "–".to_owned(),
        |figure| {
            let [median, min, max] = [figure.median, figure.min, figure.max].map(|value| shown(&figure.unit, value));
            format!("{median} [{min} – {max}]")
        },
    )
}

/// Formats the figure of a server as a multiple of the reference server's figure, for the first measure.
fn beside(step: &StepEntry, cell: &Cell, reference: &str, measures: &[String]) -> String {
    if cell.server == reference {
        return "1".to_owned();
    }
    let of = step.cells.iter().find(|other| other.server == reference && other.values == cell.values);
    let found = of.zip(measures.first()).and_then(|(of, measure)| ratio(cell, of, measure));
    found
        .map_or_else(|| "–".to_owned(), |ratio| format!("{:.2} [{:.2} – {:.2}]", ratio.estimate, ratio.low, ratio.high))
}
