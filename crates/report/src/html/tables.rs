//! The tables of the report.

use crate::figures::{self, time};
use crate::verdict;
use flatout_load::FailureKind;
use flatout_load::report::{Percentiles, RunReport, StepReport};
use flatout_units::show;
use maud::{Markup, html};

/// Returns every step of every run, with the name of the run if there are several runs.
fn rows<'a>(reports: &'a [RunReport], names: &'a [String]) -> Vec<(String, &'a RunReport, &'a StepReport)> {
    let mut rows = Vec::new();
    for (report, name) in reports.iter().zip(names) {
        for step in &report.steps {
            let load = verdict::load(step);
            let name = if reports.len() > 1 { format!("{name}: {load}") } else { load };
            rows.push((name, report, step));
        }
    }
    rows
}

fn duration(times: Option<Percentiles>, pick: fn(&Percentiles) -> Option<u64>) -> String {
    times.map_or_else(|| "–".to_owned(), |times| time(pick(&times)))
}

/// Returns the table of the results of each step.
pub(super) fn steps(reports: &[RunReport], names: &[String]) -> Markup {
    let rows = rows(reports, names);
    html! {
        section {
            h2 { "Results" }
            div.wide { table {
                thead { tr {
                    @for head in ["offered", "responses/s", "mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "longest", "failed", "late (p99)", "received", "verdict"] { th scope="col" { (head) } }
                } }
                tbody { @for (name, _, step) in &rows { (step_row(name, step)) } }
                caption {
                    "Times are from the intended start of a request to the last byte of its response. Late: the delay between the intended start and the start."
                }
            } }
            (unanswered(&rows))
            (thresholds(reports, names))
            (notes(reports, names))
        }
    }
}

/// States which requests the times cover, if some requests have no response.
fn unanswered(rows: &[(String, &RunReport, &StepReport)]) -> Markup {
    html! { @for (name, _, step) in rows { @if let Some(of) = verdict::unanswered(step) {
        p { @if rows.len() > 1 { (name) ": times" } @else { "Times" } " are " (of) "." }
    } } }
}

fn step_row(name: &str, step: &StepReport) -> Markup {
    let time = |pick: fn(&Percentiles) -> Option<u64>| duration(step.response, pick);
    html! { tr {
        th scope="row" { (name) }
        td { (show::figure(step.responses_per_s)) }
        td { (step.response.map_or_else(|| "–".to_owned(), |times| figures::mean(&times))) }
        td { (time(|times| times.p50_ns)) }
        td { (time(|times| times.p75_ns)) }
        td { (time(|times| times.p90_ns)) }
        td { (time(|times| times.p95_ns)) }
        td { (time(|times| times.p99_ns)) }
        td { (time(|times| times.p99_9_ns)) }
        td { (time(|times| times.max_ns)) }
        td.bad[step.error_share > 0.0] { (show::percent(step.error_share)) }
        td { (duration(step.lag, |lag| lag.p99_ns)) }
        td { (show::bytes(step.bytes_in_per_s)) "/s" }
        td.bad[!step.invalid.is_empty()] { (verdict::short(step)) }
    } }
}

fn thresholds(reports: &[RunReport], names: &[String]) -> Markup {
    let any = reports.iter().any(|report| !report.thresholds.is_empty());
    html! { @if any {
        h3 { "Requirements" }
        div.wide { table {
            thead { tr { th scope="col" { "required" } th scope="col" { "step" } th scope="col" { "found" } th scope="col" { "met" } } }
            tbody { @for (report, name) in reports.iter().zip(names) { @for outcome in &report.thresholds { tr {
                th scope="row" { (outcome.text) @if reports.len() > 1 { " (" (name) ")" } }
                td { (outcome.step + 1) }
                td { (outcome.found.as_deref().unwrap_or("–")) }
                @if !outcome.unsound.is_empty() { td.bad { "uncertain" (verdict::uncertain(outcome)) } }
                @else if outcome.met { td { "yes" } } @else { td.bad { "no" } }
            } } } }
        } }
    } }
}

fn notes(reports: &[RunReport], names: &[String]) -> Markup {
    let rows = rows(reports, names);
    let is_alone = rows.len() == 1;
    html! { @if rows.iter().any(|(_, _, step)| !step.notes.is_empty()) {
        h3 { "Notes" }
        ul { @for (name, _, step) in &rows { @for note in &step.notes { li {
            @if !is_alone { (name) ": " } (note.text)
        } } } }
    } }
}

/// Returns the phases of requests: with shares for a single step, side by side for several steps.
pub(super) fn phases(reports: &[RunReport], names: &[String]) -> Markup {
    let rows = rows(reports, names);
    html! {
        section {
            h2 { "Where the time went" }
            @if let [(_, _, step)] = &rows[..] { (phases_of_one(step)) } @else { (phases_of_many(&rows)) }
        }
    }
}

fn phases_named(step: &StepReport) -> [(&'static str, Option<Percentiles>); 5] {
    [
        ("resolve the name", step.phases.resolve),
        ("connect", step.phases.connect),
        ("TLS handshake", step.phases.tls),
        ("wait for the first byte", step.phases.wait),
        ("receive the rest", step.phases.transfer),
    ]
}

fn phases_of_one(step: &StepReport) -> Markup {
    let whole_ns = step.record.sums.service_ns.sum as f64;
    html! { div.wide { table {
        thead { tr { th scope="col" { "phase" } @for head in ["values", "mean", "share of service", "p50", "p99", "longest"] { th scope="col" { (head) } } } }
        tbody { @for (name, phase) in phases_named(step) { @if let Some(phase) = phase {
            @let share = if whole_ns > 0.0 { (phase.mean_ns * phase.count as f64 / whole_ns).clamp(0.0, 1.0) } else { 0.0 };
            tr {
                th scope="row" { (name) }
                td { (show::count(phase.count)) }
                td { (show::duration(phase.mean_ns)) }
                td { span.bar role="img" aria-label=(show::percent(share)) { i style={ "width:" (format!("{:.1}", 100.0 * share)) "%" } {} } }
                td { (time(phase.p50_ns)) }
                td { (time(phase.p99_ns)) }
                td { (time(phase.max_ns)) }
            }
        } } }
        caption { "Connecting and TLS count once per connection, waiting and receiving once per response; each share is of the total service time." }
    } } }
}

fn phases_of_many(rows: &[(String, &RunReport, &StepReport)]) -> Markup {
    let met: Vec<usize> =
        (0..5).filter(|index| rows.iter().any(|(_, _, step)| phases_named(step)[*index].1.is_some())).collect();
    let name = |index: usize| rows.first().map_or("", |(_, _, step)| phases_named(step)[index].0);
    html! { div.wide { table {
        thead {
            tr { th {} @for index in &met { th scope="colgroup" colspan="2" { (name(*index)) } } }
            tr { th scope="col" { "offered" } @for _ in &met { th scope="col" { "mean" } th scope="col" { "p99" } } }
        }
        tbody { @for (name, _, step) in rows { tr {
            th scope="row" { (name) }
            @for index in &met {
                @let phase = phases_named(step)[*index].1;
                td { (phase.map_or_else(|| "–".to_owned(), |phase| show::duration(phase.mean_ns))) }
                td { (duration(phase, |phase| phase.p99_ns)) }
            }
        } } }
        caption { "Connecting and TLS count once per connection, waiting and receiving once per response." }
    } } }
}

/// Returns the failures by kind, and the statuses of the responses.
pub(super) fn errors(reports: &[RunReport], names: &[String]) -> Markup {
    let rows = rows(reports, names);
    let met: Vec<FailureKind> = FailureKind::ALL
        .iter()
        .copied()
        .filter(|kind| rows.iter().any(|(_, _, step)| step.record.counts.failures_of(*kind) > 0))
        .collect();
    html! {
        section {
            h2 { "Responses and errors" }
            div.wide { table {
                thead { tr {
                    th scope="col" { "offered" }
                    @for head in ["due", "started", "sent", "in time", "late", "1xx", "2xx", "3xx", "4xx", "5xx", "failed", "not started"] { th scope="col" { (head) } }
                } }
                tbody { @for (name, _, step) in &rows {
                    @let counts = &step.record.counts;
                    tr {
                        th scope="row" { (name) }
                        td { (step.requests.offered.map_or_else(|| "–".to_owned(), show::count)) }
                        @for count in [counts.requests_begun, counts.requests_sent, step.requests.in_time, step.requests.late] { td { (show::count(count)) } }
                        @for (index, count) in counts.status_classes.iter().enumerate() { td.bad[counts.unexpected_classes[index] > 0] { (show::count(*count)) } }
                        td.bad[counts.failures_total() > 0] { (show::count(counts.failures_total())) }
                        td.bad[step.tally.dropped > 0] { (show::count(step.tally.dropped)) }
                    }
                } }
            } }
            p { "Rates count the successful responses that arrived while load was offered; those that arrived afterwards count as late." }
            (unexpected(&rows))
            @if rows.iter().all(|(_, _, step)| step.record.counts.errors() == 0) { p { "No request failed." } }
            @if !met.is_empty() {
                div.wide { table {
                    thead { tr { th scope="col" { "error" } th.words scope="col" { "meaning" } @for (name, ..) in &rows { th scope="col" { (name) } } } }
                    tbody { @for kind in met { tr {
                        th scope="row" { (kind.name()) }
                        td.words { (kind.text()) (details(&rows, kind)) }
                        @for (_, _, step) in &rows { td { (show::count(step.record.counts.failures_of(kind))) } }
                    } } }
                } }
            }
        }
    }
}

/// Lists the unexpected statuses of each step.
fn unexpected(rows: &[(String, &RunReport, &StepReport)]) -> Markup {
    html! { @for (name, _, step) in rows {
        @let statuses = verdict::statuses(step);
        @let unexpected: Vec<_> = statuses.iter().filter(|(.., is_expected)| !is_expected).collect();
        @if !unexpected.is_empty() { p.bad {
            @if rows.len() > 1 { (name) ": " }
            "Unexpected statuses: "
            (unexpected.iter().map(|(status, count, _)| format!("{status} {}", show::count(*count))).collect::<Vec<_>>().join(", "))
            @if let Some(times) = step.unexpected {
                " (response times: p50 " (time(times.p50_ns)) ", p99 " (time(times.p99_ns)) ")"
            }
            "."
        } }
    } }
}

fn details(rows: &[(String, &RunReport, &StepReport)], kind: FailureKind) -> String {
    let mut all: Vec<(&str, u64)> = Vec::new();
    for detail in rows.iter().flat_map(|(_, _, step)| &step.record.details).filter(|detail| detail.kind == kind) {
        match all.iter_mut().find(|(name, _)| *name == detail.detail) {
            Some((_, count)) => *count += detail.count,
            None => all.push((&detail.detail, detail.count)),
        }
    }
    let words: Vec<String> = all.iter().map(|(name, count)| format!("{name} {}", show::count(*count))).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// Returns the results by URL class, if there are several classes. For a sweep, these are the results of the step with
/// the most responses per second.
pub(super) fn classes(reports: &[RunReport], names: &[String]) -> Markup {
    html! { @if reports.iter().any(|report| report.class_names.len() > 1) {
        section {
            h2 { "By class" }
            div.wide { table {
                thead { tr { @for head in ["class", "requests", "responses", "errors", "failed", "mean", "p50", "p99", "longest", "mean body"] { th scope="col" { (head) } } } }
                @for (report, name) in reports.iter().zip(names) { @if let Some(step) = busiest(report) { tbody {
                    @if reports.len() > 1 || report.steps.len() > 1 {
                        tr { th scope="rowgroup" colspan="10" { @if reports.len() > 1 { (name) ": " } (verdict::load(step)) } }
                    }
                    @for (class_name, class) in report.class_names.iter().zip(&step.record.classes) {
                        @let times = class.percentiles();
                        tr {
                            th scope="row" { (class_name) }
                            td { (show::count(class.requests)) }
                            td { (show::count(class.responses)) }
                            td.bad[class.errors > 0] { (show::count(class.errors)) }
                            td.bad[class.failures > 0] { (show::count(class.failures)) }
                            td { (class.sums.response_ns.mean().map_or_else(|| "–".to_owned(), show::duration)) }
                            td { (duration(times, |times| times.p50_ns)) }
                            td { (duration(times, |times| times.p99_ns)) }
                            td { (duration(times, |times| times.max_ns)) }
                            td { (class.sums.body_bytes.mean().map_or_else(|| "–".to_owned(), show::bytes)) }
                        }
                    }
                } } }
                caption { "For a run with several steps, the step with the most responses; the JSON and the CSV tables contain all steps." }
            } }
        }
    } }
}

/// Returns the step with the most responses per second.
pub(super) fn busiest(report: &RunReport) -> Option<&StepReport> {
    report.steps.iter().max_by(|one, other| one.responses_per_s.total_cmp(&other.responses_per_s))
}

/// Returns the resources that the run used: client, server and kernel.
pub(super) fn costs(reports: &[RunReport], names: &[String]) -> Markup {
    let per_response = |cost_ns: Option<f64>| cost_ns.map_or_else(|| "–".to_owned(), show::duration);
    let number = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), show::count);
    html! {
        section {
            h2 { "Resource usage" }
            div.wide { table {
                thead { tr {
                    th scope="col" { "offered" }
                    @for head in ["client CPU per response", "busy polling", "busiest thread", "loop lag (p99)", "other work", "server CPU per response", "server cores", "server memory, peak", "voluntary switches", "involuntary switches", "retransmits", "listen overflows"] { th scope="col" { (head) } }
                } }
                tbody { @for (name, _, step) in rows(reports, names) {
                    @let (client, server, kernel) = (&step.client, step.server.as_ref(), step.kernel.as_ref());
                    tr {
                        th scope="row" { (name) }
                        td { (per_response(client.cpu_ns_per_response)) }
                        td { (per_response(client.busy_wait_ns_per_response(step.record.counts.successes()))) }
                        td { (show::percent(client.busy_share)) }
                        td { (duration(client.loop_lag.summary, |lag| lag.p99_ns)) }
                        td { (client.other_cpu_share.map_or_else(|| "–".to_owned(), show::percent)) }
                        td { (per_response(server.and_then(|server| server.cpu_ns_per_response))) }
                        td { (server.map_or_else(|| "–".to_owned(), |server| format!("{:.2}", server.cores_used))) }
                        td { (server.and_then(|server| server.memory_bytes_peak).map_or_else(|| "–".to_owned(), |bytes| show::bytes(bytes as f64))) }
                        td { (number(server.and_then(|server| server.switches_voluntary))) }
                        td { (number(server.and_then(|server| server.switches_forced))) }
                        td { (number(kernel.map(|kernel| kernel.tcp_retransmits))) }
                        td { (number(kernel.map(|kernel| kernel.listen_overflows))) }
                    }
                } }
                caption { "Busy polling: CPU per response that the client spent waiting for the next request or for a response. The kernel's counters cover the whole machine. A dash means unknown or none." }
            } }
            @for (report, name) in reports.iter().zip(names) { @if let Some(limit) = &report.limit {
                p {
                    @if reports.len() > 1 { (name) ": " }
                    "The machine's limit (" (limit.words) ") is " (show::figure(limit.value)) " " (limit.unit) "; this run reached "
                    (show::figure(limit.reached)) ", " strong { (show::percent(limit.share)) } " of it."
                }
            } }
        }
    }
}

/// Returns the agents that generated the load, if there were any.
pub(super) fn agents(reports: &[RunReport], names: &[String]) -> Markup {
    let rows = rows(reports, names);
    html! { @if rows.iter().any(|(_, _, step)| !step.client.agents.is_empty()) {
        section {
            h2 { "Agents" }
            div.wide { table {
                thead { tr { @for head in ["agent", "started late by", "busiest thread", "responses", "state"] { th scope="col" { (head) } } } }
                @for (name, _, step) in &rows { tbody {
                    @if rows.len() > 1 { tr { th scope="rowgroup" colspan="5" { (name) } } }
                    @for agent in &step.client.agents { tr {
                        th scope="row" { (agent.name) }
                        td { @if agent.skew_ns < 0 { "−" } (show::duration(agent.skew_ns.unsigned_abs() as f64)) }
                        td { (show::percent(agent.busy_share)) }
                        td { (show::count(agent.responses)) }
                        @if agent.lost { td.bad { "lost" } } @else { td { "whole" } }
                    } }
                } }
            } }
        }
    } }
}
