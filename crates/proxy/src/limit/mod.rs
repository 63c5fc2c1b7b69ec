//! How many requests an origin gets at once, and who waits.
//!
//! A [`Gate`] stands before each origin, one for all workers. While it has room, to pass costs two atomic operations;
//! once it is full, requests wait in a bounded queue, first come, first served, each up to its deadline. How much room
//! there is follows what the origin's delays show ([`climb`]).
//!
//! Two bounds hold. At most so many requests as the limit says wait for the head of their answers: that is how long the
//! origin works on them, and what its delays are about. At most `max` of the settings are under way at all, those
//! included whose answers stream: long downloads and event streams take a place, but none of the limit's. So a
//! [`Permit`] is told when the head is there, and dropped when the answer is whole.
//!
//! Refusals are [`ForwardOutcome::OriginQueueFull`] and [`ForwardOutcome::OriginQueueTimeout`].

pub mod climb;
mod permit;
mod queue;
mod waiting;

pub use climb::Sample;
pub use permit::Permit;
pub use waiting::Waiting;

use crate::outcome::ForwardOutcome;
use climb::Climb;
use flatout_config::model::Concurrency;
use queue::Queue;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One origin's places, shared by all workers.
#[derive(Debug)]
pub struct Gate {
    settings: Concurrency,
    /// The limit, and in the upper half its epoch: see [`Climb::epoch`].
    setting: AtomicU64,
    /// Requests under way in the upper half, and in the lower half those among them that wait for a head.
    places: AtomicU64,
    /// How many stand in the queue. Whoever frees a place looks here afterwards, and whoever joins the queue looks for
    /// a free place afterwards; in one order for all (`SeqCst`), so that one of them sees the other.
    waiting: AtomicU32,
    answered: AtomicU32,
    climb: Mutex<Climb>,
    queue: Mutex<Queue>,
}

impl Gate {
    /// A gate with all its places free.
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
            queue: Mutex::default(),
        })
    }

    /// A place, when there is one and nobody waits; else [`enqueue`](Self::enqueue) is next.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        if self.waiting.load(SeqCst) > 0 {
            return None;
        }
        let asking = self.take_place()?;
        let (limit, epoch) = unpack(self.setting.load(Relaxed));
        // Full to seven eighths: what its delays show is about this limit.
        let filled = u64::from(asking) * 8 >= u64::from(limit) * 7;
        Some(Permit::new(Arc::clone(self), epoch, asking, filled))
    }

    /// Begins to wait for a place; refused when the queue is full.
    pub fn enqueue(self: &Arc<Self>, now_ms: u64) -> Result<Waiting, ForwardOutcome> {
        let deadline_ms = now_ms.saturating_add(self.settings.queue_timeout_ms);
        let mut queue = self.lock_queue();
        if queue.len() >= self.settings.queue_max as usize {
            return Err(ForwardOutcome::OriginQueueFull);
        }
        let number = queue.push(deadline_ms);
        self.waiting.store(queue.len() as u32, SeqCst);
        drop(queue);
        self.grant();
        Ok(Waiting::new(Arc::clone(self), number, deadline_ms))
    }

    /// Wakes those whose patience has ended by `now_ms`, so that they leave the queue. Cheap while nobody waits; some
    /// clock that ticks anyway calls it.
    pub fn wake_expired(&self, now_ms: u64) {
        if self.waiting.load(Relaxed) == 0 {
            return;
        }
        let wakers = self.lock_queue().take_expired_wakers(now_ms);
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// How many may wait for a head at present.
    pub fn limit(&self) -> u32 {
        unpack(self.setting.load(Relaxed)).0
    }

    /// How many may be under way, up to the end of their responses.
    pub const fn max(&self) -> u32 {
        self.settings.max
    }

    /// Requests under way, up to the end of their answers.
    pub fn under_way(&self) -> u32 {
        (self.places.load(Relaxed) >> 32) as u32
    }

    /// Those among them that wait for the head of their answers.
    pub fn asking(&self) -> u32 {
        self.places.load(Relaxed) as u32
    }

    /// Requests that wait for a place.
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Relaxed)
    }

    /// Takes a place and says how many wait for a head now.
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

    /// Frees one of `parts`: [`ASKING`], [`UNDER_WAY`] or their sum.
    fn free_place(&self, parts: u64) {
        self.places.fetch_sub(parts, SeqCst);
        self.grant();
    }

    /// Gives free places to those who wait.
    fn grant(&self) {
        while self.waiting.load(SeqCst) > 0 {
            let mut queue = self.lock_queue();
            if queue.len() == 0 || self.take_place().is_none() {
                return;
            }
            let waker = queue.pop();
            self.waiting.store(queue.len() as u32, SeqCst);
            // Nobody is woken under the lock.
            drop(queue);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// What a request showed of the origin's load.
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
        // A sample that comes while another worker's is counted may be lost.
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

    fn lock_queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request that waits for a head, in [`Gate::places`].
const ASKING: u64 = 1;
/// One request under way.
const UNDER_WAY: u64 = 1 << 32;

fn pack(climb: &Climb) -> u64 {
    u64::from(climb.epoch()) << 32 | u64::from(climb.limit())
}

/// Limit and epoch.
const fn unpack(setting: u64) -> (u32, u32) {
    (setting as u32, (setting >> 32) as u32)
}

#[cfg(test)]
mod tests;
