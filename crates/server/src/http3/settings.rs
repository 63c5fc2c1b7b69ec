//! Limits of HTTP/3 connections, and the QUIC keys and sockets of a worker.

use super::relay::{RelayHub, RelayInbox};
use flatout_http::timeouts::Timeouts;
use flatout_net::quic::ids::{IdCipher, Owner, QuicSecrets};
use flatout_net::quic::settings::Bounds;
use std::sync::Arc;

/// Maximum concurrent requests of a connection, as RFC 9114 §6.1 recommends.
pub(super) const STREAMS_MAX: u32 = 100;

/// Maximum concurrent requests with which a connection begins. QUIC allocates their entries in advance, so the full
/// number would cost an idle connection 4 KiB more.
const STREAMS_FIRST: u32 = 20;

/// Number of concurrent requests at which the maximum rises to [`STREAMS_MAX`].
pub(super) const STREAMS_MANY: u64 = STREAMS_FIRST as u64 / 2;

/// Maximum bytes of one request's content that a client may send before the handler consumes them.
const STREAM_WINDOW: u32 = 256 * 1024;

/// Maximum bytes of all requests of a connection that a client may send before the handlers consume them: initially,
/// and after a request has had more content than [`WINDOW_CONTENT_BYTES`]. The worker's budget must grant the growth.
/// The full window has room for other requests in addition to one whose content is not read.
pub(super) const CONNECTION_WINDOW_MIN: u32 = 64 * 1024;
pub(super) const CONNECTION_WINDOW_MAX: u32 = 512 * 1024;

/// Number of content bytes of one request at which the connection's window grows. If the budget denies the growth, the
/// connection tries again each time the content has doubled.
pub(super) const WINDOW_CONTENT_BYTES: u64 = 16 * 1024;

/// Minimum and maximum bytes of responses that a connection may store until they are acknowledged: twice its congestion
/// window, within these limits. The worker's budget must grant what exceeds the minimum.
pub(super) const SEND_WINDOW_MIN: u64 = 64 * 1024;
pub(super) const SEND_WINDOW_MAX: u64 = 4 * 1024 * 1024;

/// Number of handshakes in progress in a worker above which new clients must prove their address first (RFC 9000
/// §8.1.2).
pub(super) const HANDSHAKES_UNPROVEN_MAX: usize = 64;

/// Number of handshakes in progress in a worker above which new connections are refused.
pub(super) const HANDSHAKES_MAX: usize = 1024;

/// How long after the idle timeout the state of a client that sends no datagrams is dropped, in milliseconds.
const SILENCE_GRACE_MS: u64 = 5_000;

/// The QUIC keys and sockets of a worker.
#[derive(Debug)]
pub struct QuicParts {
    /// The keys of the worker's connections.
    pub identity: QuicIdentity,
    /// The datagrams that other workers receive for this worker.
    pub inbox: RelayInbox,
    /// True if the predecessor still receives datagrams, so that this worker must wait for
    /// [`crate::Command::ReceiveQuic`].
    pub must_wait: bool,
}

/// The keys of a worker's connections, and the senders to the owners of other connections.
#[derive(Clone, Debug)]
pub struct QuicIdentity {
    /// The keys shared by all processes of this server.
    pub secrets: QuicSecrets,
    /// The cipher of connection IDs, derived from `secrets`.
    pub cipher: Arc<IdCipher>,
    /// The number of this process and worker.
    pub owner: Owner,
    /// Senders to other workers and processes.
    pub hub: Arc<RelayHub>,
}

/// Returns the limits of connections for the given `timeouts`.
pub(super) const fn bounds(timeouts: &Timeouts) -> Bounds {
    Bounds {
        streams_max: STREAMS_FIRST,
        stream_window: STREAM_WINDOW,
        connection_window: CONNECTION_WINDOW_MIN,
        send_window: SEND_WINDOW_MIN,
        // Later than the server's own timeout, which notifies the client.
        idle_timeout_ms: timeouts.idle_timeout_ms.saturating_add(SILENCE_GRACE_MS),
    }
}
