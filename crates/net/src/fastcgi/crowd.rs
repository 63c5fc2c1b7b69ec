//! When keeping connections does harm.
//!
//! An application server such as PHP-FPM has one process for each connection, and a kept connection keeps its process
//! waiting. While there are more requests than processes, a fresh connection would wait in the server's queue for a
//! process that waits for us. So whenever a fresh connection has had no answer for a while, no worker keeps any.

use crate::clock::Now;
use std::sync::atomic::{AtomicU64, Ordering};

/// So long a fresh connection waits for its first byte before a crowd is suspected. A slow script looks the same; then a
/// few connections are made that need not have been.
pub const SUSPICION_MS: u64 = 50;

/// So long after a suspicion nothing is kept.
pub const CAUTION_MS: u64 = 1_000;

/// What all workers know of one application server's crowd.
#[derive(Debug, Default)]
pub struct Crowd {
    until_ms: AtomicU64,
}

impl Crowd {
    /// A fresh connection waits.
    pub fn suspect(&self, now: Now) {
        self.until_ms.store(now.monotonic_ms.saturating_add(CAUTION_MS), Ordering::Relaxed);
    }

    /// Whether connections are better closed than kept.
    pub fn is_suspected(&self, now: Now) -> bool {
        now.monotonic_ms < self.until_ms.load(Ordering::Relaxed)
    }
}
