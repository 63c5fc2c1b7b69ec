//! Counters that one thread writes and any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes and any thread may read. It wraps around on overflow.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the owning worker may call it.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts `amount`, for counters of things that currently exist. Only the owning worker may call it.
    #[inline]
    pub fn subtract(&self, amount: u64) {
        self.add(amount.wrapping_neg());
    }

    /// Raises the count to `value` if it is smaller. Only the owning worker may call it.
    #[inline]
    pub fn raise_to(&self, value: u64) {
        if self.get() < value {
            self.0.store(value, Ordering::Relaxed);
        }
    }

    /// The current count.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
