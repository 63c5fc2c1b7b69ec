//! Giving memory back after a crowd has left.
//!
//! glibc keeps freed memory for the next crowd, and keeps all of it when one allocation above is still in use. A
//! server that was busy once should not look so for the rest of its life.

#![allow(unsafe_code)] // one call that no safe wrapper offers

use std::cell::Cell;

/// Fewer connections than this are not worth the walk through the heap.
const CROWD: usize = 512;

/// Watches how many connections are open, and gives memory back when most of a crowd has gone.
#[derive(Debug, Default)]
pub struct CrowdMemory {
    most: Cell<usize>,
}

impl CrowdMemory {
    /// Notes that `open` connections are open. Half of the most there were having gone, the memory goes too.
    pub fn handle_count(&self, open: usize) {
        if open > self.most.get() {
            self.most.set(open);
        } else if self.most.get() - open >= CROWD.max(self.most.get() / 2) {
            self.most.set(open);
            give_back();
        }
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
    use super::CrowdMemory;

    #[test]
    fn only_the_end_of_a_crowd_is_one() {
        let memory = CrowdMemory::default();
        for (open, most) in [(100, 100), (0, 100), (2000, 2000), (1500, 2000), (1000, 1000), (600, 1000), (400, 400)] {
            memory.handle_count(open);
            assert_eq!(memory.most.get(), most, "{open}");
        }
    }
}
