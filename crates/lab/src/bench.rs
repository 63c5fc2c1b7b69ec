//! `flatout bench`: a closed loop against a server, and beside it, when asked, the machine's own limit.
//!
//! With the limit, a run has three parts: half of the run, the bare loop, the other half. The first half shows what to
//! compare with (size of the answers, busy threads of the server), and a machine that slowly becomes faster or slower
//! does so for both alike. No request is sent beyond those counted.

mod drive;
mod limit;
mod note;
mod progress;
mod span;

pub use limit::{Limit, MEMORY_REPLY_BYTES_MAX};
pub use note::ReportNote;
pub use progress::{Live, Phase, Progress, Unwatched};

use crate::cores::Placement;
use crate::crowd::CrowdWatch;
use crate::machine::Machine;
use crate::request::{Field, build_request};
use crate::target::{CpuUsed, Target, TargetUnknown};
use crate::url::{Url, UrlError};
use flatout_load::{ConnectionUse, FailureKind, Plan, PlanError, Stop, Summary};
pub(crate) use span::{Span, SpanPlan, run_span};
use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

/// What to bench and how.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// Where.
    pub url: Url,
    /// How much.
    pub plan: Plan,
    /// Longest wait for a connection and for an answer, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Fields to send besides, or instead of, our own.
    pub fields: Vec<Field>,
    /// Whether to measure the bare loop beside the run.
    pub with_limit: bool,
}

/// Why a bench could not be run. A server that fails is no such reason: that is a result.
#[derive(Debug)]
pub enum BenchError {
    /// The URL gives no address.
    Url(UrlError),
    /// The plan cannot be run.
    Plan(PlanError),
    /// A client thread could not be started, or failed in a way that is not the server's.
    Thread(io::Error),
    /// A client thread ended by a defect of this program.
    ThreadPanicked,
    /// No memory for a record.
    Recorder,
    /// The bare loop could not be started.
    Responder(io::Error),
}

impl std::fmt::Display for BenchError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(error) => error.fmt(formatter),
            Self::Plan(error) => error.fmt(formatter),
            Self::Thread(error) => write!(formatter, "a client thread failed: {error}"),
            Self::ThreadPanicked => formatter.write_str("a client thread panicked, which is a defect of flatout"),
            Self::Recorder => formatter.write_str("no memory for the record of a run"),
            Self::Responder(error) => write!(formatter, "the bare loop could not be run: {error}"),
        }
    }
}

impl std::error::Error for BenchError {}

/// The server, as far as it could be found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFound {
    /// Short name of its first process.
    pub name: String,
    /// Its processes.
    pub processes: Vec<u32>,
    /// How many of its threads were busy.
    pub busy_threads: usize,
}

/// Failed requests of one kind and detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureDetail {
    /// The kind.
    pub kind: FailureKind,
    /// What is known beyond the kind.
    pub detail: &'static str,
    /// How many.
    pub count: u64,
}

/// Everything a bench found.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// What was benched, as asked.
    pub asked: BenchPlan,
    /// When the run began, in milliseconds since 1970.
    pub begun_unix_ms: u64,
    /// The address it came down to.
    pub address: SocketAddr,
    /// Threads and connections really used.
    pub threads: usize,
    /// What this machine is.
    pub machine: Machine,
    /// The server, or why its CPU time is not known.
    pub server: Result<ServerFound, TargetUnknown>,
    /// The figures.
    pub summary: Summary,
    /// More about failures, where more is known.
    pub details: Vec<FailureDetail>,
    /// The machine's limit, when it was asked for and the run came that far.
    pub limit: Option<Limit>,
}

/// A run's parts together: what the client saw and what the server used.
struct Parts {
    span: Option<Span>,
    server: Result<(Target, CpuUsed), TargetUnknown>,
}

/// Runs a bench from start to end.
pub fn run(asked: BenchPlan, progress: &mut dyn Progress) -> Result<BenchReport, BenchError> {
    asked.plan.check().map_err(BenchError::Plan)?;
    let address = asked.url.resolve().map_err(BenchError::Url)?;
    // As many connections as the system allows; where that is too few, failures will say fd-unavail.
    let _limit = flatout_net::socket::raise_descriptor_limit();
    let closes = asked.plan.connection_use == ConnectionUse::PerRequest;
    let begun_unix_ms = unix_ms();
    let whole = SpanPlan {
        plan: asked.plan,
        address,
        request: build_request(&asked.url, &asked.fields, closes).into(),
        request_timeout_ns: asked.request_timeout_ns,
        placement: Placement::Anywhere,
        handle_interrupts: true,
    };
    let mut parts =
        Parts { span: None, server: Target::find(address).map(|target| (target, CpuUsed { by_task: Vec::new() })) };
    let mut measured = None;
    let (first, second) = if asked.with_limit { halves(&asked.plan) } else { (asked.plan, None) };
    let mut ended = parts.run(&SpanPlan { plan: first, ..whole.clone() }, progress)?;
    let answers = parts.span.as_ref().is_some_and(|span| span.recorder.counts().responses > 0);
    if let (true, true, false, Some(first_part)) = (asked.with_limit, answers, ended, &parts.span) {
        let bare = limit::measure(&whole, first_part, &parts.busy_tasks(), progress)?;
        ended = bare.interrupted();
        measured = (!ended).then_some(bare);
    }
    // A server that answered nothing at all need not be asked a second time.
    if let (true, false, Some(second)) = (answers, ended, second) {
        parts.run(&SpanPlan { plan: second, ..whole.clone() }, progress)?;
    }
    let busy_threads = parts.busy_tasks().len();
    let Some(mut span) = parts.span else { return Err(BenchError::Recorder) };
    span.facts.interrupted |= ended;
    span.facts.requests_asked = match asked.plan.stop {
        Stop::Requests(requests) => Some(requests),
        Stop::After { .. } => None,
    };
    let summary = Summary::of(&span.recorder, span.facts);
    Ok(BenchReport {
        begun_unix_ms,
        address,
        threads: asked.plan.shares().len(),
        machine: Machine::here(),
        server: parts.server.map(|(target, _)| ServerFound {
            name: target.name().to_owned(),
            processes: target.processes().iter().copied().collect(),
            busy_threads,
        }),
        limit: measured.map(|measured| measured.compare(&summary)),
        details: span.recorder.details().map(|(kind, detail, count)| FailureDetail { kind, detail, count }).collect(),
        summary,
        asked,
    })
}

impl Parts {
    /// Runs one part and adds it; says whether somebody interrupted it.
    fn run(&mut self, plan: &SpanPlan, progress: &mut dyn Progress) -> Result<bool, BenchError> {
        let before = self.server.as_ref().ok().map(|(target, _)| target.snapshot());
        let crowd = CrowdWatch::begin();
        let mut span = run_span(plan, Phase::Server, progress)?;
        if let (Ok((target, used)), Some(before)) = (&mut self.server, before) {
            let part = target.snapshot().since(&before);
            span.facts.server_cpu_ns = Some(part.total_ns());
            used.merge(&part);
        }
        span.facts.other_cpu_share = match &self.server {
            Ok(_) | Err(TargetUnknown::NotLocal) => crowd.other_cpu_share(span.facts.server_cpu_ns.unwrap_or(0)),
            // It runs here, but its share and that of others cannot be told apart.
            Err(_) => None,
        };
        let interrupted = span.facts.interrupted;
        match &mut self.span {
            None => self.span = Some(span),
            Some(sum) => sum.merge(&span),
        }
        Ok(interrupted)
    }

    fn busy_tasks(&self) -> Vec<u32> {
        match (&self.server, &self.span) {
            (Ok((_, used)), Some(span)) => used.busy_tasks(span.facts.elapsed_ns),
            _ => Vec::new(),
        }
    }
}

/// The wall clock, which only tells when a run was; nothing is measured with it.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u64
}

/// A plan in two halves; a run of one request has only one.
fn halves(plan: &Plan) -> (Plan, Option<Plan>) {
    let (first, second) = match plan.stop {
        Stop::After { duration_ns } => {
            let half_ns = duration_ns / 2;
            (Stop::After { duration_ns: half_ns }, Stop::After { duration_ns: duration_ns - half_ns })
        }
        Stop::Requests(requests) => (Stop::Requests(requests / 2), Stop::Requests(requests - requests / 2)),
    };
    let (first, second) = (Plan { stop: first, ..*plan }, Plan { stop: second, ..*plan });
    if first.check().is_err() { (second, None) } else { (first, Some(second)) }
}

#[cfg(test)]
mod tests;
