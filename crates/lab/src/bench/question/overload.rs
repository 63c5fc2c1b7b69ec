//! Behaviour under overload: goodput beyond the peak, and the time of recovery.

use super::{at_rate, with_levels};
use crate::bench::{Bench, BenchError, BenchReport, BenchSpec, CounterSource, ProgressReceiver};
use flatout_load::plan::{Loop, Plan, Stop};
use flatout_load::record::Recorder;
use flatout_load::report::StepReport;
use flatout_load::report::goodput::{good_of_point, sustained_per_s};
use flatout_load::stats::overload::{Level, Overload, Recovery, Second, recovery};
use serde_json::json;

/// Offered loads of the levels, as fractions of the peak.
const LEVELS: [f64; 8] = [0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0];

/// Load before and after the overload phase, as a fraction of the peak.
const CALM: f64 = 0.5;

/// Load of the overload phase, as a fraction of the peak.
const STORM: f64 = 2.0;

/// Minimum time for observing the recovery, in nanoseconds. Recovery requires three consecutive good seconds.
const CALM_NS_MIN: u64 = 10_000_000_000;

/// Parameters of an overload test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadPlan {
    /// The server's assumed capacity, in arrivals per second. If `None`, it is measured with a closed loop.
    pub peak_per_s: Option<f64>,
    /// Length of each level, in nanoseconds.
    pub level_ns: u64,
    /// Longest response time that counts as good, in nanoseconds.
    pub in_time_ns: u64,
}

/// Runs levels up to and beyond the peak, and then observes the recovery from an overload.
pub fn overload(
    ask: BenchSpec,
    counter_source: Option<CounterSource>,
    plan: &OverloadPlan,
    progress: &mut dyn ProgressReceiver,
) -> Result<BenchReport, BenchError> {
    let base = ask.plans.first().cloned().ok_or(BenchError::NothingToAsk)?;
    let requests_per_arrival = base.arrival().requests;
    let mut bench = Bench::prepare(ask, counter_source)?;
    // Plans state rates of arrivals, but results are in requests.
    let peak_per_s = if let Some(rate) = plan.peak_per_s {
        rate
    } else {
        // The rate of a closed loop approximates the capacity.
        let closed = Plan {
            kind: Loop::Closed,
            connections: base.connections.min(64),
            stop: Stop::After { duration_ns: plan.level_ns },
            ..base.clone()
        };
        let done = bench.step(&closed, true, progress).map_or(0.0, |step| step.responses_per_s);
        done / requests_per_arrival
    };
    let mut levels = Vec::new();
    for part in LEVELS {
        if bench.is_over() || peak_per_s <= 0.0 {
            break;
        }
        let step = bench.step(&at_rate(&base, part * peak_per_s, plan.level_ns), true, progress);
        levels.extend(step.map(|step| level_of(step, plan.in_time_ns)));
    }
    let mut recovered = None;
    if !bench.is_over() && peak_per_s > 0.0 {
        let calm_ns = plan.level_ns.max(CALM_NS_MIN);
        let storm = [(CALM, plan.level_ns), (STORM, plan.level_ns), (CALM, calm_ns)];
        let storm = storm.map(|(part, duration_ns)| (part * peak_per_s, duration_ns));
        let calm_per_s = CALM * peak_per_s * requests_per_arrival;
        let step = bench.step(&with_levels(&base, &storm), true, progress);
        recovered =
            step.and_then(|step| recovery(&seconds_of(&step.record, 2 * plan.level_ns, calm_per_s, plan.in_time_ns)));
    }
    let mut report = bench.finish()?;
    let found = Overload::of(&levels);
    let sentence = [
        found.as_ref().map(Overload::sentence),
        recovered.map(|recovery| match recovery {
            Recovery::After(0) => "the server recovered as soon as the load was reduced to half of the peak".to_owned(),
            Recovery::After(ns) => {
                format!("the server recovered {:.0} s after the load was reduced to half of the peak", ns as f64 / 1e9)
            }
            Recovery::NotWithin(ns) => format!("the server did not recover within {:.0} s", ns as f64 / 1e9),
        }),
    ];
    let sentence = sentence.into_iter().flatten().collect::<Vec<_>>().join("; ");
    let finding = json!({
        "sentence": sentence,
        "in_time_ns": plan.in_time_ns,
        "levels": levels,
        "overload": found,
        "recovery": recovered,
    });
    report.run.findings.insert("overload".to_owned(), finding);
    report.asked.overload = true;
    Ok(report)
}

fn level_of(step: &StepReport, in_time_ns: u64) -> Level {
    Level {
        offered_per_s: step.offered.rate_per_s.unwrap_or(0.0),
        goodput_per_s: sustained_per_s(step, in_time_ns),
        error_share: step.error_share,
        p99_ns: step.response.and_then(|response| response.p99_ns),
    }
}

/// Returns the seconds after the load was reduced to this many requests per second.
fn seconds_of(record: &Recorder, from_ns: u64, offered_per_s: f64, in_time_ns: u64) -> Vec<Second> {
    let step_ns = record.series.step_s * 1_000_000_000;
    let points = record.series.points();
    let whole = points.len().saturating_sub(1);
    (0_u64..)
        .zip(points.iter().take(whole))
        .filter(|(index, _)| index * step_ns >= from_ns)
        .map(|(index, point)| Second {
            after_ns: index * step_ns - from_ns,
            offered: (offered_per_s * record.series.step_s as f64) as u64,
            good: good_of_point(point, in_time_ns),
        })
        .collect()
}
