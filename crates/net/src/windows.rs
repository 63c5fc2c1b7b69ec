//! The windows of one HTTP/2 connection, in either role: they grow as `flatout_http::http2::window` decides, within
//! the credit that the worker may grant to all peers.

use flatout_http::http2::window::{StreamCount, WindowEstimator, Windows};
use flatout_os::clock::precise_ns;
use std::cell::Cell;
use std::rc::Rc;

/// Bytes of credit that the connections of one worker may grant to peers, beyond their initial windows.
#[derive(Debug)]
pub struct WindowBudget {
    left: Cell<u64>,
}

impl WindowBudget {
    /// A budget of this many bytes.
    pub fn new(bytes: u64) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(bytes) })
    }
}

/// One connection's part of the budget, given back when the connection closes.
#[derive(Debug)]
struct WindowGrant {
    budget: Rc<WindowBudget>,
    bytes: Cell<u64>,
}

impl WindowGrant {
    /// Requests `wanted` bytes in total; grants at most half of the remaining budget, so that some is left for
    /// others. Returns the connection's new total.
    fn grow_to(&self, wanted: u64) -> u64 {
        let left = self.budget.left.get();
        let more = wanted.saturating_sub(self.bytes.get()).min(left / 2);
        self.budget.left.set(left - more);
        self.bytes.set(self.bytes.get() + more);
        self.bytes.get()
    }
}

impl Drop for WindowGrant {
    fn drop(&mut self) {
        self.budget.left.set(self.budget.left.get() + self.bytes.get());
    }
}

/// The windows of one connection, as they are decided.
pub struct AdaptiveWindows {
    estimator: WindowEstimator,
    grant: WindowGrant,
    first: Windows,
    /// Lower bound of the connection's window, in stream windows.
    streams_per_connection: u32,
    /// The windows announced to the peer.
    announced: Windows,
    /// The windows to announce.
    wanted: Windows,
    /// Open streams at the last decision.
    streams: usize,
}

impl AdaptiveWindows {
    /// For a connection with the initial windows `first`. The connection's window is at least
    /// `streams_per_connection` stream windows, so that this many unread streams leave room for others.
    pub fn new(first: Windows, streams_per_connection: u32, budget: &Rc<WindowBudget>) -> Self {
        Self {
            estimator: WindowEstimator::new(first),
            grant: WindowGrant { budget: Rc::clone(budget), bytes: Cell::new(0) },
            first,
            streams_per_connection,
            announced: first,
            wanted: first,
            streams: 0,
        }
    }

    /// Records that `bytes` were taken from a stream. Returns whether to send a PING now.
    pub fn handle_taken(&mut self, stream: &mut StreamCount, bytes: usize) -> bool {
        self.estimator.handle_taken(stream, bytes as u64, precise_ns() / 1000)
    }

    /// Records the acknowledgement of the PING.
    pub fn handle_acknowledged(&mut self) {
        if self.estimator.handle_acknowledged(self.announced, precise_ns() / 1000) {
            self.decide();
        }
    }

    /// Returns new windows to announce to the peer, with `streams` open now; again until
    /// [`Self::handle_announced`].
    pub fn wanted(&mut self, streams: usize) -> Option<Windows> {
        if streams != std::mem::replace(&mut self.streams, streams) && self.wanted != self.first {
            self.decide();
        }
        Some(self.wanted).filter(|wanted| *wanted != self.announced)
    }

    /// Records that `windows` were announced to the peer.
    pub const fn handle_announced(&mut self, windows: Windows) {
        self.announced = windows;
    }

    fn decide(&mut self) {
        let estimated = self.estimator.windows();
        let per = u64::from(self.streams_per_connection);
        let wished = u64::from(estimated.connection).max(u64::from(estimated.stream) * per);
        let beyond = wished.saturating_sub(u64::from(self.first.connection));
        let connection = u64::from(self.first.connection) + self.grant.grow_to(beyond).min(beyond);
        // In powers of two: not every opened or closed stream is worth a SETTINGS frame.
        let share = 1 << (connection / per / (self.streams as u64).max(1)).max(1).ilog2();
        let stream = u64::from(estimated.stream).min(share).max(u64::from(self.first.stream));
        self.wanted = Windows { stream: stream as u32, connection: connection as u32 };
    }
}

#[cfg(test)]
mod tests {
    use super::{WindowBudget, WindowGrant};
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_budget_has_something_left_for_the_next_and_comes_back() {
        let budget = WindowBudget::new(64);
        let grant = |budget: &Rc<WindowBudget>| WindowGrant { budget: Rc::clone(budget), bytes: Cell::new(0) };
        let (first, second, third) = (grant(&budget), grant(&budget), grant(&budget));
        assert_eq!((first.grow_to(16), second.grow_to(100), third.grow_to(100)), (16, 24, 12));
        assert_eq!((first.grow_to(8), third.grow_to(12), budget.left.get()), (16, 12, 12));
        drop((first, second, third));
        assert_eq!(budget.left.get(), 64);
    }
}
