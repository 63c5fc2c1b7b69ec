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
    /// Time from the end of the span until the last of these requests finished, in nanoseconds. If it failed, for example
    /// because it timed out, this is when it failed.
    pub drain_ns: u64,
    /// Time from the end of the span until the last of the successful responses, in nanoseconds.
    #[serde(default)]
    pub response_ns: u64,
    /// Time of the last successful response, in nanoseconds of the monotonic clock.
    #[serde(skip)]
    last_response_ns: u64,
}

impl Late {
    pub(super) fn add(&mut self, ended: EndedRequest) {
        self.responses += u64::from(ended.is_success);
        self.failures += u64::from(!ended.is_success);
        if ended.is_success {
            self.bytes_in += ended.bytes_in;
            self.last_response_ns = self.last_response_ns.max(ended.at_ns);
        }
    }

    /// Sets the times since the end of the span. The last request finished at `last_ended_ns`.
    pub(super) fn close(&mut self, until_ns: u64, last_ended_ns: u64) {
        self.drain_ns = last_ended_ns.saturating_sub(until_ns);
        self.response_ns = std::mem::take(&mut self.last_response_ns).saturating_sub(until_ns);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.bytes_in += other.bytes_in;
        self.drain_ns = self.drain_ns.max(other.drain_ns);
        self.response_ns = self.response_ns.max(other.response_ns);
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
