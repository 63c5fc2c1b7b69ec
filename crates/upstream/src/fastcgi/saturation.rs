//! Detection of saturated application servers, which must not have idle connections.
//!
//! An application server such as PHP-FPM has one process per connection, and an idle connection blocks its process.
//! While there are more requests than processes, a new connection would wait in the server's backlog for a process
//! that waits on an idle connection. So whenever a new connection has had no response for a while, no worker pools
//! any.

use super::address::FastcgiAddress;
use flatout_os::clock::Now;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Time that a new connection waits for its first byte before the server is suspected of saturation, in milliseconds.
/// A slow script has the same effect; the cost is a few unnecessary connections.
pub const SUSPICION_MS: u64 = 50;

/// Time after a suspicion during which nothing is pooled, in milliseconds.
pub const CAUTION_MS: u64 = 1_000;

/// The saturation state of one application server, shared by all workers.
#[derive(Debug, Default)]
pub struct ServerSaturation {
    until_ms: AtomicU64,
}

/// The states of this process, by server address: all handlers of one server share its processes.
static SATURATIONS: Mutex<Vec<(FastcgiAddress, Weak<ServerSaturation>)>> = Mutex::new(Vec::new());

impl ServerSaturation {
    /// The state of the server at `address`.
    pub fn of(address: &FastcgiAddress) -> Arc<Self> {
        // A panic elsewhere leaves the list consistent: every change is one step.
        let mut saturations = SATURATIONS.lock().unwrap_or_else(PoisonError::into_inner);
        saturations.retain(|(_, saturation)| saturation.strong_count() > 0);
        let known =
            saturations.iter().find(|(known, _)| known == address).and_then(|(_, saturation)| saturation.upgrade());
        known.unwrap_or_else(|| {
            let saturation = Arc::new(Self::default());
            saturations.push((address.clone(), Arc::downgrade(&saturation)));
            saturation
        })
    }

    /// Records that a new connection is waiting.
    pub fn suspect(&self, now: Now) {
        self.until_ms.store(now.monotonic_ms.saturating_add(CAUTION_MS), Ordering::Relaxed);
    }

    /// Returns whether connections should be closed instead of pooled.
    pub fn is_suspected(&self, now: Now) -> bool {
        now.monotonic_ms < self.until_ms.load(Ordering::Relaxed)
    }
}
