//! Questions that need several levels: what the knee is, how the server behaves under overload, and which of two URLs
//! is faster.

mod knee;
mod overload;
mod versus;

pub use knee::find_knee;
pub use overload::{OverloadPlan, overload};
pub use versus::versus;

use flatout_load::plan::{Arrivals, Level, Loop, Plan, Stop};
use flatout_load::report::{RunReport, StepReport};
use flatout_load::stats::responses::{Responses, answered_differently};
use flatout_load::stats::usl::Usl;
use flatout_units::show;
use serde_json::{Value, json};

/// Returns the plan with a different rate and duration, and the same arrival process.
fn at_rate(plan: &Plan, rate_per_s: f64, duration_ns: u64) -> Plan {
    with_levels(plan, &[(rate_per_s, duration_ns)])
}

/// Describes how the statuses of the responses at two rates differ, if they do. Rates are in requests per second.
fn differ_at((low_per_s, low): (f64, &Responses), (high_per_s, high): (f64, &Responses)) -> Option<String> {
    let at = |rate_per_s: f64| format!("at {}/s", show::figure(rate_per_s));
    answered_differently((&at(low_per_s), low), (&at(high_per_s), high))
}

/// Returns the plan with a sequence of rates and durations.
fn with_levels(plan: &Plan, levels: &[(f64, u64)]) -> Plan {
    let duration_ns = levels.iter().map(|(_, duration_ns)| *duration_ns).fold(0, u64::saturating_add);
    let levels = levels.iter().map(|(rate_per_s, duration_ns)| Level {
        from_per_s: *rate_per_s,
        to_per_s: *rate_per_s,
        duration_ns: *duration_ns,
    });
    let kind = match &plan.kind {
        Loop::Open(arrivals) => arrivals.kind,
        Loop::Closed => flatout_load::plan::ArrivalKind::Fixed,
    };
    Plan {
        kind: Loop::Open(Arrivals { kind, levels: levels.collect(), replay: None }),
        stop: Stop::After { duration_ns },
        ..plan.clone()
    }
}

/// Fits a scalability law to throughput by number of connections, if a run has enough levels.
pub(super) fn scalability(run: &RunReport) -> Option<Value> {
    let used = |step: &StepReport| step.plan.connections_used().saturating_sub(step.tally.slots_unusable);
    let points: Vec<(f64, f64)> = run
        .steps
        .iter()
        .filter(|step| !step.plan.is_open() && step.responses_per_s > 0.0)
        .map(|step| (f64::from(used(step)), step.responses_per_s))
        .collect();
    // Levels with the same number of connections are not a sweep.
    let is_sweep = run.steps.windows(2).any(|pair| used(&pair[0]) != used(&pair[1]));
    if !is_sweep || points.len() < flatout_load::stats::usl::POINTS_MIN {
        return None;
    }
    Some(match Usl::fit(&points, flatout_load::stats::LEVEL_DEFAULT) {
        Ok(law) => {
            let sentence = scalability_sentence(&law, &points);
            json!({ "sentence": sentence, "law": law })
        }
        Err(refusal) => json!({ "sentence": refusal.to_string(), "refusal": refusal.name() }),
    })
}

/// Describes the predicted peak, or the measured peak if there is no prediction.
fn scalability_sentence(law: &Usl, points: &[(f64, f64)]) -> String {
    if let (Some(peak), Some(rate)) = (&law.peak, law.peak_rate) {
        return format!(
            "by the Universal Scalability Law, throughput peaks at {:.0} connections ({:.0} to {:.0}) and {rate:.0} requests/s",
            peak.estimate, peak.low, peak.high
        );
    }
    let most = points.iter().map(|(connections, _)| *connections).fold(0.0, f64::max);
    let best = points.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default();
    let (connections, rate) = best;
    format!(
        "the highest throughput measured is {rate:.0} requests/s, at {connections:.0} of up to {most:.0} connections; \
         the location of the peak is unknown, because the interval for β ({:.1e} to {:.1e}) includes 0",
        law.beta.low, law.beta.high
    )
}

#[cfg(test)]
mod tests {
    use super::scalability_sentence;
    use flatout_load::stats::usl::Usl;

    #[test]
    fn the_sentence_does_not_contradict_the_table() {
        // Throughput falls beyond 32 connections, but by less than the points scatter.
        let rates = [100.0, 230.0, 310.0, 520.0, 640.0, 950.0, 720.0, 890.0];
        let points: Vec<(f64, f64)> = (0..).map(|power| f64::from(1 << power)).zip(rates).collect();
        let law = Usl::fit(&points, 0.95).unwrap();
        assert!(law.peak.is_none() && law.beta.contains(0.0), "{law:?}");
        let sentence = scalability_sentence(&law, &points);
        assert!(
            sentence.starts_with("the highest throughput measured is 950 requests/s, at 32 of up to 128 connections"),
            "{sentence}"
        );
        assert!(sentence.contains("includes 0") && !sentence.contains("grows"), "{sentence}");
    }
}
