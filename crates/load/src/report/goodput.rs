//! Goodput: correct responses in time.
//!
//! After an overload, work remains when the last request has begun: queues, and connections being retried. The speed
//! of that remainder says nothing about the load under test, so [`sustained_per_s`] covers only the whole seconds in
//! which load was offered.

use super::StepReport;
use crate::plan::Stop;
use crate::record::series::{Point, heat_floor_ns};

/// Correct responses of a step within `in_time_ns` of their due time. Wrong ones (4xx, 5xx) are usually fast, so they
/// are subtracted from those in time.
pub fn good(step: &StepReport, in_time_ns: u64) -> u64 {
    let classes = step.record.counts.status_classes;
    step.record.response.histogram().count_between(0, in_time_ns).saturating_sub(classes[3] + classes[4])
}

/// The same for one point of a series; `in_time_ns` is rounded up to the end of its class of response times, at most
/// by an eighth.
pub fn good_of_point(point: &Point, in_time_ns: u64) -> u64 {
    let in_time = point.heat.iter().filter(|(class, _)| heat_floor_ns(*class) < in_time_ns);
    in_time.map(|(_, count)| u64::from(*count)).sum::<u64>().saturating_sub(point.errors)
}

/// Goodput per second over the whole seconds in which load was offered. A step shorter than one second counts up to
/// its last response.
pub fn sustained_per_s(step: &StepReport, in_time_ns: u64) -> f64 {
    let (series, points) = (&step.record.series, step.record.series.points());
    let point_ns = series.step_s * 1_000_000_000;
    // The series begins with the warm-up.
    let warm_ns = step.record.measured_from_ns.saturating_sub(series.start_ns);
    let from = warm_ns.div_ceil(point_ns) as usize;
    let until = match step.plan.stop {
        Stop::After { duration_ns } => (warm_ns.saturating_add(duration_ns) / point_ns) as usize,
        // The last point with starts is usually incomplete.
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
