//! Concurrency limit and queue of each origin.
//!
//! Each origin has a [`ConcurrencyLimiter`], shared by all workers. While permits are available, acquiring one costs
//! two atomic operations. Otherwise, requests wait in a bounded queue, each until its deadline. The limit adapts to the
//! origin's delays ([`climb`]).
//!
//! There are two bounds. The adaptive limit applies to requests that are waiting for a response head: the origin is
//! working on these, and its delays depend on their number. The configured `max` applies to all requests in progress,
//! including those whose responses are streaming: long downloads and event streams hold a permit, but do not count
//! towards the adaptive limit. Therefore, a [`Permit`] receives a report when the head arrives, and is dropped when the
//! response is complete.
//!
//! A request that gets no permit is refused with [`QueueRefusal::Full`] or [`QueueRefusal::Timeout`].

pub mod climb;
mod permit;
mod queue;
mod waiting;

pub use climb::Sample;
pub use permit::Permit;
pub use waiting::WaitingRequest;

use climb::Climb;
use flatout_config::model::Concurrency;
use flatout_overload::QueueSettings;
use queue::PermitQueue;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reason why a request gets no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The limit is reached, and the queue is full.
    Full,
    /// The request waited in the queue until the queue timeout.
    Timeout,
}

/// Concurrency limiter of an origin, shared by all workers.
#[derive(Debug)]
pub struct ConcurrencyLimiter {
    settings: Concurrency,
    /// The limit in the lower half, and its epoch (see [`Climb::epoch`]) in the upper half.
    setting: AtomicU64,
    /// Number of requests in progress in the upper half, and number of requests waiting for a head in the lower half.
    places: AtomicU64,
    /// Number of queued requests. This is checked after a permit is released, and free permits are checked after a
    /// request is queued. `SeqCst` ensures that at least one of these checks sees the other's change.
    waiting: AtomicU32,
    answered: AtomicU32,
    climb: Mutex<Climb>,
    queue: Mutex<PermitQueue>,
    /// The latest time passed by a caller, in milliseconds.
    latest_ms: AtomicU64,
}

/// Minimum length of the queue when the origin is slow, unless the configured maximum is lower.
const QUEUE_MIN: u32 = 16;

impl ConcurrencyLimiter {
    /// Creates a limiter with all permits free.
    pub fn new(settings: &Concurrency) -> Arc<Self> {
        let climb = Climb::new(settings.min, settings.max);
        let min = settings.min.max(1);
        Arc::new(Self {
            settings: Concurrency { min, max: settings.max.max(min), ..*settings },
            setting: AtomicU64::new(pack(&climb)),
            places: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            climb: Mutex::new(climb),
            queue: Mutex::new(PermitQueue::new(QueueSettings {
                delay_target_ms: settings.queue_timeout_ms,
                entries_min: QUEUE_MIN.min(settings.queue_max),
                entries_max: settings.queue_max,
            })),
            latest_ms: AtomicU64::new(0),
        })
    }

    /// Acquires a permit if one is free and the queue is empty. Otherwise, returns `None`; call
    /// [`enqueue`](Self::enqueue) to wait.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        if self.waiting.load(SeqCst) > 0 {
            return None;
        }
        let asking = self.take_place()?;
        let (limit, epoch) = unpack(self.setting.load(Relaxed));
        // If at least seven eighths of the limit are in use, the delay is evidence about the limit.
        let filled = u64::from(asking) * 8 >= u64::from(limit) * 7;
        Some(Permit::new(Arc::clone(self), epoch, asking, filled))
    }

    /// Adds a request to the queue. Returns an error if the queue is full, which includes the case that, at the current
    /// rate of granting permits, the request would wait until its timeout.
    pub fn enqueue(self: &Arc<Self>, now_ms: u64) -> Result<WaitingRequest, QueueRefusal> {
        let deadline_ms = now_ms.saturating_add(self.settings.queue_timeout_ms);
        self.latest_ms.fetch_max(now_ms, Relaxed);
        let mut queue = self.lock_queue();
        if queue.len() >= queue.bound() {
            return Err(QueueRefusal::Full);
        }
        let number = queue.push(now_ms);
        self.waiting.store(queue.len() as u32, SeqCst);
        drop(queue);
        self.grant();
        Ok(WaitingRequest::new(Arc::clone(self), number, deadline_ms))
    }

    /// Returns the current maximum number of requests that may wait for a head.
    pub fn limit(&self) -> u32 {
        unpack(self.setting.load(Relaxed)).0
    }

    /// Returns the maximum number of requests in progress, including those whose responses are streaming.
    pub const fn max(&self) -> u32 {
        self.settings.max
    }

    /// Returns the number of requests in progress, including those whose responses are streaming.
    pub fn under_way(&self) -> u32 {
        (self.places.load(Relaxed) >> 32) as u32
    }

    /// Returns the number of requests that are waiting for a response head.
    pub fn asking(&self) -> u32 {
        self.places.load(Relaxed) as u32
    }

    /// Returns the number of queued requests.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Counts another request, if the limits permit. Returns the number of requests waiting for a head, including this
    /// one.
    fn take_place(&self) -> Option<u32> {
        let mut places = self.places.load(SeqCst);
        loop {
            let (under_way, asking) = ((places >> 32) as u32, places as u32);
            if asking >= unpack(self.setting.load(SeqCst)).0 || under_way >= self.settings.max {
                return None;
            }
            match self.places.compare_exchange_weak(places, places + UNDER_WAY + ASKING, SeqCst, SeqCst) {
                Ok(_) => return Some(asking + 1),
                Err(now) => places = now,
            }
        }
    }

    /// Subtracts `parts` ([`ASKING`], [`UNDER_WAY`] or their sum) from the counts, and grants free permits.
    fn free_place(&self, parts: u64) {
        self.places.fetch_sub(parts, SeqCst);
        self.grant();
    }

    /// Grants free permits to queued requests.
    fn grant(&self) {
        while self.waiting.load(SeqCst) > 0 {
            let mut queue = self.lock_queue();
            if queue.len() == 0 || self.take_place().is_none() {
                return;
            }
            let waker = queue.pop(self.latest_ms.load(Relaxed));
            self.waiting.store(queue.len() as u32, SeqCst);
            // Release the lock before waking the task.
            drop(queue);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Handles an observation of the origin's load.
    fn handle_sample(&self, permit: &Permit, sample: Sample, now_ms: u64) {
        if sample == Sample::Nothing || (sample == Sample::Refused && !permit.is_filled()) {
            return;
        }
        let setting = self.setting.load(Relaxed);
        if matches!(sample, Sample::Answered { .. }) {
            self.answered.fetch_add(1, Relaxed);
            if !permit.is_filled() && unpack(setting).0 >= climb::initial(self.settings.min, self.settings.max) {
                return;
            }
        }
        // Samples may be lost if workers report them concurrently.
        let Ok(mut climb) = self.climb.try_lock() else { return };
        match sample {
            Sample::Answered { delay_us } if permit.is_filled() => climb.handle_delay(permit.epoch(), delay_us, now_ms),
            Sample::Answered { .. } => climb.handle_calm(now_ms),
            Sample::Overloaded | Sample::Refused => {
                climb.handle_overload(permit.asking(), self.answered.load(Relaxed), now_ms);
            }
            Sample::Nothing => {}
        }
        let new = pack(&climb);
        if new != setting {
            self.setting.store(new, SeqCst);
            drop(climb);
            self.grant();
        }
    }

    fn lock_queue(&self) -> MutexGuard<'_, PermitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for the head of its response, as an addend of [`ConcurrencyLimiter::places`].
const ASKING: u64 = 1;
/// A request in progress, as an addend of [`ConcurrencyLimiter::places`].
const UNDER_WAY: u64 = 1 << 32;

fn pack(climb: &Climb) -> u64 {
    u64::from(climb.epoch()) << 32 | u64::from(climb.limit())
}

/// Splits a setting into the limit and its epoch.
const fn unpack(setting: u64) -> (u32, u32) {
    (setting as u32, (setting >> 32) as u32)
}

#[cfg(test)]
mod tests;
