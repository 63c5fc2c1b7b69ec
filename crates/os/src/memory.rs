//! Returns memory to the kernel after a load peak.
//!
//! glibc retains freed memory for the next peak, and retains all of it if one allocation above is still in use.
//! Without trimming, a server that was busy once would look busy for the rest of its life.

#![allow(unsafe_code)] // one call that no safe wrapper offers

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of open connections and streams below which the heap is not trimmed.
const CROWD: usize = 512;

/// Delay of the second trim, in milliseconds: memory of closed connections may be freed a little after they close.
const AGAIN_MS: u64 = 3_000;

/// Bytes of large buffers freed after which the heap is trimmed.
const RELEASED_BYTES: u64 = 32 << 20;

/// Bytes of large buffers freed since the last trim.
static RELEASED: AtomicU64 = AtomicU64::new(0);

/// Counts `bytes` of large buffers as freed; a trim follows once the sum is large enough.
pub fn note_released(bytes: u64) {
    RELEASED.fetch_add(bytes, Ordering::Relaxed);
}

/// Watches the number of open connections and streams, and trims the heap once most of a peak has gone.
#[derive(Debug, Default)]
pub struct CrowdMemory {
    most: Cell<usize>,
    /// When the heap is trimmed again; 0 is never.
    again_ms: Cell<u64>,
}

impl CrowdMemory {
    /// Records that `open` connections and streams are open. Trims the heap once that is half of the peak.
    pub fn handle_count(&self, open: usize, now_ms: u64) {
        if open > self.most.get() {
            self.most.set(open);
        } else if self.most.get() - open >= CROWD.max(self.most.get() / 2) {
            self.most.set(open);
            self.again_ms.set(now_ms.saturating_add(AGAIN_MS));
            give_back();
        }
        if RELEASED.load(Ordering::Relaxed) >= RELEASED_BYTES {
            RELEASED.store(0, Ordering::Relaxed);
            self.again_ms.set(now_ms.saturating_add(AGAIN_MS));
            give_back();
        }
        if self.is_due() && now_ms >= self.again_ms.get() {
            self.again_ms.set(0);
            give_back();
        }
    }

    /// Returns whether another trim is due.
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
    use super::{AGAIN_MS, CrowdMemory};

    #[test]
    fn only_the_end_of_a_crowd_is_one() {
        let memory = CrowdMemory::default();
        for (open, most) in [(100, 100), (0, 100), (2000, 2000), (1500, 2000), (1000, 1000), (600, 1000), (400, 400)] {
            memory.handle_count(open, 1);
            assert_eq!(memory.most.get(), most, "{open}");
        }
        assert!(memory.is_due());
        memory.handle_count(400, 1 + AGAIN_MS);
        assert!(!memory.is_due());
    }
}
