//! Requests that ended after the measured span.
//!
//! The span is the time in which load was offered. Requests in progress at its end are awaited and recorded, but
//! excluded from rates: otherwise one response of eight seconds would make a run of two seconds four times as long.

use super::Sample;
use serde::{Deserialize, Serialize};

/// Requests that ended after the span. The other counters include them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Complete responses.
    pub responses: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Bytes received with both.
    pub bytes_in: u64,
    /// Time from the end of the span to the last of them, in nanoseconds.
    pub drain_ns: u64,
}

impl Late {
    pub(super) fn add(&mut self, ended: EndedRequest) {
        self.responses += u64::from(ended.is_response);
        self.failures += u64::from(!ended.is_response);
        self.bytes_in += ended.bytes_in;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.responses += other.responses;
        self.failures += other.failures;
        self.bytes_in += other.bytes_in;
        self.drain_ns = self.drain_ns.max(other.drain_ns);
    }
}

/// A request that ended after the start of the last one. It may be late if the last one ends the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndedRequest {
    pub(super) at_ns: u64,
    bytes_in: u64,
    is_response: bool,
}

impl EndedRequest {
    pub(super) fn of(sample: &Sample) -> Self {
        Self {
            at_ns: sample.ended_ns,
            bytes_in: sample.head_bytes + sample.body_bytes,
            is_response: sample.result.is_ok(),
        }
    }
}
