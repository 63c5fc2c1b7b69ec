//! Pool of idle connections to an origin.

use super::client::OriginShared;
use super::http2::Http2Pool;
use super::resolve::Resolution;
use flatout_http::head::Fields;
use flatout_http::proxy_protocol::ProxyClient;
use flatout_http::token::{parse_decimal, trim};
use flatout_http::url::OriginAddress;
use flatout_net::task_deadlines::now_ms;
use flatout_net::transport::Transport;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;

/// A connection, and the address to which it goes.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) peer: SocketAddr,
    /// The client that the connection's PROXY header names. Always `Sender` without such headers.
    pub(super) client: ProxyClient,
}

/// An idle connection.
#[derive(Debug)]
struct Idle {
    connection: Connection,
    /// When the connection is closed, in milliseconds.
    until_ms: u64,
}

/// How long before the end that an origin announces an idle connection is closed, in milliseconds: enough for a request
/// to reach the origin in time. For timeouts of less than twice this, half of the timeout.
const KEEP_ALIVE_MARGIN_MS: u64 = 1_000;

/// Returns how long an origin keeps the connection of a response with these fields open while it is idle, less a margin,
/// in milliseconds: the `timeout` of Keep-Alive (RFC 2068 §19.7.1.1), in seconds. Returns `u64::MAX` if it does not say.
pub(super) fn keep_alive_ms(fields: Fields<'_>) -> u64 {
    let mut parameters = fields.all("keep-alive").flat_map(|line| line.split(|&byte| byte == b','));
    let timeout = parameters.find_map(|parameter| {
        let equals = parameter.iter().position(|&byte| byte == b'=')?;
        let is_timeout = trim(&parameter[..equals]).eq_ignore_ascii_case(b"timeout");
        parse_decimal(trim(&parameter[equals + 1..])).filter(|_| is_timeout)
    });
    timeout.map_or(u64::MAX, |seconds| {
        let timeout_ms = seconds.saturating_mul(1_000);
        timeout_ms - KEEP_ALIVE_MARGIN_MS.min(timeout_ms / 2)
    })
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

    /// Closes connections to addresses that the name no longer has: idle ones now, those in use after their response.
    /// `has_lost` is true if the name has just lost an address.
    pub(super) fn retire(&self, has_lost: bool) {
        if has_lost {
            self.has_moved.set(true);
            self.idle.borrow_mut().retain(|idle| self.resolution.has(idle.connection.peer));
        }
        // It may have been opened during the resolution that noticed the loss.
        self.http2.retire(|peer| self.resolution.has(peer));
    }

    /// Takes an idle connection of `client` that appears usable. Without PROXY headers, connections belong to no client,
    /// and any will do. Returns `None` if there is none.
    pub(super) fn check_out(&self, shared: &OriginShared, client: ProxyClient) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        if idle.is_empty() {
            return None;
        }
        let now_ms = now_ms();
        let client = shared.named_client(client);
        while let Some(place) = idle.iter().rposition(|idle| idle.connection.client == client) {
            let mut last = idle.remove(place);
            if last.until_ms < now_ms {
                continue;
            }
            // This costs a system call, but unsolicited data from an origin must never be mistaken for the next
            // response, and the runtime may not have been notified of it yet.
            if last.connection.transport.is_quiet(true) {
                self.note_use();
                shared.counts.connections_reused.add(1);
                return Some(last.connection);
            }
            shared.counts.connections_stale.add(1);
        }
        None
    }

    /// Pools a connection for the next request, or closes it if the pool is full or the name has lost its address.
    /// `keep_alive_ms` is how long the origin keeps it open, as returned by [`keep_alive_ms`].
    pub(super) fn check_in(&self, shared: &OriginShared, connection: Connection, keep_alive_ms: u64) {
        let idle_ms = shared.settings.idle_timeout_ms.min(keep_alive_ms);
        if keep_alive_ms == 0 {
            return;
        }
        if self.has_moved.get() && !self.resolution.has(connection.peer) {
            return;
        }
        let mut idle = self.idle.borrow_mut();
        let idle_max = shared.settings.idle_connections_max as usize;
        if shared.settings.proxy_protocol.is_some() && idle.len() == idle_max && idle_max > 0 {
            // Connections of clients that have left must not take the place of others.
            idle.remove(0);
        }
        if idle.len() < idle_max {
            idle.push(Idle { connection, until_ms: now_ms().saturating_add(idle_ms) });
            shared.deadlines.wake_sweep();
        }
    }

    /// Closes connections that have expired or were closed by the origin.
    pub(super) fn handle_time(&self, shared: &OriginShared, now_ms: u64) {
        self.http2.handle_time(shared, now_ms);
        self.idle.borrow_mut().retain_mut(|idle| {
            if idle.until_ms < now_ms {
                return false;
            }
            let quiet = idle.connection.transport.is_quiet(false);
            shared.counts.connections_stale.add(u64::from(!quiet));
            quiet
        });
    }

    /// Returns whether any connection needs periodic checks.
    pub(super) fn is_kept(&self) -> bool {
        !self.idle.borrow().is_empty() || self.http2.is_open()
    }

    #[cfg(test)]
    pub(super) fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }

    pub(super) fn close_idle(&self) {
        self.idle.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::keep_alive_ms;
    use flatout_http::head::{FieldStorage, parse_fields};
    use flatout_http::limits::Limits;

    #[test]
    fn announced_timeouts() {
        for (lines, expected) in [
            ("", u64::MAX),
            ("Keep-Alive: timeout=5\r\n", 4_000),
            ("keep-alive: max=100, Timeout = 60\r\n", 59_000),
            ("Keep-Alive: max=100\r\nKeep-Alive: timeout=2\r\n", 1_000),
            ("Keep-Alive: timeout=1\r\n", 500),
            ("Keep-Alive: timeout=0\r\n", 0),
            ("Keep-Alive: 300\r\n", u64::MAX),
            ("Keep-Alive: timeout=soon\r\n", u64::MAX),
            ("Keep-Alive: timeout\r\n", u64::MAX),
            ("Keep-Alive: timeout=18446744073709551615\r\n", u64::MAX - 1_000),
            ("Keep-Alive: timeout=18446744073709551616\r\n", u64::MAX),
            ("Keep-Alive: timeout=-1\r\n", u64::MAX),
        ] {
            let section = format!("{lines}\r\n");
            let mut storage = FieldStorage::new();
            let fields = parse_fields(section.as_bytes(), &Limits::CLIENT, &mut storage).unwrap();
            assert_eq!(keep_alive_ms(fields), expected, "{lines}");
        }
    }
}
