//! Giving memory back after a crowd has left.
//!
//! glibc keeps freed memory for the next crowd, and keeps all of it when one allocation above is still in use. A
//! server that was busy once should not look so for the rest of its life.

#![allow(unsafe_code)] // one call that no safe wrapper offers

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A smaller crowd is not worth the walk through the heap.
const CROWD: usize = 512;

/// Memory of closed connections may be freed a little after they close, so the heap is trimmed again after this delay, in
/// milliseconds.
const AGAIN_MS: u64 = 3_000;

/// So many bytes of large buffers having been freed, the heap is walked as after a crowd.
const RELEASED_BYTES: u64 = 32 << 20;

/// Bytes of large buffers that were freed since the heap was last walked.
static RELEASED: AtomicU64 = AtomicU64::new(0);

/// Notes that `bytes` of large buffers are being freed: what has held them gives them back once enough has come together.
pub fn note_released(bytes: u64) {
    RELEASED.fetch_add(bytes, Ordering::Relaxed);
}

/// Watches how many connections and streams are open, and gives memory back when most of a crowd has gone.
#[derive(Debug, Default)]
pub struct CrowdMemory {
    most: Cell<usize>,
    /// When the heap is walked once more; 0: not at all.
    again_ms: Cell<u64>,
}

impl CrowdMemory {
    /// Notes that `open` connections and streams are open. Half of the most there were having gone, the memory goes too.
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

    /// Whether the heap will be walked once more.
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
