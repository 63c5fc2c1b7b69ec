//! Permit for a request to an origin.

use super::{ConcurrencyLimiter, Place, Sample, UNDER_WAY};
use crate::group::Change;
use std::sync::Arc;

/// Permit for a request, to be dropped when the response is complete or has failed. When a request becomes a tunnel,
/// its permit is dropped too.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<ConcurrencyLimiter>,
    place: Place,
    filled: bool,
    reported: bool,
}

impl Permit {
    pub(super) const fn new(limiter: Arc<ConcurrencyLimiter>, place: Place, filled: bool) -> Self {
        Self { limiter, place, filled, reported: false }
    }

    /// Reports an observation when the response head arrives or the request fails. After that, the request no longer
    /// counts towards the adaptive limit. Further reports are ignored. Returns whether the limit has begun or ended.
    pub fn report(&mut self, sample: Sample, now_ms: u64) -> Option<Change> {
        if std::mem::replace(&mut self.reported, true) {
            return None;
        }
        let change = self.limiter.handle_sample(self, sample, now_ms);
        self.limiter.free_asking(&self.place, 0);
        change
    }

    /// Reports an observation and releases the permit, because the response is complete. Returns whether the limit has
    /// begun or ended.
    pub fn finish(self, sample: Sample, now_ms: u64) -> Option<Change> {
        // Dropping the permit releases both counts at once.
        if self.reported { None } else { self.limiter.handle_sample(&self, sample, now_ms) }
    }

    pub(super) const fn place(&self) -> &Place {
        &self.place
    }

    /// Returns whether the limit was nearly reached when the permit was acquired.
    pub(super) const fn is_filled(&self) -> bool {
        self.filled
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.reported {
            self.limiter.free_place(UNDER_WAY);
        } else {
            self.limiter.free_asking(&self.place, UNDER_WAY);
        }
    }
}
