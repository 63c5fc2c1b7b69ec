//! Detects saturated application servers, to which workers must not keep idle connections.
//!
//! An application server such as PHP-FPM has one process per connection, and an idle connection blocks its process. If
//! there are more requests than processes, a new connection would wait in the server's backlog for a process that is
//! itself waiting for a request on an idle connection. Therefore, when a new connection has received no response for a
//! while, workers stop pooling connections to the server for some time.

use super::address::FastcgiAddress;
use flatout_os::clock::Now;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Time that a new connection waits for the first byte of a response before the server is assumed to be saturated, in
/// milliseconds. A slow script has the same effect, which costs a few unnecessary connections.
pub const SUSPICION_MS: u64 = 50;

/// Time for which no connections are pooled after saturation was detected, in milliseconds.
pub const CAUTION_MS: u64 = 1_000;

/// Saturation state of an application server, shared by all workers.
#[derive(Debug, Default)]
pub struct ServerSaturation {
    until_ms: AtomicU64,
}

/// The saturation states in this process, by server address. All handlers that use a server share its processes, and
/// therefore its state.
static SATURATIONS: Mutex<Vec<(FastcgiAddress, Weak<ServerSaturation>)>> = Mutex::new(Vec::new());

impl ServerSaturation {
    /// Returns the state of the server at `address`.
    pub fn of(address: &FastcgiAddress) -> Arc<Self> {
        // A panic cannot leave the list inconsistent, so ignore poisoning.
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

    /// Records that a new connection has waited for too long.
    pub fn suspect(&self, now: Now) {
        self.until_ms.store(now.monotonic_ms.saturating_add(CAUTION_MS), Ordering::Relaxed);
    }

    /// Returns whether connections should be closed instead of pooled.
    pub fn is_suspected(&self, now: Now) -> bool {
        now.monotonic_ms < self.until_ms.load(Ordering::Relaxed)
    }
}
