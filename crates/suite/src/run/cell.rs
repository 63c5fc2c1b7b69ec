//! A cell's runs to its figures.

use crate::document::{Cell, Figure, ProcessCost, RunEntry};
use crate::measure::Measure;
use crate::model::Step;
use flatout_lab::spread::Spread;
use flatout_load::judge::{Invalid, InvalidReason};
use flatout_load::report::RunReport;

/// One run as it stands in the result.
pub(super) fn entry(
    step: &Step,
    repetition: u32,
    path: &str,
    report: &RunReport,
    processes: Vec<ProcessCost>,
) -> RunEntry {
    let (invalid, cost_only) = judged(step, report.steps.iter().flat_map(|level| &level.invalid));
    let failing = report.steps.iter().flat_map(|step| &step.failing);
    let mut entry = RunEntry {
        repetition,
        path: path.to_owned(),
        invalid,
        failing: failing.map(|reason| reason.text.clone()).collect(),
        cost_only,
        processes,
    };
    // A search judges its trials one by one, and those by which it learnt where the client ends are part of it.
    if Measure::KneePerS.value(report, "", &[]).is_some() {
        entry.invalid.clear();
        entry.cost_only = false;
    }
    entry.invalid.dedup();
    entry.failing.dedup();
    entry
}

/// What is said against a run, and whether that is of the client alone or of other processes, which leaves what the server
/// cost. Beyond what a server bears, what waits and what is never begun is what the step is about, as it is of `--overload`.
fn judged<'i>(step: &Step, invalid: impl Iterator<Item = &'i Invalid>) -> (Vec<String>, bool) {
    let is_by_client = |invalid: &&Invalid| {
        matches!(invalid.reason, InvalidReason::ClientSaturated | InvalidReason::ScheduleLag | InvalidReason::Crowded)
    };
    let is_meant = |invalid: &&Invalid| match invalid.reason {
        InvalidReason::ClientSaturated => step.client_limit,
        InvalidReason::ConnectionsShort | InvalidReason::RateNotReached => step.failures_expected,
        _ => false,
    };
    let left: Vec<&Invalid> = invalid.filter(|invalid| !is_meant(invalid)).collect();
    let cost_only = !left.is_empty() && left.iter().all(is_by_client);
    (left.into_iter().map(|invalid| invalid.text.clone()).collect(), cost_only)
}

/// What a run says, measure by measure.
pub(super) fn values(cell: &Cell, report: &RunReport, processes: &[ProcessCost]) -> Vec<(Measure, f64)> {
    let value = |measure: &Measure| Some((*measure, measure.value(report, &cell.server, processes)?));
    Measure::ALL.iter().filter_map(value).collect()
}

/// Adds a run to its cell. One that must not be believed is listed, and in no figure; one in which the client was the limit,
/// or late, says what the server cost.
pub(super) fn add(cell: &mut Cell, entry: RunEntry, values: Vec<(Measure, f64)>) {
    let (is_valid, cost_only) = (entry.invalid.is_empty(), entry.cost_only);
    cell.runs.push(entry);
    for (measure, value) in values.into_iter().filter(|(measure, _)| is_valid || cost_only && measure.is_cost()) {
        let found = cell.figures.iter_mut().find(|figure| figure.measure == measure.name());
        match found {
            Some(figure) => figure.values.push(value),
            None => cell.figures.push(Figure {
                measure: measure.name().to_owned(),
                unit: measure.unit().to_owned(),
                values: vec![value],
                ..Figure::default()
            }),
        }
    }
    for figure in &mut cell.figures {
        let spread: Spread = figure.values.iter().copied().collect();
        (figure.median, figure.min, figure.max) = (spread.median(), spread.min(), spread.max());
    }
}

#[cfg(test)]
mod tests {
    use super::{add, judged};
    use crate::document::{Cell, RunEntry};
    use crate::measure::Measure;
    use crate::model::Step;
    use flatout_load::judge::{Invalid, InvalidReason};

    #[test]
    fn a_run_that_must_not_be_believed_is_in_no_figure() {
        let mut cell = Cell::default();
        let values = |value| vec![(Measure::RequestsPerS, value)];
        add(&mut cell, RunEntry::default(), values(10.0));
        add(&mut cell, RunEntry { invalid: vec!["late".to_owned()], ..RunEntry::default() }, values(99.0));
        add(&mut cell, RunEntry::default(), values(20.0));
        assert_eq!((cell.runs.len(), cell.has_invalid()), (3, true));
        let figure = cell.figure("requests-per-s").unwrap();
        assert_eq!((figure.values.as_slice(), figure.median), ([10.0, 20.0].as_slice(), 15.0));
    }

    #[test]
    fn where_the_client_was_the_limit_the_servers_cost_is_a_figure_and_nothing_else() {
        let made = |step: &Step, reason| {
            let invalid = [Invalid { reason, text: "so".to_owned() }];
            let (invalid, cost_only) = judged(step, invalid.iter());
            let mut cell = Cell::default();
            let entry = RunEntry { invalid, cost_only, ..RunEntry::default() };
            add(&mut cell, entry, vec![(Measure::RequestsPerS, 10.0), (Measure::ServerCpuPerRequest, 5.0)]);
            let has = |name: &str| cell.figure(name).is_some();
            (has("requests-per-s"), has("server-cpu-per-request"), cell.has_invalid())
        };
        let plain = Step::default();
        let client_limit = Step { client_limit: true, ..Step::default() };
        let beyond = Step { failures_expected: true, ..Step::default() };
        assert_eq!(made(&plain, InvalidReason::ClientSaturated), (false, true, true));
        assert_eq!(made(&client_limit, InvalidReason::ClientSaturated), (true, true, false));
        for step in [&plain, &client_limit, &beyond] {
            assert_eq!(made(step, InvalidReason::ScheduleLag), (false, true, true));
            assert_eq!(made(step, InvalidReason::LittlesLaw), (false, false, true));
        }
        // Beyond what a server bears arrivals wait; that is a fault of any other run.
        for waits in [InvalidReason::ConnectionsShort, InvalidReason::RateNotReached] {
            assert_eq!((made(&beyond, waits), made(&plain, waits)), ((true, true, false), (false, false, true)));
        }
    }
}
