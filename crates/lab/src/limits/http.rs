//! The bare loop, measured by the bench's own client. Its cost is the unit of server costs.

use super::responder::{Responder, ResponderPlan, ResponderReply};
use super::{LARGE_BODY_BYTES, LimitsError, Measure, Readings, RolesBusy, Setting};
use crate::bench::{Phase, SpanPlan, SpanResult, Unwatched, run_span};
use crate::cores::Placement;
use flatout_load::plan::{Plan, Stop, Visit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Number of connections for small responses, which is the default of `flatout bench`.
const CONNECTIONS: u32 = 64;

/// Number of connections for large responses: enough to keep the sender busy, few enough for their buffers to fit in
/// the cache.
const LARGE_CONNECTIONS: u32 = 4;

const TIMEOUT_NS: u64 = 10_000_000_000;

const MEBIBYTE: f64 = 1_048_576.0;

pub(super) fn measure_kept(setting: Setting) -> Result<Readings, LimitsError> {
    let small = ResponderReply::Memory { body_bytes: setting.body_bytes };
    let (span, cpu_ns) = ask(setting, small, false, CONNECTIONS)?;
    let (per_s, cpu) = by_request(&span, cpu_ns);
    Ok(readings(vec![(Measure::Http, per_s), (Measure::HttpCpu, cpu)], &span, cpu_ns))
}

pub(super) fn measure_close(setting: Setting) -> Result<Readings, LimitsError> {
    let small = ResponderReply::Memory { body_bytes: setting.body_bytes };
    let (span, cpu_ns) = ask(setting, small, true, CONNECTIONS)?;
    let (per_s, cpu) = by_request(&span, cpu_ns);
    Ok(readings(vec![(Measure::HttpClose, per_s), (Measure::HttpCloseCpu, cpu)], &span, cpu_ns))
}

pub(super) fn measure_large(setting: Setting) -> Result<Readings, LimitsError> {
    let large = ResponderReply::MemoryFile { body_bytes: LARGE_BODY_BYTES };
    let (span, cpu_ns) = ask(setting, large, false, LARGE_CONNECTIONS)?;
    let bytes = span.recorder.counts.bytes_in() as f64;
    let measures = vec![
        (Measure::HttpLarge, bytes * 1e9 / span.elapsed_ns as f64),
        (Measure::HttpLargeCpu, cpu_ns as f64 * MEBIBYTE / bytes),
    ];
    Ok(readings(measures, &span, cpu_ns))
}

/// Combines measures with the CPU load of both sides. The bare loop has one thread, so its CPU time is its busy time.
fn readings(measures: Vec<(Measure, f64)>, span: &SpanResult, cpu_ns: u64) -> Readings {
    let server = cpu_ns as f64 / span.elapsed_ns.max(1) as f64;
    Readings { measures, roles: Some(RolesBusy { server, client: span.busy_share + span.wait_share }) }
}

fn by_request(span: &SpanResult, cpu_ns: u64) -> (f64, f64) {
    let responses = span.recorder.counts.responses as f64;
    (responses * 1e9 / span.elapsed_ns as f64, cpu_ns as f64 / responses)
}

/// Runs the bare loop for the length of a probe. Also returns its CPU time, in nanoseconds.
fn ask(
    setting: Setting,
    reply: ResponderReply,
    closes: bool,
    connections: u32,
) -> Result<(SpanResult, u64), LimitsError> {
    let started = Responder::start(&ResponderPlan {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        placements: vec![Placement::Core(setting.cores.server)],
        reply,
        closes,
    });
    let responder = started.map_err(|cause| LimitsError::Probe { probe: "the bare loop", cause })?;
    let address = responder.address();
    let stop = Stop::After { duration_ns: setting.duration.as_nanos() as u64 };
    let visit = if closes { Visit::Connection { calls: 1 } } else { Visit::Request };
    let plan = Plan { connections, visit, stop, ..Plan::default() };
    let span = SpanPlan::bare(address, plan, Placement::Core(setting.cores.client)).map_err(LimitsError::Client)?;
    let span = SpanPlan { request_timeout_ns: TIMEOUT_NS, ..span };
    let cpu_ns = || responder.cpu_ns().map_err(|cause| LimitsError::Probe { probe: "the bare loop", cause });
    let cpu_before_ns = cpu_ns()?;
    let span = run_span(&span, Phase::Limit, &mut Unwatched).map_err(LimitsError::Client)?;
    let used_ns = cpu_ns()?.saturating_sub(cpu_before_ns);
    let failures = span.recorder.counts.errors();
    if failures > 0 {
        let cause = std::io::Error::other(format!("{failures} requests to the bare loop failed"));
        return Err(LimitsError::Probe { probe: "the bare loop", cause });
    }
    Ok((span, used_ns))
}
