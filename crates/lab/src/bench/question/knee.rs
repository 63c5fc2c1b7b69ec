//! The highest rate at which a requirement is met.

use super::at_rate;
use crate::bench::{Ask, Bench, BenchError, BenchReport, Books, Progress};
use flatout_load::judge::validity::REACHED_SHARE_MIN;
use flatout_load::judge::{InvalidReason, Threshold};
use flatout_load::report::StepReport;
use flatout_load::stats::knee::{KneeEnding, KneePlan, Search, TrialOutcome};
use serde_json::json;

/// Asks at one rate after another, as the search wants it.
pub fn find_knee(
    ask: Ask,
    books: Option<Books>,
    requirement: &Threshold,
    plan: KneePlan,
    progress: &mut dyn Progress,
) -> Result<BenchReport, BenchError> {
    let base = ask.plans.first().cloned().ok_or(BenchError::NothingToAsk)?;
    let mut bench = Bench::prepare(ask, books)?;
    let mut search = Search::new(plan);
    while let Some(trial) = search.next() {
        let step = bench.step(&at_rate(&base, trial.rate_per_s, trial.duration_ns), true, progress);
        // A rate that this client has too few ports for says nothing about the server; the search goes on below it.
        let outcome = step.map_or(TrialOutcome::Invalid, |step| outcome_of(step, requirement));
        if bench.is_over() {
            break;
        }
        search.handle(outcome);
    }
    let knee = search.knee();
    let was_broken_off = bench.is_over();
    let mut report = bench.finish()?;
    report.asked.overload = true;
    if knee.ending == KneeEnding::Unsettled && was_broken_off && knee.met_per_s.is_none() {
        return Ok(report);
    }
    let arrival = base.arrival();
    let sentence = knee.sentence(requirement.text(), arrival);
    let finding = json!({
        "requirement": requirement.text(),
        "sentence": sentence,
        // The search's rates are of these.
        "arrivals": arrival.name,
        "requests_per_arrival": arrival.requests,
        "search": knee,
    });
    report.run.findings.insert("knee".to_owned(), finding);
    Ok(report)
}

/// A server that cannot keep up makes arrivals wait, which misses the requirement. A client that was saturated or late
/// says nothing about the server, unless response times meet the requirement even with the client's delays in them.
fn outcome_of(step: &StepReport, requirement: &Threshold) -> TrialOutcome {
    let by_client = |reason: InvalidReason| {
        matches!(
            reason,
            InvalidReason::ClientSaturated
                | InvalidReason::ScheduleLag
                | InvalidReason::Crowded
                | InvalidReason::CrowdingUnknown
                | InvalidReason::LittlesLaw
        )
    };
    let is_met = step.judge(requirement).met;
    // The luck of random arrivals is not in this share, as it is in the rate.
    let keeps_up =
        step.evidence.reached_share().is_none_or(|share| share >= REACHED_SHARE_MIN) && step.tally.dropped == 0;
    if is_met && keeps_up {
        TrialOutcome::Met
    } else if step.invalid.iter().any(|invalid| by_client(invalid.reason)) {
        TrialOutcome::Invalid
    } else {
        TrialOutcome::Missed
    }
}
