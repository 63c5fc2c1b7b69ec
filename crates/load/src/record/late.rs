//! Requests that finished after the measured span.
//!
//! The span is the time in which load was offered. Requests in progress at its end are awaited and recorded, but
//! excluded from rates. Otherwise one response that takes eight seconds would make a two-second run four times as long.

use super::Sample;
use serde::{Deserialize, Serialize};

/// Requests that finished after the span. The other counters include them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Successful responses.
    pub responses: u64,
    /// Requests that failed, or whose response had an unexpected status.
    pub failures: u64,
    /// Bytes of the successful responses.
    pub bytes_in: u64,
    /// Time from the end of the span until the last of these requests finished, in nanoseconds.
    pub drain_ns: u64,
}

impl Late {
    pub(super) fn add(&mut self, ended: EndedRequest) {
        self.responses += u64::from(ended.is_success);
        self.failures += u64::from(!ended.is_success);
        self.bytes_in += if ended.is_success { ended.bytes_in } else { 0 };
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.bytes_in += other.bytes_in;
        self.drain_ns = self.drain_ns.max(other.drain_ns);
    }
}

/// A request that finished after the most recent start of a request. The span may end at that start, in which case this
/// request is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedRequest {
    pub(super) at_ns: u64,
    bytes_in: u64,
    is_success: bool,
}

impl EndedRequest {
    pub(super) fn of(sample: &Sample, is_success: bool) -> Self {
        Self { at_ns: sample.ended_ns, bytes_in: sample.head_bytes + sample.body_bytes, is_success }
    }
}
