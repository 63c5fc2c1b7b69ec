//! The environment of a result, as JSON.

use flatout_load::report::RunReport;
use serde_json::{Value, json};

/// Returns machine, settings and versions.
pub fn environment(report: &RunReport) -> Value {
    json!({
        "flatout_version": report.flatout_version,
        "machine": report.machine,
        "begun_unix_ms": report.begun_unix_ms,
        "address": report.address,
        "protocol": report.protocol,
        "server_software": report.server_software,
        "threads": report.threads,
        "agents": report.agents,
    })
}
