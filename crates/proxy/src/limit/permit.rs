//! A place at an origin.

use super::{ASKING, Gate, Sample, UNDER_WAY};
use std::sync::Arc;

/// A place, taken until this is dropped: when the answer is whole, or will never be. Once the connection is a tunnel,
/// there is no request any more, and it is dropped as well.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    epoch: u32,
    asking: u32,
    filled: bool,
    reported: bool,
}

impl Permit {
    pub(super) const fn new(gate: Arc<Gate>, epoch: u32, asking: u32, filled: bool) -> Self {
        Self { gate, epoch, asking, filled, reported: false }
    }

    /// Tells what the request showed, when the head of its answer is there or when it has failed: from then on it counts
    /// for the limit no more. Only the first report counts.
    pub fn report(&mut self, sample: Sample, now_ms: u64) {
        if !std::mem::replace(&mut self.reported, true) {
            self.gate.handle_sample(self, sample, now_ms);
            self.gate.free_place(ASKING);
        }
    }

    /// Tells what the request showed, and frees the place: its answer is whole.
    pub fn finish(self, sample: Sample, now_ms: u64) {
        if !self.reported {
            self.gate.handle_sample(&self, sample, now_ms);
        }
        // Both parts of the place are freed at once, as this is dropped.
    }

    /// Which limit was in force when the place was taken.
    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How many waited for a head then, this one included.
    pub(super) const fn asking(&self) -> u32 {
        self.asking
    }

    /// Whether so many that the limit was, or was about to be, what held requests back.
    pub(super) const fn is_filled(&self) -> bool {
        self.filled
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.free_place(if self.reported { UNDER_WAY } else { UNDER_WAY + ASKING });
    }
}
