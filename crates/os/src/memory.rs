//! Returning memory to the kernel after a load peak.
//!
//! glibc retains freed memory for the next peak, and retains all of it if a single allocation at a higher address is
//! still in use. Without trimming, a server would keep its peak memory use long after the peak.

#![allow(unsafe_code)] // one call that no safe wrapper offers

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of connections and streams that must have closed before the heap is trimmed. Each worker counts only its own,
/// so a peak of a thousand connections amounts to a few hundred per worker.
const CROWD: usize = 128;

/// Delay before each further trim, in milliseconds: the memory of connections may be freed some time after they close.
const AGAIN_MS: u64 = 3_000;

/// Number of trims after the first.
const FURTHER_TRIMS: u8 = 2;

/// Total size of freed large buffers, in bytes, at which the heap is trimmed at once.
const RELEASED_BYTES: u64 = 32 << 20;

/// Total size of freed large buffers, in bytes, at which the heap is trimmed after [`AGAIN_MS`].
const RELEASED_BYTES_MIN: u64 = 1 << 20;

/// Total size of large buffers freed since the last trim that they caused, in bytes.
static RELEASED: AtomicU64 = AtomicU64::new(0);

/// Counts `bytes` of large buffers as freed. The heap is trimmed at once if the total is large, and later if it is small.
pub fn note_released(bytes: u64) {
    RELEASED.fetch_add(bytes, Ordering::Relaxed);
}

/// Tracks the number of open connections and streams, and trims the heap once most of those of a peak have closed.
#[derive(Debug, Default)]
pub struct CrowdMemory {
    most: Cell<usize>,
    /// When the heap is trimmed again, in milliseconds on the monotonic clock; 0 if no trim is planned.
    again_ms: Cell<u64>,
    /// Number of trims still to come.
    further: Cell<u8>,
}

impl CrowdMemory {
    /// Records that `open` connections and streams are open. Trims the heap once their number is half of the peak.
    pub fn handle_count(&self, open: usize, now_ms: u64) {
        if open > self.most.get() {
            self.most.set(open);
        } else if self.most.get() - open >= CROWD.max(self.most.get() / 2) {
            self.most.set(open);
            self.trim(now_ms, FURTHER_TRIMS);
        }
        let released = RELEASED.load(Ordering::Relaxed);
        if released >= RELEASED_BYTES {
            self.trim(now_ms, FURTHER_TRIMS);
        } else if released >= RELEASED_BYTES_MIN && !self.is_due() {
            self.further.set(1);
            self.again_ms.set(now_ms.saturating_add(AGAIN_MS));
        }
        if self.is_due() && now_ms >= self.again_ms.get() {
            self.trim(now_ms, self.further.get().saturating_sub(1));
        }
    }

    /// Trims the heap now, and plans `further` more trims.
    fn trim(&self, now_ms: u64, further: u8) {
        RELEASED.store(0, Ordering::Relaxed);
        self.further.set(further);
        self.again_ms.set(if further == 0 { 0 } else { now_ms.saturating_add(AGAIN_MS) });
        give_back();
    }

    /// Returns whether a further trim is planned.
    pub const fn is_due(&self) -> bool {
        self.again_ms.get() > 0
    }
}

/// Returns the free pages of the heap to the kernel.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no pointer, touches only memory that is free, and locks the heap as malloc does.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN_MS, CrowdMemory, RELEASED_BYTES_MIN, note_released};

    /// One test, because the count of freed buffers is that of the process.
    #[test]
    fn trimming_is_due_after_a_load_peak_and_after_large_buffers_were_freed() {
        let memory = CrowdMemory::default();
        for (open, most) in [(100, 100), (0, 100), (2000, 2000), (1500, 2000), (1000, 1000), (600, 1000), (400, 400)] {
            memory.handle_count(open, 1);
            assert_eq!(memory.most.get(), most, "{open}");
        }
        assert!(memory.is_due());
        memory.handle_count(400, 1 + AGAIN_MS);
        assert!(memory.is_due());
        memory.handle_count(400, 1 + 2 * AGAIN_MS);
        assert!(!memory.is_due());
        let memory = CrowdMemory::default();
        note_released(RELEASED_BYTES_MIN);
        memory.handle_count(1, 1);
        assert!(memory.is_due());
        memory.handle_count(1, AGAIN_MS);
        assert!(memory.is_due());
        memory.handle_count(1, 1 + AGAIN_MS);
        assert!(!memory.is_due());
        // Not for the same buffers again.
        memory.handle_count(1, 2 + AGAIN_MS);
        assert!(!memory.is_due());
    }
}
