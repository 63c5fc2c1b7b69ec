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
}

impl OriginPool {
    pub(super) fn new(address: &OriginAddress) -> Self {
        Self {
            address: address.clone(),
            resolution: Resolution::new(address),
            preferred: Cell::new(0),
            http2: Http2Pool::default(),
            idle: RefCell::new(Vec::new()),
        }
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
                shared.counts.connections_reused.add(1);
                return Some(last.transport);
            }
            shared.counts.connections_stale.add(1);
        }
        None
    }

    /// Pools a connection for the next request, or closes it if the pool is full.
    pub(super) fn check_in(&self, shared: &OriginShared, transport: Transport) {
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
