//! Results as JSON. The schema version increases if a field is removed or changes its meaning; fields may be added at
//! any time. Times are in nanoseconds, sizes in bytes, and shares are fractions of 1. Every name ends with its unit.

use crate::bench::{BenchReport, Limit};
use crate::limits::{LimitsReport, Measure};
use crate::request::{ConnectionUse, Outline};
use crate::spread::Spread;
use flatout_load::plan::{Stop, Visit};
use flatout_load::report::StepReport;
use flatout_load::report::percentiles::buckets;
use flatout_report::command::SECRET_FIELDS;
use serde_json::{Map, Value, json};

/// Returns a bench report as JSON: the document that all views read, and the figures of the last level under common
/// names.
pub fn bench_value(report: &BenchReport) -> Value {
    let mut value = serde_json::to_value(&report.run).unwrap_or_default();
    let Value::Object(document) = &mut value else { return value };
    document.insert("flatout".to_owned(), env!("CARGO_PKG_VERSION").into());
    document.insert("request".to_owned(), request_value(report));
    document.insert("passed".to_owned(), report.passed().into());
    let notes: Vec<Value> =
        report.notes().into_iter().map(|note| json!({ "note": note.name(), "text": note.to_string() })).collect();
    document.insert("notes".to_owned(), notes.into());
    if let Some(limit) = &report.limit
        && let Value::Object(more) = limit_value(limit)
    {
        match document.get_mut("limit") {
            Some(Value::Object(shown)) => shown.extend(more),
            _ => drop(document.insert("limit".to_owned(), more.into())),
        }
    }
    if let Some(step) = report.run.steps.last()
        && let Value::Object(figures) = figures_value(report, step)
    {
        document.extend(figures);
    }
    value
}

/// Returns the figures of a level, without nesting by step.
fn figures_value(report: &BenchReport, step: &StepReport) -> Value {
    let counts = &step.record.counts;
    let stop = match step.plan.stop {
        Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => {
            json!({ "after_ns": duration_ns })
        }
        // The plan states what a visit of an open loop is.
        Stop::Count(count) => json!({ "requests": step.plan.counted().map_or(count, |(count, _)| count) }),
    };
    json!({
        "plan": {
            "connections": step.plan.connections_used(),
            "threads": report.threads,
            "connection_use": match step.plan.visit {
                Visit::Request => "keep-alive",
                Visit::Connection { calls: 1 } => "per-request",
                Visit::Connection { .. } => "per-connection",
                Visit::Session { .. } => "per-session",
            },
            "stop": stop,
            "timeout_ns": report.asked.request_timeout_ns,
        },
        "failing": step.failing.iter().map(|reason| json!({
            "reason": reason.name, "text": reason.text,
        })).collect::<Vec<_>>(),
        "invalid": step.invalid,
        "figures": step.figures,
        "requests": step.requests,
        "elapsed_ns": step.elapsed_ns,
        "other_cpu_share": step.client.other_cpu_share,
        "requests_per_s": step.responses_per_s,
        "bytes_in_per_s": step.bytes_in_per_s,
        "latency_from": "intended",
        "latency": step.response,
        "service": step.service,
        "lag": step.lag,
        "connect": step.phases.connect,
        "first_byte": step.phases.wait,
        "latency_buckets": buckets(&step.record.response.histogram()),
        "counts": {
            "connections": counts.connections,
            "reconnects": counts.server_closes,
            "requests_sent": counts.requests_sent,
            "responses": counts.responses,
            "interim_responses": counts.interim_responses,
            "bytes_out": counts.bytes_out,
            "head_bytes_in": counts.head_bytes_in,
            "body_bytes_in": counts.body_bytes_in,
        },
        "error_share": step.error_share,
        "unexpected": step.unexpected,
        "statuses": step.record.statuses,
        "status_classes": {
            "1xx": counts.status_classes[0],
            "2xx": counts.status_classes[1],
            "3xx": counts.status_classes[2],
            "4xx": counts.status_classes[3],
            "5xx": counts.status_classes[4],
        },
        // Every kind of error is listed, with 0 if it did not occur, so that a reader need not know which kinds exist.
        "errors": {
            "total": counts.failures_total(),
            "by_kind": counts.failures,
            "details": step.record.details,
        },
        "client": {
            "cpu_ns": step.client.cpu.total_ns(),
            "cpu_ns_per_request": step.client.cpu_ns_per_response,
            "busy_wait_ns": step.client.busy_wait_ns,
            "busy_share": step.client.busy_share,
            "wait_share": step.client.wait_share,
            "held_back_share": step.client.held_back_share,
            "stopped_ns": step.client.stopped_ns,
        },
        "server": match &report.server {
            Ok(found) => json!({
                "name": found.name,
                "processes": found.processes,
                "busy_threads": found.busy_threads,
                "cpu_ns": step.server.map(|server| server.cpu.total_ns()),
                "cpu_ns_per_request": step.server.and_then(|server| server.cpu_ns_per_response),
                "cpu_clock": step.server.map(|server| server.cpu_clock),
            }),
            Err(why) => json!({ "unknown": why.name() }),
        },
    })
}

/// Name and version of the limits schema.
pub const LIMITS_SCHEMA: &str = "flatout-limits/1";

/// Returns a limits report as JSON.
pub fn limits_value(report: &LimitsReport) -> Value {
    let measures: Map<String, Value> = report
        .measures
        .iter()
        .map(|(measure, spread)| (measure.name().to_owned(), measure_value(*measure, spread)))
        .collect();
    let roles: Map<String, Value> = report
        .roles
        .iter()
        .map(|roles| {
            let value = json!({
                "server_busy_share": roles.server_busy.median(),
                "client_busy_share": roles.client_busy.median(),
                "client_was_limit": roles.client_was_limit(),
            });
            (roles.measure.name().to_owned(), value)
        })
        .collect();
    json!({
        "schema": LIMITS_SCHEMA,
        "flatout": env!("CARGO_PKG_VERSION"),
        "machine": report.machine,
        "cores_used": report.cores.cores_used(),
        "probe_ns": report.plan.probe.as_nanos() as u64,
        "rounds": report.plan.rounds,
        "body_bytes": report.plan.body_bytes,
        "other_cpu_share": report.other_cpu_share,
        "interrupted": report.interrupted,
        "notes": report.notes().into_iter().map(|note| json!({
            "note": note.name(), "text": note.to_string(),
        })).collect::<Vec<_>>(),
        "gaps": report.gaps.iter().map(|gap| json!({
            "round": gap.round, "probe": gap.probe, "cause": gap.cause,
        })).collect::<Vec<_>>(),
        "measures": measures,
        "roles": roles,
    })
}

/// Returns the JSON of a measure. Figures that were not measured are null, not 0.
fn measure_value(measure: Measure, spread: &Spread) -> Value {
    let known = |value: f64| (!spread.readings().is_empty()).then_some(value);
    json!({
        "unit": measure.unit().name(),
        "median": known(spread.median()),
        "min": known(spread.min()),
        "max": known(spread.max()),
        "readings": spread.readings(),
    })
}

fn request_value(report: &BenchReport) -> Value {
    let asked = &report.asked;
    let (version, host) = (asked.speech.version, asked.url.authority());
    let closes = report.run.steps.last().is_some_and(|step| matches!(step.plan.visit, Visit::Connection { calls: 1 }));
    let entries = &asked.work.workload().entries;
    let method = entries.first().map_or("GET", |entry| asked.method_of(entry, &asked.content));
    let outline =
        Outline { method, target: &asked.url.target, host: &host, fields: &asked.fields, content: &asked.content };
    let connection = if closes { ConnectionUse::Last } else { ConnectionUse::Kept };
    let fields: Vec<Value> = outline
        .fields(version, connection)
        .into_iter()
        .map(|(name, value)| {
            let is_secret = SECRET_FIELDS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
            json!({ "name": name, "value": if is_secret { Value::Null } else { value.into() } })
        })
        .collect();
    json!({ "method": method, "target": asked.url.target, "fields": fields })
}

fn limit_value(limit: &Limit) -> Value {
    json!({
        "body_bytes": limit.body_bytes,
        "threads": limit.threads,
        "by_sendfile": limit.by_sendfile,
        "elapsed_ns": limit.elapsed_ns,
        "responses": limit.responses,
        "failures": limit.failures,
        "requests_per_s": limit.requests_per_s,
        "cpu_ns_per_request": limit.cpu_ns_per_request,
        "requests_share": limit.requests_share,
        "cpu_ratio": limit.cpu_ratio,
        "client_was_limit": limit.client_was_limit,
    })
}
