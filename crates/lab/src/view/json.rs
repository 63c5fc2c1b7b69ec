//! Results as JSON. The schema's number goes up when a field changes its meaning or goes away; new fields may come any
//! time. Times are nanoseconds, sizes bytes, shares parts of 1; every name ends in its unit.

use crate::bench::{BenchReport, Limit};
use crate::limits::{LimitsReport, Measure};
use crate::request::request_fields;
use crate::spread::Spread;
use flatout_load::{ConnectionUse, FailureKind, LatencySummary, Stop};
use serde_json::{Map, Value, json};

/// Name and number of the bench schema.
pub const BENCH_SCHEMA: &str = "flatout-bench/1";

/// A bench report.
pub fn bench_value(report: &BenchReport) -> Value {
    let (asked, summary) = (&report.asked, &report.summary);
    let (facts, counts) = (&summary.facts, &summary.counts);
    let stop = match asked.plan.stop {
        Stop::After { duration_ns } => json!({ "after_ns": duration_ns }),
        Stop::Requests(requests) => json!({ "requests": requests }),
    };
    json!({
        "schema": BENCH_SCHEMA,
        "flatout": env!("CARGO_PKG_VERSION"),
        "url": asked.url.to_string(),
        "address": report.address.to_string(),
        "begun_unix_ms": report.begun_unix_ms,
        "request": request_value(report),
        "plan": {
            "connections": asked.plan.connections_used(),
            "threads": report.threads,
            "connection_use": match asked.plan.connection_use {
                ConnectionUse::KeepAlive => "keep-alive",
                ConnectionUse::PerRequest => "per-request",
            },
            "stop": stop,
            "timeout_ns": asked.request_timeout_ns,
        },
        "machine": report.machine,
        "passed": summary.verdict.passed(),
        "failing": summary.verdict.failing.iter().map(|reason| json!({
            "reason": reason.name(), "text": reason.to_string(),
        })).collect::<Vec<_>>(),
        "notes": report.notes().into_iter().map(|note| json!({
            "note": note.name(), "text": note.to_string(),
        })).collect::<Vec<_>>(),
        "elapsed_ns": facts.elapsed_ns,
        "other_cpu_share": facts.other_cpu_share,
        "requests_per_s": summary.requests_per_s,
        "bytes_in_per_s": summary.bytes_in_per_s,
        "latency_from": "send",
        "latency": latency_value(summary.latency.as_ref()),
        "connect": latency_value(summary.connect.as_ref()),
        "counts": {
            "connections": counts.connections,
            "reconnects": counts.reconnects,
            "requests_sent": counts.requests_sent,
            "responses": counts.responses,
            "interim_responses": counts.interim_responses,
            "bytes_out": counts.bytes_out,
            "head_bytes_in": counts.head_bytes_in,
            "body_bytes_in": counts.body_bytes_in,
        },
        "status_classes": {
            "1xx": counts.status_classes[0],
            "2xx": counts.status_classes[1],
            "3xx": counts.status_classes[2],
            "4xx": counts.status_classes[3],
            "5xx": counts.status_classes[4],
        },
        "errors": errors_value(report),
        "client": {
            "cpu_ns": facts.client_cpu_ns,
            "cpu_ns_per_request": summary.client_cpu_ns_per_request,
            "busy_share": facts.client_busy_share,
            "wait_share": facts.client_wait_share,
        },
        "server": match &report.server {
            Ok(found) => json!({
                "name": found.name,
                "processes": found.processes,
                "busy_threads": found.busy_threads,
                "cpu_ns": facts.server_cpu_ns,
                "cpu_ns_per_request": summary.server_cpu_ns_per_request,
            }),
            Err(why) => json!({ "unknown": why.name() }),
        },
        "limit": report.limit.as_ref().map(limit_value),
    })
}

/// Name and number of the limits schema.
pub const LIMITS_SCHEMA: &str = "flatout-limits/1";

/// A limits report.
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

/// What was not measured is null, and not 0.
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

/// Fields whose values are nobody's but the server's, and stay out of what is kept and shown around.
const SECRET_FIELDS: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

fn request_value(report: &BenchReport) -> Value {
    let closes = report.asked.plan.connection_use == ConnectionUse::PerRequest;
    let fields: Vec<Value> = request_fields(&report.asked.url, &report.asked.fields, closes)
        .into_iter()
        .map(|(name, value)| {
            let is_secret = SECRET_FIELDS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
            json!({ "name": name, "value": if is_secret { Value::Null } else { value.into() } })
        })
        .collect();
    json!({ "method": "GET", "target": report.asked.url.target, "fields": fields })
}

fn latency_value(latency: Option<&LatencySummary>) -> Value {
    latency.map_or(Value::Null, |latency| {
        json!({
            "count": latency.count,
            "mean_ns": latency.mean_ns,
            "min_ns": latency.min_ns,
            "p50_ns": latency.p50_ns,
            "p90_ns": latency.p90_ns,
            "p99_ns": latency.p99_ns,
            "p99_9_ns": latency.p99_9_ns,
            "max_ns": latency.max_ns,
        })
    })
}

/// Every kind is there, with 0 where nothing happened, so that a reader need not know which ones exist.
fn errors_value(report: &BenchReport) -> Value {
    let counts = &report.summary.counts;
    let by_kind: Map<String, Value> =
        FailureKind::ALL.iter().map(|kind| (kind.name().to_owned(), counts.failures_of(*kind).into())).collect();
    let details: Vec<Value> = report
        .details
        .iter()
        .map(|detail| json!({ "kind": detail.kind.name(), "detail": detail.detail, "count": detail.count }))
        .collect();
    json!({ "total": counts.failures_total(), "by_kind": by_kind, "details": details })
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
