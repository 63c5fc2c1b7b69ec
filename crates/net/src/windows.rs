//! The windows of one HTTP/2 connection, either role: they grow as `flatout_http::http2::window` says, within what its
//! worker may promise to peers in all.

use crate::clock::precise_ns;
use flatout_http::http2::window::{StreamCount, WindowEstimator, Windows};
use h2::{Ping, PingPong, RecvStream};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Bytes that the connections of one worker may promise to peers, beyond what each begins with.
#[derive(Debug)]
pub(crate) struct WindowBudget {
    left: Cell<u64>,
}

impl WindowBudget {
    pub(crate) fn new(bytes: u64) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(bytes) })
    }
}

/// What one connection has of a budget. Given back when it ends.
#[derive(Debug)]
struct WindowGrant {
    budget: Rc<WindowBudget>,
    bytes: Cell<u64>,
}

impl WindowGrant {
    /// Asks for `wanted` bytes in all; no more than half of what is left is given, so that there is something for the
    /// next. Returns what the connection has then.
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

/// The windows of one connection.
pub(crate) struct ConnectionWindows {
    estimator: RefCell<WindowEstimator>,
    ping_pong: RefCell<PingPong>,
    grant: WindowGrant,
    first: Windows,
    /// How many times a stream's window the connection's is at least.
    streams_per_connection: u32,
    /// What the peer has been told.
    told: Cell<Windows>,
    /// What it is to be told.
    wanted: Cell<Windows>,
    /// Streams at the last look.
    streams: Cell<usize>,
    /// Whether an acknowledgement is awaited.
    probing: Cell<bool>,
}

/// Content taken from one stream, for as long as it lasts.
pub(crate) struct WindowReader {
    windows: Rc<ConnectionWindows>,
    count: StreamCount,
}

impl WindowReader {
    /// `bytes` of `content` were taken: the peer may send as many again.
    pub(crate) fn release(&mut self, content: &mut RecvStream, bytes: usize) {
        // It fails when the stream is gone, which the next look at it says.
        let _ = content.flow_control().release_capacity(bytes);
        self.windows.handle_taken(&mut self.count, bytes);
    }
}

impl ConnectionWindows {
    /// For one stream.
    pub(crate) fn reader(self: &Rc<Self>) -> WindowReader {
        WindowReader { windows: Rc::clone(self), count: StreamCount::default() }
    }

    /// For a connection that began with the windows `first`. `streams_per_connection`: so many streams whose content
    /// nobody takes leave room for others.
    pub(crate) fn new(
        ping_pong: PingPong,
        first: Windows,
        streams_per_connection: u32,
        budget: &Rc<WindowBudget>,
    ) -> Self {
        Self {
            estimator: RefCell::new(WindowEstimator::new(first)),
            ping_pong: RefCell::new(ping_pong),
            grant: WindowGrant { budget: Rc::clone(budget), bytes: Cell::new(0) },
            first,
            streams_per_connection,
            told: Cell::new(first),
            wanted: Cell::new(first),
            streams: Cell::new(0),
            probing: Cell::new(false),
        }
    }

    /// `bytes` were taken from a stream.
    fn handle_taken(&self, stream: &mut StreamCount, bytes: usize) {
        let probes = self.estimator.borrow_mut().handle_taken(stream, bytes as u64, precise_ns() / 1000);
        if probes {
            self.probing.set(true);
            // It wakes the connection's task. It fails when the connection has ended.
            let _ = self.ping_pong.borrow_mut().send_ping(Ping::opaque());
        }
    }

    /// Looks for an acknowledgement. Returns new windows that the peer is to be told, with `streams` open now; they are
    /// returned again until [`Self::handle_told`].
    pub(crate) fn poll(&self, streams: usize, context: &mut Context<'_>) -> Option<Windows> {
        let mut changed = streams != self.streams.replace(streams) && self.wanted.get() != self.first;
        if self.probing.get()
            && let Poll::Ready(acknowledged) = self.ping_pong.borrow_mut().poll_pong(context)
        {
            self.probing.set(false);
            let told = self.told.get();
            changed |=
                acknowledged.is_ok() && self.estimator.borrow_mut().handle_acknowledged(told, precise_ns() / 1000);
        }
        if changed {
            self.decide(self.estimator.borrow().windows(), streams);
        }
        Some(self.wanted.get()).filter(|wanted| *wanted != self.told.get())
    }

    /// The peer has been told of `windows`.
    pub(crate) fn handle_told(&self, windows: Windows) {
        self.told.set(windows);
    }

    fn decide(&self, estimated: Windows, streams: usize) {
        let per = u64::from(self.streams_per_connection);
        let wished = u64::from(estimated.connection).max(u64::from(estimated.stream) * per);
        let beyond = wished.saturating_sub(u64::from(self.first.connection));
        let connection = u64::from(self.first.connection) + self.grant.grow_to(beyond).min(beyond);
        let share = match per {
            1 => connection,
            // In powers of two: not every stream that opens or ends is worth a SETTINGS frame.
            _ => 1 << (connection / per / (streams as u64).max(1)).max(1).ilog2(),
        };
        let stream = u64::from(estimated.stream).min(share).max(u64::from(self.first.stream));
        self.wanted.set(Windows { stream: stream as u32, connection: connection as u32 });
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
