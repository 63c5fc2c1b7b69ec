//! Figures of a step that the text reports of a bench and of a result share.

use crate::page::TextPage;
use crate::style::{Style, Weight};
use crate::verdict;
use flatout_load::FailureKind;
use flatout_load::report::{Percentiles, StepReport};
use flatout_units::show;

/// Durations with faint names: `p50 1.00 ms   p99 ...`.
pub fn named_durations(style: Style, durations_ns: &[(&str, u64)]) -> String {
    let shown: Vec<String> = durations_ns
        .iter()
        .map(|(name, value_ns)| {
            let value = show::duration(*value_ns as f64);
            format!("{} {}", style.paint(Weight::Faint, name), style.paint(Weight::Strong, &value))
        })
        .collect();
    shown.join("   ")
}

/// The percentiles of a text report.
pub fn percentiles(style: Style, times: &Percentiles) -> String {
    let durations_ns = [
        ("p50", times.p50_ns),
        ("p90", times.p90_ns),
        ("p99", times.p99_ns),
        ("p99.9", times.p99_9_ns),
        ("max", times.max_ns),
    ];
    named_durations(style, &durations_ns)
}

/// Adds the number of responses by status class, and how many were in time. `requests` is their base: `of 300 begun`.
pub fn add_responses(page: &mut TextPage, step: &StepReport, requests: String) {
    let counts = &step.record.counts;
    let classes = counts.status_classes.iter().enumerate().filter(|(_, count)| **count > 0);
    let classes: Vec<String> =
        classes.map(|(index, count)| format!("{}xx {}", index + 1, show::count(*count))).collect();
    let classes = if classes.is_empty() { requests } else { format!("{}   {requests}", classes.join("  ")) };
    page.named("responses", &show::count(counts.responses), &classes);
    page.named("  in time", &show::count(step.requests.in_time), &verdict::asked_for(step));
    if step.requests.late > 0 {
        page.named("  late", &show::count(step.requests.late), &verdict::lateness(step));
    }
}

/// Adds the failures by kind, with their details.
pub fn add_errors(page: &mut TextPage, step: &StepReport) {
    let counts = &step.record.counts;
    if counts.failures_total() == 0 {
        page.named("errors", "none", "");
    }
    let mut name = "errors";
    for kind in FailureKind::ALL.iter().copied().filter(|kind| counts.failures_of(*kind) > 0) {
        let details: Vec<String> = step
            .record
            .details
            .iter()
            .filter(|detail| detail.kind == kind)
            .map(|detail| format!("{} {}", detail.detail, show::count(detail.count)))
            .collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        let figure = format!("{} {}", show::count(counts.failures_of(kind)), kind.name());
        page.named(name, &figure, &format!("{}{details}", kind.text()));
        name = "";
    }
}

/// The client's CPU time for busy polling, as an addition to its other CPU time; empty without busy polling.
pub fn busy_wait(step: &StepReport) -> String {
    let each = step.client.busy_wait_ns_per_response(step.record.counts.responses);
    each.map_or_else(String::new, |each_ns| format!(", and {} a response of busy polling", show::duration(each_ns)))
}
