//! How many requests an origin gets at once, and who waits.
use crate::outcome::ForwardOutcome;
use flatout_config::model::Concurrency;
use std::sync::Arc;
use std::task::{Context, Poll};

/// What a request tells about its origin's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The head of the answer came so many microseconds after the request was sent.
    Answered {
        /// Microseconds from sent to head.
        delay_us: u64,
    },
    /// The origin showed that it has too much: no head in time, 429, 503, a connection that it did not take in time.
    Overloaded,
    /// Nothing: refused connections, clients that went away, answers without a delay worth measuring (tunnels).
    Nothing,
}

/// One origin's places, shared by all workers.
#[derive(Debug)]
pub struct Gate {}

impl Gate {
    /// All places free.
    pub fn new(_settings: &Concurrency) -> Arc<Self> {
        unimplemented!()
    }
    /// A place when there is one and nobody waits; else `None`, and [`enqueue`](Self::enqueue) is next.
    pub fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        unimplemented!()
    }
    /// Begins to wait for a place: first come, first served. `Err`: [`ForwardOutcome::OriginQueueFull`].
    pub fn enqueue(self: &Arc<Self>, _now_ms: u64) -> Result<Waiting, ForwardOutcome> {
        unimplemented!()
    }
    /// Places at present.
    pub fn limit(&self) -> u32 {
        unimplemented!()
    }
    /// Places taken.
    pub fn under_way(&self) -> u32 {
        unimplemented!()
    }
    /// Requests that wait.
    pub fn waiting(&self) -> u32 {
        unimplemented!()
    }
}

/// A request that waits for a place. Dropped, it leaves the queue.
#[derive(Debug)]
pub struct Waiting {}

impl Waiting {
    /// When its patience ends: whoever polls it arranges to be woken then as well.
    pub fn deadline_ms(&self) -> u64 {
        unimplemented!()
    }
    /// A place, or [`ForwardOutcome::OriginQueueTimeout`] at the deadline. Woken from any thread.
    pub fn poll_permit(&mut self, _context: &mut Context<'_>, _now_ms: u64) -> Poll<Result<Permit, ForwardOutcome>> {
        unimplemented!()
    }
}

/// A place, taken until it is dropped: when the answer is whole.
#[derive(Debug)]
pub struct Permit {}

impl Permit {
    /// Tells, once, what the request showed.
    pub fn report(&mut self, _sample: Sample, _now_ms: u64) {
        unimplemented!()
    }
}
