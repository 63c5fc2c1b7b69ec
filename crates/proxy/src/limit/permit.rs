//! A place at an origin.

use super::{Gate, Sample};
use std::sync::Arc;

/// A place, taken until this is dropped: when the answer is whole, or will never be.
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    epoch: u32,
    under_way: u32,
    filled: bool,
    reported: bool,
}

impl Permit {
    pub(super) const fn new(gate: Arc<Gate>, epoch: u32, under_way: u32, filled: bool) -> Self {
        Self { gate, epoch, under_way, filled, reported: false }
    }

    /// Tells what the request showed; only the first report counts.
    pub fn report(&mut self, sample: Sample, now_ms: u64) {
        if !std::mem::replace(&mut self.reported, true) {
            self.gate.handle_sample(self, sample, now_ms);
        }
    }

    /// Which limit was in force when the place was taken.
    pub(super) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How many places were taken then, this one included.
    pub(super) const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether so many that the limit was, or was about to be, what held requests back.
    pub(super) const fn is_filled(&self) -> bool {
        self.filled
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.free_place();
    }
}
