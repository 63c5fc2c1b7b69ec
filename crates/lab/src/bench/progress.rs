//! Progress reports of a running bench.

use flatout_load::plan::Plan;
use flatout_load::record::Statuses;
use hdrhistogram::Histogram;

/// The subject of the current measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server under test.
    Server,
    /// The bare loop, as the machine's limit.
    Limit,
}

/// The progress of a span of load since its start.
#[derive(Clone, Debug)]
pub struct Live {
    /// Time to which the counts refer, in nanoseconds on the monotonic clock: the mean over all threads.
    pub at_ns: u64,
    /// Number of responses by status.
    pub statuses: Statuses,
    /// Number of successful responses.
    pub responses: u64,
    /// Number of requests without a complete response, or with an unexpected status.
    pub failures: u64,
    /// Number of requests without a complete response, which are slower than all others.
    pub unanswered: u64,
    /// Response times of successful responses so far, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Schedule lag so far, in nanoseconds.
    pub lag: Histogram<u64>,
}

/// Receives progress reports.
pub trait ProgressReceiver {
    /// Returns whether reports are wanted. If not, the client threads do not prepare any.
    fn is_live(&self) -> bool;

    /// Handles the start of a span with this plan. Counts start again from 0.
    fn handle_begin(&mut self, _phase: Phase, _plan: &Plan) {}

    /// Handles a progress report, several times a second during a span. `live` is `None` at the very start.
    fn handle_live(&mut self, phase: Phase, live: Option<&Live>);
}

/// Discards all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl ProgressReceiver for Unwatched {
    fn is_live(&self) -> bool {
        false
    }

    fn handle_live(&mut self, _phase: Phase, _live: Option<&Live>) {}
}
