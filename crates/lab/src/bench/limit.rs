//! The machine's own limit: the bare loop, under the same load from the same client.
//!
//! The bare loop responds with a body of the run's mean size, and reuses or closes connections as the run did. It has
//! as many threads as the server had busy threads, and each may run on the same cores as one of those. The difference
//! between the figures of the run and of the bare loop is the server's own cost.

use super::BenchError;
use super::progress::{Phase, ProgressReceiver};
use super::span::{SpanPlan, SpanResult, run_span};
use super::{BenchRequests, drive};
use crate::cores::Placement;
use crate::limits::responder::{Responder, ResponderPlan, ResponderReply};
use crate::request::{ConnectionUse, HttpVersion, Outline};
use flatout_client::PreparedRequest;
use flatout_load::judge::validity::{CLIENT_BUSY_SHARE_MAX, CROWDED_RATE_MAX};
use flatout_load::plan::{Plan, Stop, Visit};
use flatout_load::report::LimitReport;
use flatout_load::template::ValueSource;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Length above which bodies are sent from a file, in bytes. In our measurements, sending from memory was cheaper up to
/// 16 KiB, and more expensive from 64 KiB on.
pub const MEMORY_REPLY_BYTES_MAX: u64 = 32 * 1024;

/// Shortest duration of the bare loop, in nanoseconds.
const DURATION_NS_MIN: u64 = 1_000_000_000;
/// Longest duration of the bare loop, in nanoseconds.
const DURATION_NS_MAX: u64 = 5_000_000_000;

/// The figures of the bare loop, and those of the run in relation to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Length of the response bodies, in bytes.
    pub body_bytes: u64,
    /// Number of threads of the bare loop.
    pub threads: usize,
    /// True if bodies were sent by sendfile instead of from memory.
    pub by_sendfile: bool,
    /// Duration of the measurement, in nanoseconds.
    pub elapsed_ns: u64,
    /// Number of responses in that time.
    pub responses: u64,
    /// Number of failed requests. The comparison means little unless it is 0.
    pub failures: u64,
    /// Responses per second of the bare loop.
    pub requests_per_s: f64,
    /// CPU time of the bare loop per response, in nanoseconds.
    pub cpu_ns_per_request: f64,
    /// The run's responses per second divided by those of the bare loop: 1 is the limit.
    pub requests_share: f64,
    /// The run's server CPU time per response divided by that of the bare loop: 1 is the limit.
    pub cpu_ratio: Option<f64>,
    /// True if the client, not the bare loop, probably limited the rate of the bare loop.
    pub client_was_limit: bool,
}

/// A measurement of the bare loop that has not been compared with a run yet.
#[derive(Debug)]
pub(super) struct Measured {
    span: SpanResult,
    cpu_ns: u64,
    body_bytes: u64,
    threads: usize,
    by_sendfile: bool,
}

/// Measures the bare loop with the parameters of the first part of a run.
pub(super) fn measure(
    like: &SpanPlan,
    first_part: &SpanResult,
    busy_tasks: &[u32],
    progress: &mut dyn ProgressReceiver,
) -> Result<Measured, BenchError> {
    let counts = &first_part.recorder.counts;
    let body_bytes = counts.body_bytes_in / counts.responses.max(1);
    let by_sendfile = body_bytes > MEMORY_REPLY_BYTES_MAX;
    let reply =
        if by_sendfile { ResponderReply::MemoryFile { body_bytes } } else { ResponderReply::Memory { body_bytes } };
    let placements: Vec<_> = match busy_tasks {
        [] => vec![Placement::Anywhere],
        tasks => tasks.iter().map(|task| Placement::AsTask(*task)).collect(),
    };
    let threads = placements.len();
    let closes = matches!(like.plan.visit, Visit::Connection { calls: 1 });
    let responder = Responder::start(&ResponderPlan {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        placements,
        reply,
        closes,
    })
    .map_err(BenchError::Responder)?;
    let duration_ns = first_part.elapsed_ns.clamp(DURATION_NS_MIN, DURATION_NS_MAX);
    let asking = bare_plan(like, responder.address(), closes, duration_ns)?;
    let cpu_before_ns = responder.cpu_ns().map_err(BenchError::Responder)?;
    let span = run_span(&asking, Phase::Limit, progress)?;
    let cpu_ns = responder.cpu_ns().map_err(BenchError::Responder)?.saturating_sub(cpu_before_ns);
    Ok(Measured { span, cpu_ns, body_bytes, threads, by_sendfile })
}

/// Returns the plan of the bare loop: a closed loop with the same number of connections.
fn bare_plan(like: &SpanPlan, address: SocketAddr, closes: bool, duration_ns: u64) -> Result<SpanPlan, BenchError> {
    let plan = Plan {
        visit: if closes { Visit::Connection { calls: 1 } } else { Visit::Request },
        connections: like.plan.connections,
        stop: Stop::After { duration_ns },
        seed: like.plan.seed,
        ..Plan::default()
    };
    let bare = SpanPlan::bare(address, plan, like.placement)?;
    let (threads, request_timeout_ns) = (like.threads, like.request_timeout_ns);
    Ok(SpanPlan { threads, request_timeout_ns, handle_interrupts: like.handle_interrupts, ..bare })
}

impl SpanPlan {
    /// Creates a plan of minimal requests over plain HTTP/1.1, sent by one thread.
    pub(crate) fn bare(address: SocketAddr, plan: Plan, placement: Placement) -> Result<Self, BenchError> {
        let host = address.to_string();
        let outline = Outline { method: "GET", target: "/", host: &host, fields: &[], content: b"" };
        let encode = |connection| outline.encode(HttpVersion::Http11, connection);
        let request = PreparedRequest::new(encode(ConnectionUse::Kept), encode(ConnectionUse::Last));
        let work = BenchRequests::one("/").ok_or(BenchError::NothingToAsk)?;
        Ok(Self {
            addresses: vec![address],
            unix_socket: None,
            tls: None,
            streams: None,
            requests: [request].into(),
            values: ValueSource::default(),
            choice: drive::RequestSelection { work, seed: plan.seed, step: 0 },
            threads: 1,
            plan,
            sources: None,
            digest_every: 0,
            request_timeout_ns: 10_000_000_000,
            placement,
            may_stay_awake: false,
            handle_interrupts: false,
            stop_when: None,
            share: (0, 1),
            begin_at_ns: None,
            resolve_ns: 0,
        })
    }
}

impl Measured {
    /// Returns whether the measurement was interrupted.
    pub(super) fn interrupted(&self) -> bool {
        self.span.interrupted
    }

    /// Compares a finished run with the bare loop, by its responses per second and the server's CPU time per response.
    pub(super) fn compare(&self, responses_per_s: f64, server_cpu_ns_per_response: Option<f64>) -> Limit {
        let counts = &self.span.recorder.counts;
        let requests_per_s = self.span.recorder.responses_in_time() as f64 * 1e9 / self.span.elapsed_ns.max(1) as f64;
        let cpu_ns_per_request = self.cpu_ns as f64 / counts.responses.max(1) as f64;
        let requests_share = if requests_per_s > 0.0 { responses_per_s / requests_per_s } else { f64::INFINITY };
        Limit {
            body_bytes: self.body_bytes,
            threads: self.threads,
            by_sendfile: self.by_sendfile,
            elapsed_ns: self.span.elapsed_ns,
            responses: counts.responses,
            failures: counts.errors(),
            requests_per_s,
            cpu_ns_per_request,
            requests_share,
            cpu_ratio: server_cpu_ns_per_response.filter(|_| self.cpu_ns > 0).map(|ns| ns / cpu_ns_per_request),
            client_was_limit: self.span.busy_share + self.span.wait_share > CLIENT_BUSY_SHARE_MAX
                || self.span.stopped_ns as f64 > CROWDED_RATE_MAX * self.span.elapsed_ns as f64,
        }
    }
}

impl Limit {
    /// Returns the limit in the form that all views read.
    pub(super) fn report(&self, responses_per_s: f64) -> LimitReport {
        LimitReport {
            measure: "http_requests_per_s".to_owned(),
            words: "responses from the bare loop to the same client in a closed loop, over plain HTTP/1.1".to_owned(),
            unit: "1/s".to_owned(),
            value: self.requests_per_s,
            reached: responses_per_s,
            share: self.requests_share,
        }
    }
}
