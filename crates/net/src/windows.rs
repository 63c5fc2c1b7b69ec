//! The budgets of a worker for data that its connections have in transit, and the windows of one HTTP/2 connection in
//! either role. The windows grow as `flatout_http::http2::window` decides, within the credit that the worker may grant
//! to all peers together.

use flatout_http::http2::window::{StreamCount, WindowEstimator, Windows};
use flatout_os::clock::precise_ns;
use flatout_os::counter::Counter;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// The budget for data that the connections of one worker may have in transit beyond their initial windows: credit
/// granted to peers, or content that the kernel or QUIC stores for them.
#[derive(Debug)]
pub struct WindowBudget {
    bytes_max: u64,
    /// Number of bytes currently granted, which any thread may read.
    granted: Arc<Counter>,
}

impl WindowBudget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Rc<Self> {
        Self::shown_in(bytes_max, Arc::default())
    }

    /// Creates a budget of `bytes_max` bytes, and publishes the number of bytes currently granted in `granted`.
    pub fn shown_in(bytes_max: u64, granted: Arc<Counter>) -> Rc<Self> {
        Rc::new(Self { bytes_max, granted })
    }

    fn left(&self) -> u64 {
        self.bytes_max.saturating_sub(self.granted.get())
    }
}

/// One connection's share of the budget, which is returned when the grant is dropped.
#[derive(Debug)]
pub struct WindowGrant {
    budget: Rc<WindowBudget>,
    bytes: Cell<u64>,
}

impl WindowGrant {
    /// Creates a grant of 0 bytes.
    pub fn new(budget: &Rc<WindowBudget>) -> Self {
        Self { budget: Rc::clone(budget), bytes: Cell::new(0) }
    }

    /// Requests `wanted` bytes in total. Grants at most half of the remaining budget, so that some of it is left for
    /// others. Returns the connection's new total.
    pub fn grow_to(&self, wanted: u64) -> u64 {
        let more = wanted.saturating_sub(self.bytes.get()).min(self.budget.left() / 2);
        self.budget.granted.add(more);
        self.bytes.set(self.bytes.get() + more);
        self.bytes.get()
    }

    /// Returns bytes to the budget so that at most `wanted` bytes remain granted. The returned bytes must no longer be
    /// in use.
    pub fn shrink_to(&self, wanted: u64) {
        let less = self.bytes.get().saturating_sub(wanted);
        self.budget.granted.subtract(less);
        self.bytes.set(self.bytes.get() - less);
    }
}

impl Drop for WindowGrant {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The adaptive windows of one connection.
pub struct AdaptiveWindows {
    estimator: WindowEstimator,
    grant: WindowGrant,
    first: Windows,
    /// Minimum size of the connection's window, in stream windows.
    streams_per_connection: u32,
    /// The windows that were last announced to the peer.
    announced: Windows,
    /// The windows that should be announced.
    wanted: Windows,
    /// Number of open streams at the last decision.
    streams: usize,
}

impl AdaptiveWindows {
    /// Creates the windows of a connection, initially `first`. The connection's window is at least
    /// `streams_per_connection` stream windows, so that fewer unread streams leave room for others.
    pub fn new(first: Windows, streams_per_connection: u32, budget: &Rc<WindowBudget>) -> Self {
        Self {
            estimator: WindowEstimator::new(first),
            grant: WindowGrant::new(budget),
            first,
            streams_per_connection,
            announced: first,
            wanted: first,
            streams: 0,
        }
    }

    /// Records that `bytes` of a stream were consumed. Returns whether to send a PING now, with which a round trip is
    /// measured.
    pub fn handle_taken(&mut self, stream: &mut StreamCount, bytes: usize) -> bool {
        self.estimator.handle_taken(stream, bytes as u64, precise_ns() / 1000)
    }

    /// Records the acknowledgement of that PING.
    pub fn handle_acknowledged(&mut self) {
        if self.estimator.handle_acknowledged(self.announced, precise_ns() / 1000) {
            self.decide();
        }
    }

    /// Returns new windows to announce to the peer, given the number of `streams` open now. Returns them repeatedly
    /// until [`Self::handle_announced`] is called.
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
        // Shares are powers of two, because not every opened or closed stream is worth a SETTINGS frame.
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
        assert_eq!((first.grow_to(8), third.grow_to(12), budget.left()), (16, 12, 12));
        first.shrink_to(10);
        first.shrink_to(12);
        assert_eq!((first.grow_to(0), budget.granted.get()), (10, 46));
        drop((first, second, third));
        assert_eq!((budget.left(), budget.granted.get()), (64, 0));
    }
}
