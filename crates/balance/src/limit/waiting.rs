//! Requests that wait in the queue for a permit.

use super::QueueRefusal;
use super::{ConcurrencyLimiter, Permit};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A request in the queue. Dropping it removes the request from the queue.
#[derive(Debug)]
pub struct WaitingRequest {
    limiter: Arc<ConcurrencyLimiter>,
    number: u64,
    deadline_ms: u64,
    ended: bool,
}

impl WaitingRequest {
    pub(super) const fn new(limiter: Arc<ConcurrencyLimiter>, number: u64, deadline_ms: u64) -> Self {
        Self { limiter, number, deadline_ms, ended: false }
    }

    /// Returns the deadline in milliseconds, at which the caller must poll again.
    pub const fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Polls for a permit. Returns [`QueueRefusal::Timeout`] if the deadline has passed, unless a permit has been
    /// granted by then.
    pub fn poll_permit(&mut self, context: &mut Context<'_>, now_ms: u64) -> Poll<Result<Permit, QueueRefusal>> {
        if self.ended {
            return Poll::Ready(Err(QueueRefusal::Timeout));
        }
        let mut queue = self.limiter.lock_queue();
        if now_ms < self.deadline_ms {
            if queue.set_waker(self.number, context.waker()) {
                return Poll::Pending;
            }
        } else if queue.remove(self.number) {
            self.limiter.waiting.store(queue.len() as u32, super::SeqCst);
            drop(queue);
            self.ended = true;
            return Poll::Ready(Err(QueueRefusal::Timeout));
        }
        drop(queue);
        self.ended = true;
        let (_, epoch) = super::unpack(self.limiter.setting.load(super::Relaxed));
        let asking = self.limiter.asking();
        Poll::Ready(Ok(Permit::new(Arc::clone(&self.limiter), epoch, asking, true)))
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut queue = self.limiter.lock_queue();
        let waited = queue.remove(self.number);
        self.limiter.waiting.store(queue.len() as u32, super::SeqCst);
        drop(queue);
        if !waited {
            // A permit was granted but never taken, so release it.
            self.limiter.free_place(super::UNDER_WAY + super::ASKING);
        }
    }
}
