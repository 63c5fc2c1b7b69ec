//! Concurrency limits and queues per origin.
//!
//! Each origin has a [`ConcurrencyLimiter`], shared by all workers. While permits are available, acquiring one costs two atomic
//! operations. Otherwise requests wait in a bounded FIFO queue, each up to its deadline. The limit follows the
//! origin's delays ([`climb`]).
//!
//! Two bounds hold. The adaptive limit bounds the requests that wait for the head of their response: the origin works
//! on these, and its delays depend on them. The configured `max` bounds all requests in progress, including those with
//! streaming responses: long downloads and event streams take a permit, but do not count towards the limit. Hence a
//! [`Permit`] receives a report when the head arrives, and is dropped when the response is complete.
//!
//! Refusals are [`QueueRefusal::Full`] and [`QueueRefusal::Timeout`].

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

/// Why a request gets no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRefusal {
    /// The limit is reached and the queue is full.
    Full,
    /// The request waited until the queue timeout.
    Timeout,
}

/// Concurrency limiter of one origin, shared by all workers.
#[derive(Debug)]
pub struct ConcurrencyLimiter {
    settings: Concurrency,
    /// The limit in the lower half, and its epoch in the upper: see [`Climb::epoch`].
    setting: AtomicU64,
    /// Requests in progress in the upper half, and in the lower half those that wait for a head.
    places: AtomicU64,
    /// Number of queued requests. Releasing a permit checks this afterwards, and queueing checks for a free permit
    /// afterwards; `SeqCst` ensures that one of them sees the other.
    waiting: AtomicU32,
    answered: AtomicU32,
    climb: Mutex<Climb>,
    queue: Mutex<PermitQueue>,
    /// The latest time that a caller passed, in milliseconds.
    latest_ms: AtomicU64,
}

/// Lower bound of the queue, unless the configured one is lower.
const QUEUE_MIN: u32 = 16;

impl ConcurrencyLimiter {
    /// Creates a gate with all permits free.
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

    /// Acquires a permit if one is free and the queue is empty; otherwise call [`enqueue`](Self::enqueue).
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        if self.waiting.load(SeqCst) > 0 {
            return None;
        }
        let asking = self.take_place()?;
        let (limit, epoch) = unpack(self.setting.load(Relaxed));
        // Seven eighths full: the delay is evidence about this limit.
        let filled = u64::from(asking) * 8 >= u64::from(limit) * 7;
        Some(Permit::new(Arc::clone(self), epoch, asking, filled))
    }

    /// Joins the queue; an error if it is full, or so long that the request would wait until its
    /// timeout: that is known at once, from the rate at which permits are granted.
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

    /// Current maximum of requests that wait for a head.
    pub fn limit(&self) -> u32 {
        unpack(self.setting.load(Relaxed)).0
    }

    /// Maximum of requests in progress, up to the end of their responses.
    pub const fn max(&self) -> u32 {
        self.settings.max
    }

    /// Requests in progress, up to the end of their responses.
    pub fn under_way(&self) -> u32 {
        (self.places.load(Relaxed) >> 32) as u32
    }

    /// Requests that wait for the head of their response.
    pub fn asking(&self) -> u32 {
        self.places.load(Relaxed) as u32
    }

    /// Queued requests.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Acquires a permit and returns the number of requests that wait for a head.
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

    /// Releases `parts`: [`ASKING`], [`UNDER_WAY`] or their sum.
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
            // Wake tasks without the lock.
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
        // A sample concurrent with another worker's may be lost.
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

/// One request that waits for a head, in [`ConcurrencyLimiter::places`].
const ASKING: u64 = 1;
/// One request in progress.
const UNDER_WAY: u64 = 1 << 32;

fn pack(climb: &Climb) -> u64 {
    u64::from(climb.epoch()) << 32 | u64::from(climb.limit())
}

/// Splits a setting into limit and epoch.
const fn unpack(setting: u64) -> (u32, u32) {
    (setting as u32, (setting >> 32) as u32)
}

#[cfg(test)]
mod tests;
