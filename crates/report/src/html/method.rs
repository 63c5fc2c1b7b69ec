//! The information needed to repeat the run, and the findings of searches.

use super::{capital, date};
use crate::{command, plan_words};
use flatout_load::report::RunReport;
use flatout_units::show;
use maud::{Markup, html};
use serde_json::Value;

/// Maximum depth to which a finding is shown. The JSON contains the rest.
const DEPTH_MAX: usize = 4;

/// Returns the findings of the run's searches. Each is a separate document, which is shown unchanged.
pub(super) fn findings(reports: &[RunReport], names: &[String]) -> Markup {
    html! { @for (report, name) in reports.iter().zip(names) { @for (question, finding) in &report.findings {
        section {
            h2 { (title(question)) @if reports.len() > 1 { ": " (name) } }
            (value(finding, 0))
        }
    } } }
}

fn title(name: &str) -> String {
    capital(&name.replace(['-', '_'], " "))
}

fn value(finding: &Value, depth: usize) -> Markup {
    html! { @match finding {
        Value::Object(fields) if depth < DEPTH_MAX => {
            // Show a sentence first, as text.
            @for name in ["sentence", "text"] { @if let Some(Value::String(sentence)) = fields.get(name) { p { (sentence) } } }
            dl { @for (name, field) in fields.iter().filter(|(name, _)| !["sentence", "text"].contains(&name.as_str())) {
                dt { (title(name)) } dd { (value(field, depth + 1)) }
            } }
        },
        Value::Array(rows) if table(rows).is_some() => (table(rows).unwrap_or_default()),
        Value::Array(items) if depth < DEPTH_MAX && items.len() <= 100 => { ul { @for item in items { li { (value(item, depth + 1)) } } } },
        Value::Array(_) | Value::Object(_) => "see the JSON",
        Value::String(text) => (text),
        Value::Number(number) => (figure(number)),
        Value::Bool(true) => "yes",
        Value::Bool(false) => "no",
        Value::Null => "–",
    } }
}

fn figure(number: &serde_json::Number) -> String {
    match number.as_u64() {
        Some(whole) => show::count(whole),
        None => number.as_f64().map_or_else(|| number.to_string(), |value| format!("{value:.4}")),
    }
}

/// Returns rows with the same simple fields as a table; `None` if the rows are different.
fn table(rows: &[Value]) -> Option<Markup> {
    let first = rows.first()?.as_object()?;
    let is_plain = |field: &Value| !field.is_object() && !field.is_array();
    let is_row =
        |row: &Value| row.as_object().is_some_and(|row| row.len() == first.len() && row.values().all(is_plain));
    if !rows.iter().all(is_row) {
        return None;
    }
    Some(html! { div.wide { table {
        thead { tr { @for name in first.keys() { th scope="col" { (title(name)) } } } }
        tbody { @for row in rows { tr { @for name in first.keys() { td { (value(&row[name], DEPTH_MAX)) } } } } }
    } } })
}

/// Returns machine, versions, command, seed and limits of every run.
pub(super) fn repeat(reports: &[RunReport], names: &[String]) -> Markup {
    html! {
        section {
            h2 { "To repeat this run" }
            p.note { code { "flatout rerun" } " repeats the run from its bundle or JSON." }
            @for (report, name) in reports.iter().zip(names) {
                @if reports.len() > 1 { h3 { (name) } }
                (one(report))
            }
        }
    }
}

fn one(report: &RunReport) -> Markup {
    let machine = &report.machine;
    let known = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    let memory = show::bytes(machine.memory_bytes as f64);
    html! {
        pre { code { (command::shell_line(&report.command)) } }
        dl {
            dt { "URL" } dd { (report.url) " at " (report.address) }
            dt { "Protocol" } dd { (report.protocol) }
            dt { "Workload" } dd { (report.workload) }
            @for step in report.steps.iter().take(1) { dt { "Plan" } dd {
                (plan_words::of(&step.plan))
                @if report.steps.len() > 1 { "; this is the first of " (report.steps.len()) " steps" }
            } }
            dt { "Warm-up" } dd { (warm_up(report)) }
            dt { "Seed" } dd { (report.seed) }
            dt { "Request timeout" } dd { (show::duration(report.request_timeout_ns as f64)) }
            dt { "Client" } dd {
                "flatout " (report.flatout_version) ", " (show::plural(u64::from(report.threads), "thread", "threads"))
                @if report.agents > 0 { ", " (show::plural(u64::from(report.agents), "agent", "agents")) }
                @if let Some(digest) = &machine.binary_digest { ", program " (digest) }
            }
            dt { "Server" } dd { (known(report.server_software.clone())) }
            dt { "Started" } dd { (date(report.begun_unix_ms)) }
            dt { "Machine" } dd {
                (machine.cpu_model) ", " (show::plural(machine.cores as u64, "core", "cores")) ", " (memory) ", Linux " (machine.kernel)
                @if let Some(host) = &machine.host { ", host " (host) }
                @if let Some(governor) = &machine.cpu_governor { ", governor " (governor) }
            }
            dt { "Limits" } dd {
                "open files " (machine.files_max.map_or_else(|| "unknown".to_owned(), show::count))
                @for (name, setting) in &machine.sysctls { "; " (name) " " (setting) }
            }
        }
    }
}

/// Describes briefly how each step warmed up.
fn warm_up(report: &RunReport) -> String {
    let words = report.steps.iter().filter(|step| step.warm_up.elapsed_ns > 0).map(|step| {
        let state = match step.warm_up.steady {
            Some(true) => ", then steady",
            Some(false) => ", never steady",
            None => "",
        };
        let (elapsed, samples) = (show::duration(step.warm_up.elapsed_ns as f64), show::count(step.warm_up.samples));
        format!("{elapsed}, {samples} requests not counted{state}")
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join("; ") }
}
