//! Limits on what clients may have at the same time: connections, incomplete handshakes (TLS, or a PROXY header) and
//! incomplete request heads.
//!
//! All workers of a process share the counts. A client that exceeds its own limit is refused. If all clients together
//! have too many incomplete handshakes or heads, the worker closes its oldest ones, because they are the least likely
//! to belong to legitimate clients.

use crate::deadline::{Call, Incomplete};
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_net::deadlines::DeadlineId;
use flatout_os::random::KeyedHashState;
use flatout_overload::{ClientCounter, ClientLimit, ClientPermit};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Divisor of the total limit that yields how many connections are closed at once when the limit is exceeded. Closing
/// several at once makes the search for the oldest rare.
const DISPLACED_PART: u32 = 64;

/// Counts for each client and in total, shared by all workers.
#[derive(Clone)]
pub struct ConnectionCounters {
    /// TCP and QUIC connections.
    pub connections: &'static ClientCounter,
    /// Connections with an incomplete handshake: a PROXY header, TLS, or the client preface of HTTP/2.
    pub handshakes: &'static ClientCounter,
    /// Connections with an incomplete request head.
    pub heads: &'static ClientCounter,
    /// Returns whether an address belongs to a trusted proxy and is therefore shared by many clients.
    pub is_proxy: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
}

impl ConnectionCounters {
    /// Creates counters with the given limits.
    pub fn new(
        connections: ClientLimit,
        handshakes: ClientLimit,
        heads: ClientLimit,
        is_proxy: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            connections: ClientCounter::leak(connections, KeyedHashState::new()),
            handshakes: ClientCounter::leak(handshakes, KeyedHashState::new()),
            heads: ClientCounter::leak(heads, KeyedHashState::new()),
            is_proxy: Arc::new(is_proxy),
        }
    }

    /// Admits a connection of `client`. `is_tls` is true if it begins with a TLS handshake.
    pub(crate) fn admit(&self, client: Option<SocketAddr>, is_tls: bool) -> Result<ConnectionPermits, CloseReason> {
        let address = client.map(|client| client.ip());
        let is_proxy = |address| (self.is_proxy)(address);
        let connection = self.connections.admit(address, is_proxy).map_err(|_| CloseReason::ConnectionsLimit)?;
        let beginning = if is_tls { self.begin(Incomplete::Handshake, client)? } else { Beginning::default() };
        Ok(ConnectionPermits { connection, beginning })
    }

    fn begin(&self, kind: Incomplete, client: Option<SocketAddr>) -> Result<Beginning, CloseReason> {
        let reason = match kind {
            Incomplete::Handshake => CloseReason::HandshakesLimit,
            Incomplete::Head => CloseReason::HeadsLimit,
        };
        let address = client.map(|client| client.ip());
        let permit = self.of(kind).0.admit(address, |address| (self.is_proxy)(address)).map_err(|_| reason)?;
        Ok(Beginning { counted: Some((kind, permit)), marked: None })
    }

    /// Returns the counter of `kind`, and the reason to close connections beyond its total limit.
    pub(crate) const fn of(&self, kind: Incomplete) -> (&'static ClientCounter, CloseReason) {
        match kind {
            Incomplete::Handshake => (self.handshakes, CloseReason::HandshakesTotal),
            Incomplete::Head => (self.heads, CloseReason::HeadsTotal),
        }
    }
}

/// Counters without limits.
impl Default for ConnectionCounters {
    fn default() -> Self {
        let none = ClientLimit::default();
        Self::new(none, none, none, |_| false)
    }
}

/// The permits of one connection, which count it while they exist.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    connection: ClientPermit,
    pub(crate) beginning: Beginning,
}

impl ConnectionPermits {
    /// Replaces these permits, which were granted before the client was known, with permits for `client`. `is_tls` is
    /// true if a TLS handshake follows.
    ///
    /// # Errors
    /// The reason to close the connection, if the client has as many connections as it may have.
    pub(crate) fn name_client<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        client: Option<SocketAddr>,
        is_tls: bool,
    ) -> Result<(), CloseReason> {
        let marked = self.beginning.marked;
        *self = worker.held.admit(client, is_tls)?;
        // The entry in the table of deadlines stays marked until the next call of `set`.
        self.beginning.marked = marked;
        Ok(())
    }

    /// Returns the permit of the connection itself, after its beginning is complete.
    pub(crate) fn into_connection(self) -> ClientPermit {
        self.connection
    }
}

/// The incomplete handshake or request head of one connection.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    counted: Option<(Incomplete, ClientPermit)>,
    /// The entry in the table of deadlines.
    marked: Option<(Incomplete, u64)>,
}

impl Beginning {
    /// Returns what is incomplete, if anything.
    pub(crate) fn kind(&self) -> Option<Incomplete> {
        self.counted.as_ref().map(|(kind, _)| *kind)
    }

    /// Discards the mark in the table of deadlines, whose entry belongs to another task.
    pub(crate) const fn unmark(&mut self) {
        self.marked = None;
    }

    /// Returns whether `incomplete` is already counted and marked.
    pub(crate) fn is_set(&self, incomplete: Option<(Incomplete, u64)>) -> bool {
        self.marked == incomplete && self.kind() == incomplete.map(|(kind, _)| kind)
    }

    /// Counts what is `incomplete`, and since when in milliseconds on the monotonic clock, and marks it in the entry
    /// `slot`.
    ///
    /// # Errors
    /// The reason to close this connection, if the client has too many incomplete parts of this kind, or if all clients
    /// together have too many and there is no `slot`.
    #[cold]
    pub(crate) fn set<H: Handler>(
        &mut self,
        worker: &Worker<H>,
        slot: Option<DeadlineId>,
        client: Option<SocketAddr>,
        incomplete: Option<(Incomplete, u64)>,
    ) -> Result<(), CloseReason> {
        let kind = incomplete.map(|(kind, _)| kind);
        if self.kind() != kind {
            self.counted = None;
            if let Some(kind) = kind {
                self.counted = worker.held.begin(kind, client)?.counted;
            }
        }
        let is_new = self.marked.is_none() && slot.is_some();
        self.marked = incomplete;
        match (slot, kind) {
            (Some(slot), _) => worker.deadlines.borrow_mut().set_incomplete(slot, incomplete),
            (None, Some(kind)) => {
                let (counter, reason) = worker.held.of(kind);
                if counter.is_exceeded() {
                    return Err(reason);
                }
            }
            (None, None) => {}
        }
        if let Some(kind) = kind.filter(|_| is_new) {
            displace(worker, kind);
        }
        Ok(())
    }
}

/// Closes the oldest connections of this worker whose `kind` is incomplete, if all clients together have too many.
fn displace<H: Handler>(worker: &Worker<H>, kind: Incomplete) {
    let (counter, _) = worker.held.of(kind);
    let mut deadlines = worker.deadlines.borrow_mut();
    // Connections that were called close in their next turn. Until then, a batch of new connections must not call more.
    if counter.is_exceeded() && !deadlines.has_call(Call::Displace(kind)) {
        let count = (counter.limit().total_max / DISPLACED_PART).max(1) as usize;
        deadlines.call_oldest(Call::Displace(kind), count, u64::MAX, Some(kind));
    }
}
