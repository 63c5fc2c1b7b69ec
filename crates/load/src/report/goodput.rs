//! Goodput: correct responses in time.
//!
//! After an overload, work remains when the last request has started: queues, and connections that are being retried.
//! The responses to it arrive after the load has ended, so per second of load, there can be more of them than the server
//! can deliver. [`sustained_per_s`] therefore covers only the whole seconds in which load was offered.

use super::StepReport;
use crate::plan::Stop;
use crate::record::series::{Point, heat_floor_ns};

/// Returns the number of successful responses of a step within `in_time_ns` of their due time.
pub(super) fn good(step: &StepReport, in_time_ns: u64) -> u64 {
    step.record.response.histogram().count_between(0, in_time_ns)
}

/// Returns the number of correct responses in time for one point of a series, which records which responses with an
/// unexpected status were late. `in_time_ns` is rounded up to the end of its response-time class, by at most an eighth.
pub fn good_of_point(point: &Point, in_time_ns: u64) -> u64 {
    let count = |heat: &[(u16, u32)], is_late: bool| {
        let classes = heat.iter().filter(|(class, _)| (heat_floor_ns(*class) >= in_time_ns) == is_late);
        classes.map(|(_, count)| u64::from(*count)).sum::<u64>()
    };
    let errors_in_time = point.errors.saturating_sub(count(&point.error_heat, true));
    count(&point.heat, false).saturating_sub(errors_in_time)
}

/// Returns the goodput per second over the whole seconds in which load was offered. A step shorter than one second
/// counts up to its last response.
pub fn sustained_per_s(step: &StepReport, in_time_ns: u64) -> f64 {
    let (series, points) = (&step.record.series, step.record.series.points());
    let point_ns = series.step_s * 1_000_000_000;
    // The series begins with the warm-up.
    let warm_ns = step.record.measured_from_ns.saturating_sub(series.start_ns);
    let from = warm_ns.div_ceil(point_ns) as usize;
    let until = match step.plan.stop {
        Stop::After { duration_ns } => (warm_ns.saturating_add(duration_ns) / point_ns) as usize,
        // The last point in which requests started is usually incomplete.
        Stop::Count(_) | Stop::Tight { .. } => points.iter().rposition(|point| point.begun > 0).unwrap_or(0),
    };
    let offered = points.get(from..until.min(points.len())).unwrap_or_default();
    if offered.is_empty() {
        let all_ns = step.elapsed_ns.saturating_add(step.record.late.drain_ns);
        return good(step, in_time_ns) as f64 / (all_ns.max(1) as f64 / 1e9);
    }
    let good: u64 = offered.iter().map(|point| good_of_point(point, in_time_ns)).sum();
    good as f64 / (offered.len() as u64 * series.step_s) as f64
}
