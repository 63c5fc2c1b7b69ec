//! Computation of a cell's figures from its runs.

use crate::document::{Cell, Figure, ProcessCost, RunEntry};
use crate::measure::Measure;
use crate::model::Step;
use flatout_lab::spread::Spread;
use flatout_load::judge::figures::{self, FigureVerdict, Soundness};
use flatout_load::judge::{Evidence, Invalid, InvalidReason};
use flatout_load::report::{RunReport, StepReport};
use flatout_load::stats::responses::Responses;

/// Creates the entry of a run in the suite's result.
pub(super) fn entry(
    step: &Step,
    repetition: u32,
    path: &str,
    report: &RunReport,
    processes: Vec<ProcessCost>,
) -> RunEntry {
    let failing = report.steps.iter().flat_map(|step| &step.failing);
    let knee = Measure::KneePerS.value(report, "", &[]);
    let mut entry = RunEntry {
        repetition,
        path: path.to_owned(),
        never: Measure::ALL
            .iter()
            .filter(|measure| measure.is_never(report))
            .map(|measure| measure.name().to_owned())
            .collect(),
        failing: failing.map(|reason| reason.text.clone()).collect(),
        responses: Some(responses(report.steps.iter().map(rate_and_responses), knee)).filter(Responses::has_successes),
        processes,
        ..RunEntry::default()
    };
    // A search judges its trials one by one, and expects trials in which the client was saturated.
    if knee.is_none() {
        let levels = report.steps.iter().map(|level| (&level.evidence, level.invalid.as_slice()));
        (entry.invalid, entry.figures) = judged(step, levels);
    }
    entry.failing.dedup();
    entry
}

/// Largest relative difference of two rates that are the same.
const RATE_ROUNDING: f64 = 1e-6;

/// Returns the rate of arrivals of a level, if the clock determines it, and the responses of the level.
fn rate_and_responses(level: &StepReport) -> (Option<f64>, Responses) {
    (level.offered.visits_per_s, Responses::of(&level.record, &level.plan))
}

/// Returns the responses of the levels that yield the figures: of those up to the knee if the run searched for it,
/// because a server may respond otherwise to a higher rate, and otherwise of all levels.
fn responses(levels: impl Iterator<Item = (Option<f64>, Responses)>, knee_per_s: Option<f64>) -> Responses {
    let rate_max = knee_per_s.map_or(f64::INFINITY, |knee| knee * (1.0 + RATE_ROUNDING));
    let used = levels.filter(|(rate, _)| rate.is_none_or(|rate| rate <= rate_max));
    used.fold(Responses::default(), |all, (_, of_level)| all.and(&of_level))
}

/// Returns the reasons figures of the run are invalid, and the verdict on each of these figures. The reasons come from
/// the bench. Reasons that the step expects are left out: for example, requests that wait or are never started are
/// expected beyond a server's capacity, as with `--overload`.
fn judged<'l>(
    step: &Step,
    levels: impl Iterator<Item = (&'l Evidence, &'l [Invalid])>,
) -> (Vec<String>, Vec<FigureVerdict>) {
    let is_meant = |invalid: &&Invalid| match invalid.reason {
        InvalidReason::ClientSaturated => step.client_limit,
        InvalidReason::ConnectionsShort | InvalidReason::RateNotReached => step.failures_expected,
        _ => false,
    };
    let mut verdicts: Vec<FigureVerdict> = figures::Figure::ALL.iter().copied().map(FigureVerdict::sound).collect();
    let mut texts = Vec::new();
    for (evidence, invalid) in levels {
        let left: Vec<Invalid> = invalid.iter().filter(|invalid| !is_meant(invalid)).cloned().collect();
        for verdict in &mut verdicts {
            verdict.merge(&figures::verdict(verdict.figure, evidence, &left));
            // An interrupted run cannot be compared with a complete run.
            for invalid in left.iter().filter(|invalid| invalid.reason.is_of_a_part()) {
                verdict.add(invalid.reason, Soundness::Unknown);
            }
        }
        texts.extend(left.iter().map(|invalid| format!("{}: {}", invalid.reason.name(), invalid.text)));
    }
    texts.dedup();
    verdicts.retain(|verdict| !verdict.soundness.is_sound());
    (texts, verdicts)
}

/// Returns the values of a run by measure.
pub(super) fn values(cell: &Cell, report: &RunReport, processes: &[ProcessCost]) -> Vec<(Measure, f64)> {
    let value = |measure: &Measure| Some((*measure, measure.value(report, &cell.server, processes)?));
    Measure::ALL.iter().filter_map(value).collect()
}

/// Adds a run to its cell, with the values of the measures that are valid.
pub(super) fn add(cell: &mut Cell, entry: RunEntry, values: Vec<(Measure, f64)>) {
    let repetition = entry.repetition;
    let values: Vec<_> = values.into_iter().filter(|(measure, _)| entry.unsound(*measure).is_empty()).collect();
    cell.runs.push(entry);
    for (measure, value) in values {
        let found = cell.figures.iter_mut().find(|figure| figure.measure == measure.name());
        match found {
            Some(figure) => {
                figure.values.push(value);
                figure.repetitions.push(repetition);
            }
            None => cell.figures.push(Figure {
                measure: measure.name().to_owned(),
                unit: measure.unit().to_owned(),
                values: vec![value],
                repetitions: vec![repetition],
                ..Figure::default()
            }),
        }
    }
    // The median of the other repetitions would be that of the good ones.
    let is_never = |figure: &Figure| cell.runs.iter().any(|run| run.never.contains(&figure.measure));
    cell.figures.retain(|figure| !is_never(figure));
    for figure in &mut cell.figures {
        let spread: Spread = figure.values.iter().copied().collect();
        (figure.median, figure.min, figure.max) = (spread.median(), spread.min(), spread.max());
    }
}

#[cfg(test)]
mod tests {
    use super::{add, judged, responses};
    use crate::document::{Cell, RunEntry};
    use crate::measure::Measure;
    use crate::model::Step;
    use flatout_load::judge::{Evidence, Invalid, InvalidReason};

    fn run_of(step: &Step, repetition: u32, reasons: &[InvalidReason]) -> RunEntry {
        let invalid: Vec<Invalid> =
            reasons.iter().map(|reason| Invalid { reason: *reason, text: "so".to_owned() }).collect();
        // All times are late, so a reason affects every figure that it can.
        let evidence = Evidence { lag_p50_ns: u64::MAX, ..Evidence::crowded_throughout() };
        let (invalid, figures) = judged(step, [(&evidence, invalid.as_slice())].into_iter());
        RunEntry { repetition, invalid, figures, ..RunEntry::default() }
    }

    #[test]
    fn a_figure_is_of_the_repetitions_in_which_it_holds() {
        let mut cell = Cell::default();
        let step = Step::default();
        let values = |rate| vec![(Measure::RequestsPerS, rate), (Measure::ServerCpuPerRequest, 1e9 / rate)];
        add(&mut cell, run_of(&step, 0, &[]), values(10.0));
        add(&mut cell, run_of(&step, 1, &[InvalidReason::ClientSaturated]), values(100.0));
        add(&mut cell, run_of(&step, 2, &[]), values(20.0));
        assert_eq!((cell.runs.len(), cell.has_invalid(), cell.has_worthless()), (3, true, false));
        let rate = cell.figure("requests-per-s").unwrap();
        assert_eq!((rate.values.as_slice(), rate.repetitions.as_slice()), (&[10.0, 20.0][..], &[0, 2][..]));
        assert!((rate.median - 15.0).abs() < 1e-9);
        let cost = cell.figure("server-cpu-per-request").unwrap();
        assert_eq!((cost.values.as_slice(), cost.repetitions.as_slice()), (&[1e8, 1e7, 5e7][..], &[0, 1, 2][..]));
        add(&mut cell, run_of(&step, 3, &[InvalidReason::CountsDiffer]), values(30.0));
        assert!(cell.has_worthless() && cell.figure("server-cpu-per-request").unwrap().values.len() == 3);
    }

    #[test]
    fn responses_are_those_of_the_levels_that_yield_the_figures() {
        let of = |status: u16| {
            let responses = serde_json::json!({
                "statuses": { (status.to_string()): 10 }, "count": 10, "body_bytes": 0, "are_mixed": false,
                "are_named": false,
            });
            serde_json::from_value(responses).unwrap()
        };
        let levels = || [(Some(100.0), of(200)), (Some(200.0), of(204)), (Some(400.0), of(302))].into_iter();
        assert_eq!(responses(levels(), Some(200.0)).shares(), "50.0 % status 200, 50.0 % status 204");
        assert_eq!(responses(levels(), Some(100.0)).shares(), "100.0 % status 200");
        assert_eq!(responses(levels(), None).statuses(), 3, "a sweep");
        assert_eq!(responses([(None, of(200))].into_iter(), None).shares(), "100.0 % status 200", "a closed loop");
        assert!(!responses([].into_iter(), None).has_successes());
    }

    #[test]
    fn a_reason_takes_what_it_takes_from_a_bench() {
        let kept = |step: &Step, reason| {
            let mut cell = Cell::default();
            let measures = [
                Measure::RequestsPerS,
                Measure::ResponseP50,
                Measure::ResponseP99,
                Measure::ServerCpuPerRequest,
                Measure::Memory,
                Measure::ErrorShare,
            ];
            add(&mut cell, run_of(step, 0, &[reason]), measures.iter().map(|measure| (*measure, 1.0)).collect());
            let names: Vec<&str> = cell.figures.iter().map(|figure| figure.measure.as_str()).collect();
            names.join(" ")
        };
        let plain = Step::default();
        let client_limit = Step { client_limit: true, ..Step::default() };
        let beyond = Step { failures_expected: true, ..Step::default() };
        let all = "requests-per-s response-p50 response-p99 server-cpu-per-request memory error-share";
        let cost = "server-cpu-per-request memory error-share";
        assert_eq!(kept(&plain, InvalidReason::ClientSaturated), cost);
        assert_eq!(kept(&client_limit, InvalidReason::ClientSaturated), all);
        for step in [&plain, &client_limit, &beyond] {
            // The client kept the rate, but its times are late.
            assert_eq!(kept(step, InvalidReason::ScheduleLag), format!("requests-per-s {cost}"));
            assert_eq!(kept(step, InvalidReason::LittlesLaw), "");
            assert_eq!(kept(step, InvalidReason::NotMeasured), "", "less than was asked for is no repetition");
        }
        // Beyond a server's capacity, arrivals wait; in any other run, that is an error.
        assert_eq!(kept(&beyond, InvalidReason::RateNotReached), all);
        assert_eq!(kept(&plain, InvalidReason::RateNotReached), cost);
        assert_eq!(kept(&beyond, InvalidReason::ConnectionsShort), all);
    }
}
