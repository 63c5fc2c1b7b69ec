//! Behaviour under overload: goodput beyond the peak, and the time of recovery.

use super::{at_rate, differ_at, with_levels};
use crate::bench::{Bench, BenchError, BenchReport, BenchSpec, CounterSource, ProgressReceiver};
use flatout_load::plan::{Loop, Plan, Stop};
use flatout_load::record::Recorder;
use flatout_load::report::StepReport;
use flatout_load::report::goodput::{good_of_point, sustained_per_s};
use flatout_load::stats::overload::{Level, Overload, Recovery, Second, recovery};
use flatout_load::stats::responses::Responses;
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
    let asked = ask.plans.first().cloned().ok_or(BenchError::NothingToAsk)?;
    let mut base = asked.clone();
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
    let mut statuses = LevelStatuses::default();
    for part in LEVELS {
        if bench.is_over() || peak_per_s <= 0.0 {
            break;
        }
        let step = bench.step(&at_rate(&base, part * peak_per_s, plan.level_ns), true, progress);
        let Some(step) = step else { continue };
        let level = level_of(step, plan.in_time_ns);
        levels.push(level);
        statuses.handle(level.offered_per_s, Responses::of(&step.record, &asked), &mut base);
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
        statuses
            .differing
            .map(|why| format!("responses with other statuses than at the first level are no goodput: {why}")),
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

/// The statuses of the responses at the first level, whose load is far below the peak. Responses with other statuses
/// are no goodput: a server that redirects to an error page instead of serving the page does not sustain the load.
#[derive(Debug, Default)]
struct LevelStatuses {
    /// The first offered load with successful responses, in requests per second, and these responses.
    first: Option<(f64, Responses)>,
    /// How the statuses of a later level differed, for the first such level.
    differing: Option<String>,
}

impl LevelStatuses {
    /// Handles the responses of a level. After the first one, the plan of later levels expects only its statuses,
    /// unless the user named the expected ones.
    fn handle(&mut self, offered_per_s: f64, responses: Responses, later: &mut Plan) {
        if let Some((first_per_s, first)) = &self.first {
            if self.differing.is_none() {
                self.differing = differ_at((*first_per_s, first), (offered_per_s, &responses));
            }
        } else if responses.has_successes() {
            if !responses.are_named() {
                (later.expected, later.expects_as_first) = (responses.seen(), true);
            }
            self.first = Some((offered_per_s, responses));
        }
    }
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

#[cfg(test)]
mod tests {
    use super::{LevelStatuses, Responses};
    use crate::view::fixture;
    use flatout_load::plan::{ExpectedStatuses, Plan};

    /// Returns what later levels expect, whether the lab found that, and how the statuses differed, after levels with
    /// these statuses.
    fn after(asked: &Plan, levels: &[&str]) -> (String, bool, Option<String>) {
        let (mut statuses, mut later) = (LevelStatuses::default(), asked.clone());
        for (level, json) in (1_u32..).zip(levels) {
            let mut record = fixture::single().steps.remove(0).record;
            record.statuses = serde_json::from_str(json).unwrap();
            statuses.handle(f64::from(100 * level), Responses::of(&record, asked), &mut later);
        }
        (later.expected.to_string(), later.expects_as_first, statuses.differing)
    }

    #[test]
    fn only_statuses_of_the_first_level_are_goodput() {
        let (nothing, pages, sorry) = (r#"{"503": 90}"#, r#"{"200": 1000}"#, r#"{"200": 200, "302": 800}"#);
        let asked = Plan::default();
        assert_eq!(after(&asked, &[nothing]), ("2xx,3xx".to_owned(), false, None), "nothing succeeded");
        assert_eq!(after(&asked, &[nothing, pages, pages]), ("200".to_owned(), true, None));
        let (expected, is_found, why) = after(&asked, &[pages, sorry, r#"{"204": 1000}"#]);
        assert_eq!((expected.as_str(), is_found), ("200", true));
        let why = why.unwrap();
        assert!(why.contains("(at 100/s: 100.0 % status 200; at 200/s: 80.0 % status 302, 20.0 % "), "{why}");
        // A user who names statuses wants each of them.
        let named = Plan { expected: ExpectedStatuses::parse("200,302").unwrap(), ..Plan::default() };
        assert_eq!(after(&named, &[pages, sorry]), ("200,302".to_owned(), false, None));
    }
}
