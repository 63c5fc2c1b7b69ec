//! The evidence by which the figures of a step are judged.

use super::StepFacts;
use crate::judge::little::Little;
use crate::judge::steady::{self, Steady};
use crate::judge::validity::Evidence;
use crate::plan::{Loop, Stop, Visit};
use crate::record::{Hdr, Point, Recorder};

/// Returns the evidence of a step with this record.
pub(super) fn evidence_of(record: &Recorder, facts: &StepFacts) -> Evidence {
    let plan = &facts.plan;
    // A closed loop of persistent connections keeps all of them open; otherwise their number varies.
    let holds_all = matches!((&plan.kind, &plan.visit), (Loop::Closed, Visit::Request));
    // A run by time lasts its planned time, even if its last request started earlier.
    let planned_ns = if let Stop::After { duration_ns } = plan.stop { duration_ns } else { 0 };
    let begun_ns = record.begun_span_ns.max(planned_ns.min(facts.elapsed_ns)).max(1);
    let at = |histogram: &Hdr, quantile| histogram.histogram().value_at_quantile(quantile);
    Evidence {
        elapsed_ns: facts.elapsed_ns,
        responses: record.counts.successes(),
        client_busy_share: facts.client.busy_share,
        client_wait_share: facts.client.wait_share,
        client_held_back_share: facts.client.held_back_share,
        client_stopped_ns: facts.client.stopped_ns,
        client_crowded_share: facts.client.crowded_share,
        server_crowded_cores: facts.server.and_then(|server| server.crowded_cores),
        server_cpu_is_short: facts.server.is_some_and(|server| server.cpu_is_short),
        server_cores: facts.server.map(|server| server.cores_used),
        client_starved: record.counts.failures_of_client(),
        unconnected_share: {
            let slots = plan.connections_used().saturating_sub(facts.tally.slots_unusable);
            let all_ns = f64::from(slots) * facts.elapsed_ns as f64;
            (facts.tally.unconnected_ns as f64 / all_ns.max(1.0)).min(1.0)
        },
        offered_per_s: plan.offered_per_s(),
        begun_per_s: record.counts.requests_begun as f64 * 1e9 / begun_ns as f64,
        intended_span_ns: record.intended_span_ns,
        begun_span_ns: record.begun_span_ns,
        connections_asked: holds_all
            .then(|| u64::from(plan.connections_used().saturating_sub(facts.tally.slots_unusable))),
        // HTTP/2 streams share connections, so requests in flight count instead, except those that found no connection.
        connections_peak: match record.connections.peak {
            0 => 0,
            peak => peak.max(record.in_flight.peak),
        },
        lag_p50_ns: at(&record.lag, 0.5),
        lag_p99_ns: at(&record.lag, 0.99),
        response_p50_ns: at(&record.response, 0.5),
        response_p99_ns: at(&record.response, 0.99),
        arrivals_waited: facts.tally.waited,
        arrivals_dropped: facts.tally.dropped,
        visits: facts.tally.visits,
        little: Little::of(record, facts.elapsed_ns),
        reconciliation: facts.reconciliation.clone(),
        counts_missing: facts.counts_missing.clone(),
        part_missing: None,
        agents_lost: facts.agents_lost,
        no_steady_state: match facts.warm_up.steady {
            None => false,
            Some(false) => true,
            // The warm-up was steady; the measured span must be steady too.
            Some(true) => {
                let measured_from_ns = record.measured_from_ns.saturating_sub(record.series.start_ns);
                let first = measured_from_ns.div_ceil(record.series.step_s.max(1) * 1_000_000_000) as usize;
                let points = record.series.points();
                let means: Vec<f64> = points.iter().skip(first).filter_map(Point::service_mean_ns).collect();
                steady::judge(&means) == Steady::Never
            }
        },
        stopped_early: facts.stopped_early.clone(),
        interrupted: facts.interrupted,
        overload: facts.overload,
    }
}
