//! Permit for a request to an origin.

use super::{ASKING, ConcurrencyLimiter, Sample, UNDER_WAY};
use std::sync::Arc;

/// Permit for a request, to be dropped when the response is complete or has failed. When a request becomes a tunnel,
/// its permit is dropped too.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<ConcurrencyLimiter>,
    epoch: u32,
    asking: u32,
    filled: bool,
    reported: bool,
}

impl Permit {
    pub(super) const fn new(limiter: Arc<ConcurrencyLimiter>, epoch: u32, asking: u32, filled: bool) -> Self {
        Self { limiter, epoch, asking, filled, reported: false }
    }

    /// Reports an observation when the response head arrives or the request fails. After that, the request no longer
    /// counts towards the adaptive limit. Further reports are ignored.
    pub fn report(&mut self, sample: Sample, now_ms: u64) {
        if !std::mem::replace(&mut self.reported, true) {
            self.limiter.handle_sample(self, sample, now_ms);
            self.limiter.free_place(ASKING);
        }
    }

    /// Reports an observation and releases the permit, because the response is complete.
    pub fn finish(self, sample: Sample, now_ms: u64) {
        if !self.reported {
            self.limiter.handle_sample(&self, sample, now_ms);
        }
        // Dropping the permit releases both counts at once.
    }

    /// Returns the epoch of the limit when the permit was acquired.
    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the number of requests that were waiting for a head when the permit was acquired, including this one.
    pub(super) const fn asking(&self) -> u32 {
        self.asking
    }

    /// Returns whether the limit was nearly reached when the permit was acquired.
    pub(super) const fn is_filled(&self) -> bool {
        self.filled
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.free_place(if self.reported { UNDER_WAY } else { UNDER_WAY + ASKING });
    }
}
