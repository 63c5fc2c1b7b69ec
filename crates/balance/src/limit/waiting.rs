//! Requests that wait in the queue for a permit.

use super::kinds::Kind;
use super::lane::LaneName;
use super::young::TICK_MS;
use super::{ConcurrencyLimiter, Permit, QueueRefusal, Relaxed, UNDER_WAY};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A request in the queue. Dropping it removes the request from the queue.
#[derive(Debug)]
pub struct WaitingRequest {
    limiter: Arc<ConcurrencyLimiter>,
    lane: LaneName,
    kind: Kind,
    number: u64,
    since_ms: u64,
    ended: bool,
}

impl WaitingRequest {
    pub(super) const fn new(
        limiter: Arc<ConcurrencyLimiter>,
        (lane, kind): (LaneName, Kind),
        number: u64,
        since_ms: u64,
    ) -> Self {
        Self { limiter, lane, kind, number, since_ms, ended: false }
    }

    /// Returns the deadline in milliseconds. It changes with the origin's limit.
    pub fn deadline_ms(&self) -> u64 {
        self.since_ms.saturating_add(self.limiter.wait_ms(self.limiter.lane(self.lane), self.kind))
    }

    /// Returns the time in milliseconds at which the caller must poll again even if nothing has woken it: at the
    /// deadline, and before that at intervals, because places become free as time passes.
    pub fn next_poll_ms(&self, now_ms: u64) -> u64 {
        self.deadline_ms().min(now_ms.saturating_add(TICK_MS))
    }

    /// Polls for a permit. Returns [`QueueRefusal::Timeout`] if the deadline has passed, unless a permit has been
    /// granted by then.
    pub fn poll_permit(&mut self, context: &mut Context<'_>, now_ms: u64) -> Poll<Result<Permit, QueueRefusal>> {
        if self.ended {
            return Poll::Ready(Err(QueueRefusal::Timeout));
        }
        self.limiter.latest_ms.fetch_max(now_ms, Relaxed);
        self.limiter.age(now_ms);
        // Places also become free as time passes.
        self.limiter.grant(self.lane);
        let lane = self.limiter.lane(self.lane);
        let deadline_ms = self.deadline_ms();
        let mut queue = lane.lock_queue();
        if let Some(place) = queue.take_granted(self.number) {
            drop(queue);
            self.ended = true;
            return Poll::Ready(Ok(Permit::new(Arc::clone(&self.limiter), place, true)));
        }
        if now_ms < deadline_ms {
            queue.set_waker(self.number, context.waker());
            return Poll::Pending;
        }
        queue.remove(self.number);
        lane.note_queue(&queue);
        drop(queue);
        self.ended = true;
        Poll::Ready(Err(QueueRefusal::Timeout))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let lane = self.limiter.lane(self.lane);
        let mut queue = lane.lock_queue();
        let granted = queue.take_granted(self.number);
        queue.remove(self.number);
        lane.note_queue(&queue);
        drop(queue);
        if let Some(place) = granted {
            // A permit was granted but never taken, so release it.
            self.limiter.free_asking(&place, UNDER_WAY);
        }
    }
}
