//! When keeping connections does harm.
//!
//! An application server such as PHP-FPM has one process for each connection, and a kept connection keeps its process
//! waiting. While there are more requests than processes, a fresh connection would wait in the server's queue for a
//! process that waits for us. So whenever a fresh connection has had no answer for a while, no worker keeps any.

use super::address::FastcgiAddress;
use crate::clock::Now;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

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

/// The crowds of this process, by the server's address: all handlers of one server share its processes.
static CROWDS: Mutex<Vec<(FastcgiAddress, Weak<Crowd>)>> = Mutex::new(Vec::new());

impl Crowd {
    /// The one crowd of the server at `address`.
    pub fn of(address: &FastcgiAddress) -> Arc<Self> {
        // A panic elsewhere leaves the list whole: every change is one step.
        let mut crowds = CROWDS.lock().unwrap_or_else(PoisonError::into_inner);
        crowds.retain(|(_, crowd)| crowd.strong_count() > 0);
        let known = crowds.iter().find(|(known, _)| known == address).and_then(|(_, crowd)| crowd.upgrade());
        known.unwrap_or_else(|| {
            let crowd = Arc::new(Self::default());
            crowds.push((address.clone(), Arc::downgrade(&crowd)));
            crowd
        })
    }

    /// A fresh connection waits.
    pub fn suspect(&self, now: Now) {
        self.until_ms.store(now.monotonic_ms.saturating_add(CAUTION_MS), Ordering::Relaxed);
    }

    /// Whether connections are better closed than kept.
    pub fn is_suspected(&self, now: Now) -> bool {
        now.monotonic_ms < self.until_ms.load(Ordering::Relaxed)
    }
}
