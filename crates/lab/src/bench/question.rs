//! Questions that take several levels to answer: where the knee is, what is left beyond it, which of two is faster.

mod knee;
mod overload;
mod versus;

pub use knee::find_knee;
pub use overload::{OverloadPlan, overload};
pub use versus::versus;

use flatout_load::plan::{Arrivals, Level, Loop, Plan, Stop};
use flatout_load::report::RunReport;
use flatout_load::stats::usl::Usl;
use serde_json::{Value, json};

/// A plan at another rate, for so long; how regular its arrivals are stays.
fn at_rate(plan: &Plan, rate_per_s: f64, duration_ns: u64) -> Plan {
    with_levels(plan, &[(rate_per_s, duration_ns)])
}

/// A plan that goes through levels of rate and length.
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

/// How throughput grows with connections, where a run has levels enough to say so.
pub(super) fn scalability(run: &RunReport) -> Option<Value> {
    let points: Vec<(f64, f64)> = run
        .steps
        .iter()
        .filter(|step| !step.plan.is_open() && step.responses_per_s > 0.0)
        .map(|step| (f64::from(step.plan.connections_used()), step.responses_per_s))
        .collect();
    // Levels that are all alike were not asked for to see how it grows.
    let is_sweep = run.steps.windows(2).any(|pair| pair[0].plan.connections_used() != pair[1].plan.connections_used());
    if !is_sweep || points.len() < flatout_load::stats::usl::POINTS_MIN {
        return None;
    }
    Some(match Usl::fit(&points, flatout_load::stats::LEVEL_DEFAULT) {
        Ok(law) => {
            let sentence = match (&law.peak, law.peak_rate) {
                (Some(peak), Some(rate)) => format!(
                    "throughput is highest at {:.0} connections ({:.0} to {:.0}), {rate:.0} requests/s by the Universal Scalability Law",
                    peak.estimate, peak.low, peak.high
                ),
                _ => "throughput grows over the whole sweep: no peak is shown by the Universal Scalability Law"
                    .to_owned(),
            };
            json!({ "sentence": sentence, "law": law })
        }
        Err(refusal) => json!({ "sentence": refusal.to_string(), "refusal": refusal.name() }),
    })
}
