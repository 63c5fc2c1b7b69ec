//! One bound for what pages of all sites hold of contents: forms, texts, files of forms, answers of upstreams.
//!
//! What one request may hold has bounds of its own; this one is for very many requests at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of all together at the least; more where one request alone may have more.
pub const BYTES_MIN: u64 = 256 << 20;

/// Bytes that are taken at a time: workers share the count.
const STEP_BYTES: u64 = 16 << 10;

/// The bound, and what is held.
#[derive(Debug)]
pub struct Budget {
    bytes_max: AtomicU64,
    held_bytes: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(BYTES_MIN)
    }
}

/// All of it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Budget {
    /// For `bytes_max` bytes.
    pub const fn new(bytes_max: u64) -> Self {
        Self { bytes_max: AtomicU64::new(bytes_max), held_bytes: AtomicU64::new(0) }
    }

    /// Makes it large enough for two requests that may hold `bytes` each.
    pub fn make_room_for(&self, bytes: u64) {
        self.bytes_max.fetch_max(bytes.saturating_mul(2), Ordering::Relaxed);
    }

    /// Bytes held now, in steps of 16 KiB.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// A share that holds nothing yet.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { budget: Arc::clone(self), used_bytes: 0, taken_bytes: 0 }
    }

    fn take(&self, bytes: u64) -> Result<(), Exhausted> {
        let before = self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.bytes_max.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Err(Exhausted)
    }
}

/// What one request holds of the budget. It is given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    used_bytes: u64,
    taken_bytes: u64,
}

impl Share {
    /// Holds `bytes` more.
    ///
    /// # Errors
    /// When there are not so many left; the share is as before then.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let used_bytes = self.used_bytes.saturating_add(bytes as u64);
        if used_bytes > self.taken_bytes {
            let more = (used_bytes - self.taken_bytes).div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
            self.budget.take(more)?;
            self.taken_bytes += more;
        }
        self.used_bytes = used_bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held_bytes.fetch_sub(self.taken_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Exhausted, STEP_BYTES};
    use std::sync::Arc;

    #[test]
    fn what_is_held_is_bounded_and_comes_back() {
        let budget = Arc::new(Budget::new(3 * STEP_BYTES));
        let mut one = budget.share();
        one.grow(1).unwrap();
        one.grow(STEP_BYTES as usize - 1).unwrap();
        assert_eq!(budget.held_bytes(), STEP_BYTES);
        let mut other = budget.share();
        assert_eq!(other.grow(2 * STEP_BYTES as usize + 1), Err(Exhausted));
        other.grow(2 * STEP_BYTES as usize).unwrap();
        assert_eq!(one.grow(1), Err(Exhausted));
        drop(other);
        one.grow(1).unwrap();
        assert_eq!(budget.held_bytes(), 2 * STEP_BYTES);
        drop(one);
        assert_eq!(budget.held_bytes(), 0);
        budget.make_room_for(STEP_BYTES);
        assert_eq!(budget.share().grow(4 * STEP_BYTES as usize), Err(Exhausted));
        budget.make_room_for(2 * STEP_BYTES);
        budget.share().grow(4 * STEP_BYTES as usize).unwrap();
    }
}
