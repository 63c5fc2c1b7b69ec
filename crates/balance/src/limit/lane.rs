//! The requests to an origin that are limited together: those of kinds that are answered soon, or those of slow kinds.

use super::climb::{self, Climb};
use super::growth::Growth;
use super::queue::PermitQueue;
use flatout_overload::QueueSettings;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Time for which a response that took no longer than usual shows that the origin as a whole responds, in milliseconds.
pub(super) const USUAL_MS: u64 = 1_000;

/// The kinds of requests that have a limit and a queue of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneName {
    /// Kinds that are usually answered soon, and kinds about which nothing is known.
    Quick,
    /// Kinds that take at least [`SLOW_US`](super::SLOW_US) even alone.
    Slow,
}

/// Limit, queue and evidence of one kind of requests.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: LaneName,
    /// The limit in the lower half, and its epoch (see [`Climb::epoch`]) in the upper half.
    pub(super) setting: AtomicU64,
    /// Number of queued requests. This is checked after a permit is released, and free permits are checked after a
    /// request is queued. `SeqCst` ensures that at least one of these checks sees the other's change.
    pub(super) waiting: AtomicU32,
    /// Wrapping count of all responses.
    pub(super) answered: AtomicU32,
    /// Latest time at which a response arrived that took no longer than usual, in milliseconds.
    pub(super) usual_ms: AtomicU64,
    /// Time in milliseconds since which requests have taken longer than usual, if there is a limit.
    pub(super) grown_since_ms: AtomicU64,
    /// Latest time at which a request ended without a response, or was answered while there was evidence or a limit, in
    /// milliseconds.
    pub(super) latest_ms: AtomicU64,
    pub(super) control: Mutex<Control>,
    queue: Mutex<PermitQueue>,
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) climb: Climb,
    pub(super) growth: Growth,
    /// Epoch before the limit began.
    pub(super) epoch_before: u32,
    /// Number of requests of that epoch that were overtaken, since the last one that was not.
    pub(super) doubts: u32,
}

impl Lane {
    pub(super) fn new(name: LaneName, (min, max): (u32, u32), queue: QueueSettings) -> Self {
        let climb = Climb::new(min, max);
        Self {
            name,
            setting: AtomicU64::new(pack(&climb)),
            waiting: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            usual_ms: AtomicU64::new(0),
            grown_since_ms: AtomicU64::new(0),
            latest_ms: AtomicU64::new(0),
            control: Mutex::new(Control { climb, growth: Growth::default(), epoch_before: 0, doubts: 0 }),
            queue: Mutex::new(PermitQueue::new(queue)),
        }
    }

    /// Returns whether a request has been answered as usual within the last second.
    pub(super) fn is_answering(&self, now_ms: u64) -> bool {
        let usual_ms = self.usual_ms.load(Relaxed);
        usual_ms > 0 && now_ms.saturating_sub(usual_ms) < USUAL_MS
    }

    /// Returns the limit, which is [`climb::NONE`] if there is none, and its epoch.
    pub(super) fn limit_and_epoch(&self) -> (u32, u32) {
        let setting = self.setting.load(SeqCst);
        (setting as u32, (setting >> 32) as u32)
    }

    /// Returns the limit, if there is one.
    pub(super) fn limit(&self) -> Option<u32> {
        Some(self.limit_and_epoch().0).filter(|&limit| limit != climb::NONE)
    }

    /// Publishes a new limit. Returns whether it has changed.
    pub(super) fn publish(&self, climb: &Climb) -> bool {
        let new = pack(climb);
        // A load first, so that workers do not contend for the cache line.
        self.setting.load(SeqCst) != new && self.setting.swap(new, SeqCst) != new
    }

    pub(super) fn lock_queue(&self) -> MutexGuard<'_, PermitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the length of the queue.
    pub(super) fn note_queue(&self, queue: &PermitQueue) {
        self.waiting.store(queue.len() as u32, SeqCst);
    }

    /// Returns the number of queued requests.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }
}

fn pack(climb: &Climb) -> u64 {
    u64::from(climb.epoch()) << 32 | u64::from(climb.limit())
}
