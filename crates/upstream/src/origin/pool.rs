//! Pool of idle connections to an origin.

use super::client::OriginShared;
use super::http2::Http2Pool;
use super::resolve::Resolution;
use flatout_http::url::OriginAddress;
use flatout_net::task_deadlines::now_ms;
use flatout_net::transport::Transport;
use std::cell::{Cell, RefCell};

/// An idle connection.
#[derive(Debug)]
struct Idle {
    transport: Transport,
    since_ms: u64,
}

/// State of an origin, and its connections.
#[derive(Debug)]
pub(super) struct OriginPool {
    pub(super) address: OriginAddress,
    pub(super) resolution: Resolution,
    /// Index of the address that worked last.
    pub(super) preferred: Cell<usize>,
    pub(super) http2: Http2Pool,
    /// Stack of idle connections: the last in is used first, so that connections that were needed only for a load peak
    /// expire.
    idle: RefCell<Vec<Idle>>,
    /// True if a connection has been used since the name was last resolved.
    used: Cell<bool>,
    /// True if the name has ever lost an address, to which connections may still be open.
    has_moved: Cell<bool>,
}

impl OriginPool {
    pub(super) fn new(address: &OriginAddress) -> Self {
        Self {
            address: address.clone(),
            resolution: Resolution::new(address),
            preferred: Cell::new(0),
            http2: Http2Pool::default(),
            idle: RefCell::new(Vec::new()),
            used: Cell::new(false),
            has_moved: Cell::new(false),
        }
    }

    /// Notes that a connection is used.
    pub(super) fn note_use(&self) {
        self.used.set(true);
    }

    /// Forgets the uses noted so far, because the name has been resolved.
    pub(super) fn forget_use(&self) {
        self.used.set(false);
    }

    /// Returns whether a connection has been used since the name was last resolved.
    pub(super) fn was_used(&self) -> bool {
        self.used.get()
    }

    /// Closes idle connections to addresses that the name no longer has. Those in use are closed after their response.
    pub(super) fn retire(&self) {
        self.has_moved.set(true);
        self.idle.borrow_mut().retain(|idle| self.is_current(&idle.transport));
        self.http2.retire(|peer| self.resolution.has(peer));
    }

    /// Returns whether the name has the address to which this connection goes.
    fn is_current(&self, transport: &Transport) -> bool {
        transport.peer().is_some_and(|peer| self.resolution.has(peer))
    }

    /// Takes an idle connection that appears usable. Returns `None` if there is none.
    pub(super) fn check_out(&self, shared: &OriginShared) -> Option<Transport> {
        let mut idle = self.idle.borrow_mut();
        if idle.is_empty() {
            return None;
        }
        let oldest_ms = now_ms().saturating_sub(shared.settings.idle_timeout_ms);
        while let Some(mut last) = idle.pop() {
            if last.since_ms < oldest_ms {
                // All others have been idle for longer.
                idle.clear();
                return None;
            }
            // This costs a system call, but unsolicited data from an origin must never be mistaken for the next
            // response, and the runtime may not have been notified of it yet.
            if last.transport.is_quiet(true) {
                self.note_use();
                shared.counts.connections_reused.add(1);
                return Some(last.transport);
            }
            shared.counts.connections_stale.add(1);
        }
        None
    }

    /// Pools a connection for the next request, or closes it if the pool is full or the name has lost its address.
    pub(super) fn check_in(&self, shared: &OriginShared, transport: Transport) {
        if self.has_moved.get() && !self.is_current(&transport) {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        if idle.len() < shared.settings.idle_connections_max as usize {
            idle.push(Idle { transport, since_ms: now_ms() });
            shared.deadlines.wake_sweep();
        }
    }

    /// Closes connections that have expired or were closed by the origin.
    pub(super) fn handle_time(&self, shared: &OriginShared, now_ms: u64) {
        self.http2.handle_time(shared, now_ms);
        let oldest_ms = now_ms.saturating_sub(shared.settings.idle_timeout_ms);
        self.idle.borrow_mut().retain_mut(|idle| {
            if idle.since_ms < oldest_ms {
                return false;
            }
            let quiet = idle.transport.is_quiet(false);
            shared.counts.connections_stale.add(u64::from(!quiet));
            quiet
        });
    }

    /// Returns whether any connection needs periodic checks.
    pub(super) fn is_kept(&self) -> bool {
        !self.idle.borrow().is_empty() || self.http2.is_open()
    }

    pub(super) fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }

    pub(super) fn close_idle(&self) {
        self.idle.borrow_mut().clear();
    }
}
