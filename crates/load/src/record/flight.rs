//! Requests in flight.

use super::Sample;
use serde::{Deserialize, Serialize};

/// Requests in flight, integrated over time, for Little's law.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Number of requests in flight now.
    pub now: u64,
    /// Maximum number of requests in flight, summed over threads.
    pub peak: u64,
    /// Time integral of requests in flight over the measured span, in request-nanoseconds.
    pub integral_ns: u64,
    /// Sum of the service times of finished requests, in nanoseconds: the other side of Little's law.
    pub service_sum_ns: u64,
    /// Number of finished requests.
    pub ended: u64,
    /// Time up to which `integral_ns` has been calculated.
    last_ns: u64,
}

impl InFlight {
    pub(super) fn begin(&mut self, requests: u64, now_ns: u64) {
        self.advance(now_ns);
        // A burst that waited for its stream is recorded after later events.
        let missed_ns = self.last_ns.saturating_sub(now_ns);
        self.integral_ns = self.integral_ns.saturating_add(requests.saturating_mul(missed_ns));
        self.now += requests;
        self.peak = self.peak.max(self.now);
    }

    pub(super) fn end(&mut self, sample: &Sample) {
        self.advance(sample.ended_ns);
        self.now = self.now.saturating_sub(1);
        self.ended += 1;
        self.service_sum_ns = self.service_sum_ns.saturating_add(sample.service_ns());
    }

    /// Extends the integral to `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) {
        let passed_ns = if self.last_ns == 0 { 0 } else { now_ns.saturating_sub(self.last_ns) };
        self.integral_ns = self.integral_ns.saturating_add(self.now.saturating_mul(passed_ns));
        self.last_ns = self.last_ns.max(now_ns);
    }

    /// Adds the sums of another finished record, whose clock may differ. The caller merges the peaks.
    pub(super) fn add(&mut self, other: &Self) {
        self.now += other.now;
        self.integral_ns = self.integral_ns.saturating_add(other.integral_ns);
        self.service_sum_ns = self.service_sum_ns.saturating_add(other.service_sum_ns);
        self.ended += other.ended;
    }
}
