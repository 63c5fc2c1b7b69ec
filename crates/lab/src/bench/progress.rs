//! Progress reports of a running bench.

use flatout_load::plan::Plan;
use hdrhistogram::Histogram;

/// The current subject of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server.
    Server,
    /// The bare loop, as the machine's limit.
    Limit,
}

/// The progress of a span since its start.
#[derive(Clone, Debug)]
pub struct Live {
    /// Complete responses.
    pub responses: u64,
    /// Failed requests.
    pub failures: u64,
    /// Latency so far, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Lag of request starts so far, in nanoseconds.
    pub lag: Histogram<u64>,
}

/// A receiver of progress reports.
pub trait ProgressReceiver {
    /// Returns whether reports are wanted; if not, threads save the effort.
    fn is_live(&self) -> bool;

    /// A span with this plan starts; counts start from 0.
    fn handle_begin(&mut self, _phase: Phase, _plan: &Plan) {}

    /// Called several times a second during a span; `None` at its very start.
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
