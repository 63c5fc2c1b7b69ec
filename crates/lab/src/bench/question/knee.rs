//! Search for the highest rate that meets requirements.

use super::{at_rate, differ_at};
use crate::bench::{Bench, BenchError, BenchReport, BenchSpec, CounterSource, ProgressReceiver};
use flatout_load::judge::validity::REACHED_SHARE_MIN;
use flatout_load::judge::{InvalidReason, Threshold};
use flatout_load::report::StepReport;
use flatout_load::stats::knee::{KneeEnding, KneePlan, KneeSearch, TrialOutcome};
use flatout_load::stats::responses::Responses;
use flatout_units::show;
use serde_json::json;

/// Runs levels at the rates that the search selects, and reports the result of the search. All requirements must be
/// met.
pub fn find_knee(
    ask: BenchSpec,
    counter_source: Option<CounterSource>,
    requirements: &[Threshold],
    plan: KneePlan,
    progress: &mut dyn ProgressReceiver,
) -> Result<BenchReport, BenchError> {
    let base = ask.plans.first().cloned().ok_or(BenchError::NothingToAsk)?;
    let mut bench = Bench::prepare(ask, counter_source)?;
    let mut search = KneeSearch::new(plan);
    let mut statuses = LevelStatuses::default();
    // The rates at which requests failed in a way that no requirement limits, and how.
    let mut failed: Vec<(f64, String)> = Vec::new();
    while let Some(trial) = search.next() {
        let step = bench.step(&at_rate(&base, trial.rate_per_s, trial.duration_ns), true, progress);
        // If the client has too few ports for a rate, the trial says nothing about the server, and the search continues
        // at lower rates.
        let outcome = step.map_or(TrialOutcome::Invalid, |step| {
            // What a client sends after a stop is a burst, to which a server may respond otherwise.
            let was_stopped = was_stopped(step);
            let responses = Responses::of(&step.record, &step.plan);
            if !was_stopped && statuses.differ(trial.rate_per_s, responses) {
                TrialOutcome::Missed
            } else {
                let at = format!("at {}/s", show::figure(trial.rate_per_s));
                let failure = step.unlimited_failure(requirements).filter(|_| !was_stopped);
                failed.extend(failure.map(|failure| (trial.rate_per_s, format!("{at}, {}", failure.text))));
                outcome_of(step, requirements)
            }
        });
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
    let requirement = requirements.iter().map(Threshold::text).collect::<Vec<_>>().join(" and ");
    let mut sentence = knee.sentence(&requirement, arrival);
    let is_above = |rate_per_s: f64| knee.met_per_s.is_none_or(|met_per_s| rate_per_s > met_per_s);
    let above = statuses.differing.iter().chain(&failed).filter(|(rate_per_s, _)| is_above(*rate_per_s));
    if let Some((_, why)) = above.min_by(|one, other| one.0.total_cmp(&other.0)) {
        sentence = format!("{sentence}; {why}");
    }
    let finding = json!({
        "requirement": requirement,
        "sentence": sentence,
        // The unit of the rates in the search.
        "arrivals": arrival.name,
        "requests_per_arrival": arrival.requests,
        "search": knee,
    });
    report.run.findings.insert("knee".to_owned(), finding);
    Ok(report)
}

/// The statuses of the responses at the lowest rate, which those of every other rate must equal: a server that redirects
/// to an error page instead of serving the page does not sustain the load.
#[derive(Debug, Default)]
struct LevelStatuses {
    /// The lowest rate with successful responses so far, and those of the first trial at this rate.
    lowest: Option<(f64, Responses)>,
    /// The rates at which the statuses differed, and how.
    differing: Vec<(f64, String)>,
}

impl LevelStatuses {
    /// Returns whether the statuses at this rate differ from those at the lowest rate.
    fn differ(&mut self, rate_per_s: f64, responses: Responses) -> bool {
        let Some((lowest_per_s, lowest)) = self.lowest.as_ref().filter(|(lowest_per_s, _)| rate_per_s >= *lowest_per_s)
        else {
            if responses.has_successes() {
                self.lowest = Some((rate_per_s, responses));
            }
            return false;
        };
        let Some(why) = differ_at((*lowest_per_s, lowest), (rate_per_s, &responses)) else { return false };
        self.differing.push((rate_per_s, why));
        true
    }
}

/// Returns whether something stopped the client during a trial.
fn was_stopped(step: &StepReport) -> bool {
    step.invalid.iter().any(|invalid| invalid.reason == InvalidReason::ClientStopped)
}

/// Returns the outcome of a trial. It misses the requirement if a run at this rate would fail. A server that cannot
/// keep up makes arrivals wait, which misses the requirement. A saturated or late client says nothing about the server,
/// unless response times meet the requirement even with the client's delays.
fn outcome_of(step: &StepReport, requirements: &[Threshold]) -> TrialOutcome {
    let by_client = |reason: InvalidReason| {
        matches!(
            reason,
            InvalidReason::ClientSaturated
                | InvalidReason::ClientStarved
                | InvalidReason::ScheduleLag
                | InvalidReason::CpuContention
                | InvalidReason::CpuContentionUnknown
                | InvalidReason::ClientStopped
                | InvalidReason::LittlesLaw
        )
    };
    let outcomes: Vec<_> = requirements.iter().map(|requirement| step.judge_among(requirement, requirements)).collect();
    let is_by_client = step.invalid.iter().any(|invalid| by_client(invalid.reason));
    // If a client-side reason leaves no bound, the requirement cannot be decided.
    let is_unknown = outcomes.iter().flat_map(|outcome| &outcome.unsound).any(|reason| by_client(*reason));
    // Whatever the client's delays, they are not why requests fail, unless the client had no descriptor or port.
    let has_failed =
        requirements.iter().zip(&outcomes).any(|(requirement, outcome)| requirement.bounds_failures() && !outcome.met);
    // If the client was stopped, its connections became idle, and the server may have closed them for that reason.
    let has_other_failure = step.unlimited_failure(requirements).is_some();
    if (has_failed || has_other_failure && !was_stopped(step)) && step.record.counts.failures_of_client() == 0 {
        return TrialOutcome::Missed;
    }
    // Unlike the rate, this share does not depend on the randomness of arrivals.
    let keeps_up =
        step.evidence.reached_share().is_none_or(|share| share >= REACHED_SHARE_MIN) && step.tally.dropped == 0;
    let has_success = step.record.counts.successes() > 0;
    if outcomes.iter().all(|outcome| outcome.met) && has_success && !has_other_failure && keeps_up && !is_unknown {
        TrialOutcome::Met
    } else if is_by_client {
        TrialOutcome::Invalid
    } else {
        TrialOutcome::Missed
    }
}

#[cfg(test)]
mod tests {
    use super::{LevelStatuses, Responses, TrialOutcome, outcome_of};
    use crate::view::fixture;
    use flatout_load::FailureKind;
    use flatout_load::judge::validity::Invalid;
    use flatout_load::judge::{InvalidReason, Threshold};
    use flatout_load::plan::{ExpectedStatuses, Plan};
    use flatout_load::report::{Reason, StepReport};

    /// Nine of ten responses take 0.6 ms, the others 3.1 ms.
    fn step(reasons: &[InvalidReason]) -> StepReport {
        let mut step = fixture::single().steps.remove(0);
        step.invalid = reasons.iter().map(|reason| Invalid { reason: *reason, text: String::new() }).collect();
        step
    }

    fn outcome(step: &StepReport, requirement: &str) -> TrialOutcome {
        outcome_of(step, &[Threshold::parse(requirement).unwrap()])
    }

    const CLIENTS: [InvalidReason; 5] = [
        InvalidReason::ClientSaturated,
        InvalidReason::ScheduleLag,
        InvalidReason::CpuContention,
        InvalidReason::CpuContentionUnknown,
        InvalidReason::ClientStopped,
    ];

    #[test]
    fn a_sound_trial_says_what_it_measured() {
        let sound = step(&[]);
        assert_eq!(outcome(&sound, "p99<20ms"), TrialOutcome::Met);
        assert_eq!(outcome(&sound, "p99<1ms"), TrialOutcome::Missed);
        // Reasons that the client did not cause do not invalidate a missed requirement.
        assert_eq!(outcome(&step(&[InvalidReason::RateNotReached]), "p99<1ms"), TrialOutcome::Missed);
    }

    #[test]
    fn other_statuses_than_at_the_lowest_rate_miss() {
        let of = |json: &str, expected: &str| {
            let mut record = step(&[]).record;
            record.statuses = serde_json::from_str(json).unwrap();
            let expected = ExpectedStatuses::parse(expected).unwrap();
            Responses::of(&record, &Plan { expected, ..Plan::default() })
        };
        let (pages, sorry) = (r#"{"200": 1000}"#, r#"{"200": 200, "302": 800}"#);
        let mut statuses = LevelStatuses::default();
        let mut differ = |rate_per_s: f64, json: &str| statuses.differ(rate_per_s, of(json, "2xx,3xx"));
        assert!(!differ(100.0, "{}"), "nothing succeeded");
        assert!(!differ(50.0, pages) && !differ(200.0, pages));
        assert!(differ(400.0, sorry) && differ(300.0, sorry));
        assert!(!differ(25.0, pages) && !differ(100.0, pages));
        // A server that has not recovered from a higher rate.
        assert!(differ(25.0, sorry) && !differ(25.0, pages) && !differ(100.0, pages));
        let (rate_per_s, why) = statuses.differing.last().unwrap();
        assert!(*rate_per_s < 26.0 && why.contains("(at 25.0/s: 100.0 % status 200; at 25.0/s: 80.0 %"), "{why}");
        let mut allowed = LevelStatuses::default();
        assert!(!allowed.differ(50.0, of(pages, "200,302")) && !allowed.differ(400.0, of(sorry, "200,302")));
    }

    #[test]
    fn failed_requests_miss_whatever_the_client_did() {
        let mut late = step(&CLIENTS);
        late.record.counts.unexpected_classes[4] = late.record.counts.responses / 10;
        assert_eq!(outcome(&late, "p99<20ms"), TrialOutcome::Met, "nothing limits failures");
        assert_eq!(outcome(&late, "errors<=1%"), TrialOutcome::Missed);
        late.record.counts.failures.0[FailureKind::FdUnavail.index()] = 1;
        late.invalid.push(Invalid { reason: InvalidReason::ClientStarved, text: String::new() });
        assert_eq!(outcome(&late, "errors<=1%"), TrialOutcome::Invalid);
        late.record.counts.unexpected_classes[4] = late.record.counts.responses;
        assert_eq!(outcome(&late, "errors<=100%"), TrialOutcome::Invalid, "nothing succeeded");
    }

    #[test]
    fn a_level_that_would_fail_as_a_run_misses() {
        let failing = |name: &str, reasons: &[InvalidReason]| {
            let mut step = step(reasons);
            step.failing = vec![Reason { name: name.to_owned(), text: String::new() }];
            step
        };
        let requirements = ["p99<20ms", "errors<=1%"].map(|text| Threshold::parse(text).unwrap());
        let of = |step: &StepReport| outcome_of(step, &requirements);
        assert_eq!(of(&failing("idle-closes", &[])), TrialOutcome::Missed);
        assert_eq!(of(&failing("idle-closes", &[InvalidReason::ScheduleLag])), TrialOutcome::Missed);
        assert_eq!(of(&failing("idle-closes", &[InvalidReason::ClientStopped])), TrialOutcome::Invalid);
        // A requirement limits these.
        assert_eq!(of(&failing("requests-failed", &[])), TrialOutcome::Met);
        assert_eq!(of(&failing("status-5xx", &[])), TrialOutcome::Met);
    }

    #[test]
    fn times_with_the_clients_delay_in_them_are_an_upper_bound() {
        for reason in CLIENTS {
            let late = step(&[reason]);
            assert_eq!(outcome(&late, "p99<20ms"), TrialOutcome::Met, "{reason:?}: even the bound meets it");
            assert_eq!(outcome(&late, "p99<1ms"), TrialOutcome::Invalid, "{reason:?}: less may be the truth");
        }
        assert_eq!(outcome(&step(&CLIENTS), "p99<20ms"), TrialOutcome::Met);
        assert_eq!(
            outcome(&step(&[InvalidReason::LittlesLaw]), "p99<20ms"),
            TrialOutcome::Invalid,
            "no bound is known"
        );
    }

    #[test]
    fn a_server_that_does_not_keep_up_meets_nothing() {
        let dropped = |reasons: &[InvalidReason]| {
            let mut step = step(reasons);
            step.tally.dropped = 1;
            step
        };
        assert_eq!(outcome(&dropped(&[]), "p99<20ms"), TrialOutcome::Missed);
        assert_eq!(outcome(&dropped(&[InvalidReason::CpuContention]), "p99<20ms"), TrialOutcome::Invalid);
        let mut stretched = step(&[]);
        stretched.evidence.offered_per_s = Some(50.0);
        stretched.evidence.begun_span_ns = 2 * stretched.evidence.intended_span_ns;
        assert_eq!(outcome(&stretched, "p99<20ms"), TrialOutcome::Missed);
    }
}
