//! Selection of a step's measures for its table and its charts.

use crate::document::{StepEntry, SuiteReport};

/// The usual measures of a table, in this order. A measure is shown only if it is meaningful for the step.
const USUAL: &[&str] = &[
    "offered-per-s",
    "requests-per-s",
    "goodput-per-s",
    "connections-per-s",
    "knee-per-s",
    "kept-share",
    "bytes-per-s",
    "bytes-per-s-peak",
    "server-cpu-per-request",
    "all-cpu-per-request",
    "response-mean",
    "response-p99",
    "error-share",
    "memory-peak",
];

/// Maximum number of charts per step.
const DRAWN_MAX: usize = 3;

/// Returns the measures in the step's table.
pub(super) fn of_table(report: &SuiteReport, step: &StepEntry) -> Vec<String> {
    let judged = judged(report, step);
    let says_something = |measure: &&&str| {
        let medians = || step.cells.iter().filter_map(|cell| cell.figure(measure)).map(|figure| figure.median);
        if judged.iter().any(|name| name == **measure) {
            return medians().next().is_some();
        }
        match **measure {
            "goodput-per-s" => is_open(step) && medians().next().is_some(),
            "connections-per-s" => opens_many(step) && medians().next().is_some(),
            "bytes-per-s-peak" => (step.testbed.is_some() || has_large(step)) && medians().next().is_some(),
            "error-share" => medians().any(|share| share > 0.0),
            "all-cpu-per-request" => step.cells.iter().flat_map(|cell| &cell.runs).any(|run| run.processes.len() > 1),
            _ => medians().next().is_some(),
        }
    };
    let mut measures: Vec<String> = USUAL.iter().filter(says_something).map(|name| (*name).to_owned()).collect();
    let others = judged.into_iter().filter(|name| step.cells.iter().any(|cell| cell.figure(name).is_some()));
    for name in others {
        if !measures.contains(&name) {
            measures.push(name);
        }
    }
    measures
}

/// Returns the measures that are drawn: those of the step's checks, and the rate.
pub(super) fn of_pictures(report: &SuiteReport, step: &StepEntry) -> Vec<String> {
    let primary = if is_open(step) { "goodput-per-s" } else { "requests-per-s" };
    let mut measures = vec![primary.to_owned()];
    for name in judged(report, step).into_iter().chain(["server-cpu-per-request".to_owned()]) {
        if !measures.contains(&name) {
            measures.push(name);
        }
    }
    measures.retain(|name| step.cells.iter().any(|cell| cell.figure(name).is_some()));
    measures.truncate(DRAWN_MAX);
    measures
}

/// Returns the measures of this step's checks.
fn judged(report: &SuiteReport, step: &StepEntry) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for check in report.checks.iter().filter(|check| check.step == step.name) {
        if !names.contains(&check.measure) {
            names.push(check.measure.clone());
        }
    }
    names
}

/// Returns whether the step is an open loop.
pub(super) fn is_open(step: &StepEntry) -> bool {
    step.cells.iter().any(|cell| cell.figure("offered-per-s").is_some())
}

/// Returns whether responses are so long that the rate of the best second is meaningful.
fn has_large(step: &StepEntry) -> bool {
    /// Mean length from which responses count as long, in bytes.
    const LARGE_BYTES: f64 = 1_048_576.0;
    step.cells.iter().any(|cell| {
        let median = |name: &str| cell.figure(name).map_or(0.0, |figure| figure.median);
        median("bytes-per-s") > LARGE_BYTES * median("requests-per-s")
    })
}

/// Returns whether connections are opened during the measurement.
fn opens_many(step: &StepEntry) -> bool {
    // Results stored by earlier versions contain the earlier name `--per`.
    let asks = |argument: &String| matches!(argument.as_str(), "--close" | "--arrival-unit" | "--per" | "--calls");
    step.bench.iter().any(asks)
}
