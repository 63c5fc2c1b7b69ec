//! What a running bench tells while it runs.

use flatout_load::plan::Plan;
use hdrhistogram::Histogram;

/// What is being measured at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server.
    Server,
    /// The bare loop, as the machine's limit.
    Limit,
}

/// Where a span stands, since its beginning.
#[derive(Clone, Debug)]
pub struct Live {
    /// Responses received whole.
    pub responses: u64,
    /// Requests failed.
    pub failures: u64,
    /// Latency so far, in nanoseconds.
    pub latency: Histogram<u64>,
    /// How late requests were begun so far, in nanoseconds.
    pub lag: Histogram<u64>,
}

/// Somebody who watches a run.
pub trait Progress {
    /// Whether anybody looks; if not, threads spare themselves the telling.
    fn is_live(&self) -> bool;

    /// A span begins, with this plan; its counts begin from nothing.
    fn handle_begin(&mut self, _phase: Phase, _plan: &Plan) {}

    /// Called a few times a second during a span; nothing is known right at its beginning.
    fn handle_live(&mut self, phase: Phase, live: Option<&Live>);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Progress for Unwatched {
    fn is_live(&self) -> bool {
        false
    }

    fn handle_live(&mut self, _phase: Phase, _live: Option<&Live>) {}
}
