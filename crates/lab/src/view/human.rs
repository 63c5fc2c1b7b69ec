//! Results as text for people: aligned, in readable units, and plain about what went wrong.

use super::style::{Style, Weight};
use super::units;
use crate::bench::{BenchReport, Limit};
use crate::limits::{LimitsReport, Unit};
use flatout_load::{ConnectionUse, FailureKind, LatencySummary, Stop};
use std::fmt::Write as _;

/// Width of the names at the left.
const NAME_WIDTH: usize = 15;

/// Builds lines of a name and its figures.
struct Page {
    text: String,
    style: Style,
}

impl Page {
    fn line(&mut self, name: &str, strong: &str, rest: &str) {
        self.painted(name, &self.style.paint(Weight::Strong, strong), rest);
    }

    /// A line whose figures are painted already.
    fn painted(&mut self, name: &str, strong: &str, rest: &str) {
        let gap = if strong.is_empty() || rest.is_empty() { "" } else { "   " };
        let rest = self.style.paint(Weight::Faint, rest);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "  {name:<NAME_WIDTH$}  {strong}{gap}{rest}");
    }

    fn plain(&mut self, weight: Option<Weight>, text: &str) {
        let text = weight.map_or_else(|| text.to_owned(), |weight| self.style.paint(weight, text));
        let _ = writeln!(self.text, "{text}");
    }
}

/// A bench report, ready to print.
pub fn print_bench(report: &BenchReport, style: Style) -> String {
    let mut page = Page { text: String::new(), style };
    page.plain(None, &format!("{}   {}", style.paint(Weight::Strong, &report.asked.url.to_string()), how(report)));
    page.plain(None, "");
    add_figures(&mut page, report);
    add_costs(&mut page, report);
    if let Some(limit) = &report.limit {
        page.plain(None, "");
        add_limit(&mut page, limit, report.asked.plan.connection_use);
    }
    page.plain(None, "");
    page.plain(Some(Weight::Faint), &format!("  {}", report.machine));
    add_notes(&mut page, report);
    page.text
}

fn how(report: &BenchReport) -> String {
    let plan = &report.asked.plan;
    let connections = units::plural(u64::from(plan.connections_used()), "connection", "connections");
    let threads = units::plural(report.threads as u64, "thread", "threads");
    let used = used_as(plan.connection_use);
    let elapsed = units::duration(report.summary.facts.elapsed_ns as f64);
    match plan.stop {
        Stop::After { .. } => format!("{connections}, {used}, {threads}, {elapsed}"),
        Stop::Requests(requests) => {
            let requests = units::plural(requests, "request", "requests");
            format!("{requests} in {elapsed}, {connections}, {used}, {threads}")
        }
    }
}

const fn used_as(connection_use: ConnectionUse) -> &'static str {
    match connection_use {
        ConnectionUse::KeepAlive => "kept alive",
        ConnectionUse::PerRequest => "one request each",
    }
}

fn add_figures(page: &mut Page, report: &BenchReport) {
    let summary = &report.summary;
    let counts = &summary.counts;
    page.line("requests/s", &units::figure(summary.requests_per_s), "");
    let received = format!("{}/s", units::bytes(summary.bytes_in_per_s));
    page.line("received", &received, &format!("{} in all", units::bytes(counts.bytes_in() as f64)));
    match &summary.latency {
        Some(latency) => {
            page.painted("latency", &percentiles(page.style, latency), "");
            page.line("", "", "closed loop: from sending to the last byte; connecting apart");
        }
        None => page.line("latency", "-", "nothing was answered"),
    }
    if let Some(connect) = &summary.connect {
        let connections = units::plural(counts.connections, "connection", "connections");
        page.painted("connect", &spread(page.style, connect), &connections);
    }
    let classes: Vec<String> = counts
        .status_classes
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(index, count)| format!("{}xx {}", index + 1, units::count(*count)))
        .collect();
    let sent = format!("of {} sent", units::count(counts.requests_sent));
    let classes = if classes.is_empty() { sent } else { format!("{}   {sent}", classes.join("  ")) };
    page.line("answers", &units::count(counts.responses), &classes);
    add_errors(page, report);
}

fn add_errors(page: &mut Page, report: &BenchReport) {
    let counts = &report.summary.counts;
    if counts.failures_total() == 0 {
        page.line("errors", "none", "");
        return;
    }
    let mut name = "errors";
    for &kind in FailureKind::ALL {
        let failures = counts.failures_of(kind);
        if failures == 0 {
            continue;
        }
        let details: Vec<String> = report
            .details
            .iter()
            .filter(|detail| detail.kind == kind)
            .map(|detail| format!("{} {}", detail.detail, units::count(detail.count)))
            .collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        let figure = format!("{} {}", units::count(failures), kind.name());
        page.line(name, &figure, &format!("{}{details}", kind.text()));
        name = "";
    }
}

/// Names in the background, figures in front: `p50 1.00 ms   p99 ...`.
fn named_durations(style: Style, figures: &[(&str, u64)]) -> String {
    let shown: Vec<String> = figures
        .iter()
        .map(|(name, value_ns)| {
            let value = units::duration(*value_ns as f64);
            format!("{} {}", style.paint(Weight::Faint, name), style.paint(Weight::Strong, &value))
        })
        .collect();
    shown.join("   ")
}

fn percentiles(style: Style, latency: &LatencySummary) -> String {
    let figures = [
        ("p50", latency.p50_ns),
        ("p90", latency.p90_ns),
        ("p99", latency.p99_ns),
        ("p99.9", latency.p99_9_ns),
        ("max", latency.max_ns),
    ];
    named_durations(style, &figures)
}

fn spread(style: Style, latency: &LatencySummary) -> String {
    named_durations(style, &[("p50", latency.p50_ns), ("p99", latency.p99_ns), ("max", latency.max_ns)])
}

fn add_costs(page: &mut Page, report: &BenchReport) {
    let summary = &report.summary;
    let per_request = |cost_ns: f64| format!("{} a request", units::duration(cost_ns));
    if let Some(cost_ns) = summary.client_cpu_ns_per_request {
        let threads = units::plural(report.threads as u64, "thread", "threads");
        let busy = units::percent(summary.facts.client_busy_share);
        let rest = format!("{threads}, {}{busy} busy", if report.threads > 1 { "the busiest " } else { "" });
        page.line("client CPU", &per_request(cost_ns), &rest);
    }
    match &report.server {
        Ok(found) => {
            let cost = summary.server_cpu_ns_per_request.map_or_else(|| "-".to_owned(), per_request);
            let threads = units::plural(found.busy_threads as u64, "busy thread", "busy threads");
            let processes = units::plural(found.processes.len() as u64, "process", "processes");
            page.line("server CPU", &cost, &format!("{}, {processes}, {threads}", found.name));
        }
        Err(why) => page.line("server CPU", "-", &format!("not known: {why}")),
    }
}

fn add_limit(page: &mut Page, limit: &Limit, connection_use: ConnectionUse) {
    let threads = units::plural(limit.threads as u64, "thread", "threads");
    let body = units::bytes(limit.body_bytes as f64);
    let way = if limit.by_sendfile { "by sendfile" } else { "from memory" };
    let elapsed = units::duration(limit.elapsed_ns as f64);
    let how = format!("bare loop on {threads}, {body} bodies {way}, {}, {elapsed}", used_as(connection_use));
    page.line("machine limit", "", &how);
    if limit.failures > 0 {
        let failures = units::plural(limit.failures, "request failed", "requests failed");
        page.line("", &failures, "do not trust the comparison");
    }
    let share = format!("this run: {} of it", units::percent(limit.requests_share));
    page.line("  requests/s", &units::figure(limit.requests_per_s), &share);
    let ratio = limit.cpu_ratio.map_or_else(String::new, |ratio| format!("this run: {ratio:.2} x"));
    page.line("  CPU", &format!("{} a request", units::duration(limit.cpu_ns_per_request)), &ratio);
}

fn add_notes(page: &mut Page, report: &BenchReport) {
    let verdict = &report.summary.verdict;
    let notes = report.notes();
    if !notes.is_empty() || !verdict.passed() {
        page.plain(None, "");
    }
    for note in notes {
        page.plain(Some(Weight::Warning), &format!("  note: {note}"));
    }
    for reason in &verdict.failing {
        page.plain(Some(Weight::Bad), &format!("  FAILED: {reason}"));
    }
}

/// A limits report, ready to print: every measure with its median, least and most.
pub fn print_limits(report: &LimitsReport, style: Style) -> String {
    let mut page = Page { text: String::new(), style };
    let rounds = units::plural(u64::from(report.plan.rounds), "round", "rounds");
    let probe = units::duration(report.plan.probe.as_nanos() as f64);
    let cores = match report.cores.cores_used() {
        1 => "both roles on one core".to_owned(),
        _ => format!("server role on core {}, client role on core {}", report.cores.server, report.cores.client),
    };
    page.plain(Some(Weight::Strong), "What this machine can do at most, over loopback");
    page.plain(Some(Weight::Faint), &format!("{rounds} of {probe} a probe; {cores}"));
    page.plain(None, "");
    let header = format!("  {:<36}{:>14}{:>14}{:>14}", "", "median", "min", "max");
    page.plain(Some(Weight::Faint), &header);
    for (measure, spread) in &report.measures {
        let is_measured = !spread.readings().is_empty();
        let show = |value: f64| if is_measured { quantity(measure.unit(), value) } else { "-".to_owned() };
        let median = style.paint(Weight::Strong, &format!("{:>14}", show(spread.median())));
        let around = format!("{:>14}{:>14}", show(spread.min()), show(spread.max()));
        page.plain(None, &format!("  {:<36}{median}{}", measure.words(), style.paint(Weight::Faint, &around)));
    }
    page.plain(None, "");
    let body = units::bytes(report.plan.body_bytes as f64);
    page.plain(Some(Weight::Faint), &format!("  the bare loop answers with {body} bodies where nothing else is said"));
    page.plain(Some(Weight::Faint), &format!("  {}", report.machine));
    add_limits_notes(&mut page, report);
    page.text
}

fn add_limits_notes(page: &mut Page, report: &LimitsReport) {
    let notes = report.notes();
    if !notes.is_empty() || !report.gaps.is_empty() {
        page.plain(None, "");
    }
    for note in notes {
        page.plain(Some(Weight::Warning), &format!("  note: {note}"));
    }
    for gap in &report.gaps {
        page.plain(Some(Weight::Bad), &format!("  FAILED: {gap}"));
    }
}

fn quantity(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", units::figure(value)),
        Unit::BytesPerSecond => format!("{}/s", units::bytes(value)),
        Unit::Nanoseconds | Unit::NanosecondsPerMebibyte => units::duration(value),
    }
}

#[cfg(test)]
mod tests;
