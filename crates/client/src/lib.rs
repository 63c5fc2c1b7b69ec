//! The client role of HTTP: the load lab's connections, on the same kind of worker as the server's.
//!
//! A worker is one thread with a single-threaded runtime. Its [`Drive`] decides which bursts are due, when, and on
//! which slot. A slot holds one connection or, over HTTP/2 and HTTP/3, one of the streams that share a connection. The
//! worker sends prepared bytes, reads the response to the last byte of its body, and reports the result to the drive.
//! Over plain HTTP/1, that is one send and one receive per request, without allocation.
//!
//! | file | content |
//! |---|---|
//! | `table`, `template` | the prepared requests; those with placeholders |
//! | `slot`, `dispatch`, `pacer`, `busy_poll` | slots, due bursts, the timer for them, and busy polling |
//! | `connector`, `link`, `tls` | from an address to a connection, plain or TLS |
//! | `reader`, `content` | parsing HTTP/1 responses; verifying bodies |
//! | `connection`, `streams` | the loops of a slot: over its own connection, and over a stream of a shared connection |
//! | `http3` | HTTP/3 connections |
//! | `cookies` | the cookies of simulated clients |
//! | `deadline`, `failure` | timeouts; reasons that responses are incomplete |
//!
//! The terms are those of `flatout_load`: a drive returns a [`Move`], and is notified of each [`ConnectionEnd`].
//!
//! By design, the schedule and the records belong to the drive. Redirects are not followed and requests are not
//! retried, because a load generator that hides failures would measure something else. There are two exceptions, which
//! no client treats as failures. Both are sent again, and counted apart: requests that a server refuses to process over
//! HTTP/2 or HTTP/3, for example when it closes a connection after a fixed number of requests; and, once, idempotent
//! requests on a connection that had been idle and that the server closes before any byte of a response.

mod busy_poll;
mod connection;
mod connector;
mod content;
mod cookies;
mod deadline;
mod dispatch;
mod failure;
mod http3;
mod interrupt;
mod link;
mod pacer;
mod reader;
mod slot;
mod streams;
mod table;
mod template;
mod tls;
mod worker;

pub use content::sha256;
pub use cookies::ScopeRanges;
pub use failure::{QuicFailure, RequestFailure};
pub use interrupt::{watch_endings, watch_interrupts};
pub use table::{DIGEST_BYTES, PreparedRequest, StreamRequest};
pub use template::{BlockPart, RequestTemplate};
pub use tls::{ClientTls, ClientTlsSettings};
pub use worker::{WorkerCpu, WorkerReport, run_worker, thread_cpu_ns};

use flatout_load::record::{ConnectionEnd, SentAgain};
use flatout_load::schedule::{Begin, Move, Visitor};
use flatout_load::template::ValueSource;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Settings that apply to all connections of a worker.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server's addresses, at least one, unless it is at a Unix socket. Connections use them in turn.
    pub addresses: Arc<[SocketAddr]>,
    /// Path of the Unix socket of the server, if it is at one; `addresses` and `sources` are then not used. HTTP/3 needs
    /// addresses.
    pub unix_socket: Option<Arc<Path>>,
    /// TLS settings; `None` for plain connections.
    pub tls: Option<ClientTls>,
    /// Settings of the streams that share a connection; `None` for HTTP/1.
    pub streams: Option<SharedStreams>,
    /// The requests, at least one.
    pub requests: Arc<[PreparedRequest]>,
    /// The values of placeholders in requests.
    pub values: ValueSource,
    /// Number of slots, which is the number of open connections, or of streams if these share connections. At least 1.
    pub slots: u32,
    /// Source addresses of connections.
    pub sources: Sources,
    /// Timeout for connecting, and for a complete response, in nanoseconds, at least 1.
    pub request_timeout_ns: u64,
    /// True if each simulated client stores the cookies that responses set, and sends them with its later requests.
    pub stores_cookies: bool,
    /// Interval, in responses, at which the digest of a body is computed; 0 for never.
    pub digest_every: u32,
    /// True if the worker polls while a response is awaited, and shortly before a burst is due. A sleeping core takes a
    /// hundred microseconds to wake, which would otherwise count as the server's time.
    pub stays_awake: bool,
    /// True if SIGINT ends the run. The first SIGINT stops new requests, the second aborts exchanges in progress.
    pub handle_interrupts: bool,
}

/// Settings for sending requests as streams of shared connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedStreams {
    /// The HTTP version of the connections.
    pub version: StreamVersion,
    /// Number of concurrent streams per connection, at least 1.
    pub per_connection: u32,
}

/// A version of HTTP whose connections have several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamVersion {
    /// HTTP/2.
    Http2,
    /// HTTP/3, which requires TLS.
    Http3,
}

/// The source addresses of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// The kernel chooses. If it has no free port left, further addresses of the loopback network are used.
    Automatic,
    /// Connections use `count` addresses in turn, from 127.0.0.1 on, at most 65,534, starting with the address with
    /// index `first`. No other addresses are used.
    Loopback {
        /// Index of the first address.
        first: u32,
        /// Number of addresses, at least 1.
        count: u32,
    },
}

/// Details of a connection that was opened for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Time from before connect until the socket was connected, in nanoseconds. Over QUIC, until the handshake was
    /// complete.
    pub connect_ns: u64,
    /// Time from then until the TLS handshake was complete, in nanoseconds. 0 without TLS, and over QUIC, whose
    /// handshake includes TLS.
    pub tls_ns: u64,
    /// True if the connection replaces one that the server closed although it was reusable.
    pub is_reconnect: bool,
    /// True if the TLS session was resumed.
    pub is_resumed: bool,
}

/// The record of one request. All times are on the monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The burst that the request belongs to.
    pub begin: Begin,
    /// Index of the request in [`ClientSettings::requests`].
    pub request: u32,
    /// Time at which the client started to connect for the request, or to send it.
    pub begun_ns: u64,
    /// Time at which the kernel accepted the request; `ended_ns` if it never did.
    pub sent_ns: u64,
    /// Time at which the first bytes of the response arrived; `ended_ns` if none arrived.
    pub first_byte_ns: u64,
    /// Time at which the last byte arrived, or the failure was detected.
    pub ended_ns: u64,
    /// The connection that was opened for the request, if one was established.
    pub made: Option<Made>,
    /// Status of the final response, or the reason there is no valid response.
    pub result: Result<u16, RequestFailure>,
    /// True if the digest of the body was computed.
    pub is_digested: bool,
    /// True if all bytes of the request were sent.
    pub is_sent: bool,
    /// Bytes of the request that were sent.
    pub sent_bytes: u64,
    /// Bytes of heads and framing received, including interim responses.
    pub head_bytes: u64,
    /// Bytes of content received.
    pub body_bytes: u64,
    /// Number of interim (1xx) responses before the final response.
    pub interim_responses: u64,
}

/// The schedule of a worker and the recorder of its results. All methods are called on the worker's thread. Times are
/// in nanoseconds on the monotonic clock.
pub trait Drive {
    /// Returns the next action. Called repeatedly until there is nothing to start now.
    fn next(&mut self, now_ns: u64) -> Move;

    /// Returns the table index of the `nth` request of a burst, from 0.
    fn choose(&mut self, begin: &Begin, nth: u32) -> u32;

    /// Returns the simulated client that makes the requests of a burst; `None` if it stores no cookies.
    fn visitor(&self, begin: &Begin) -> Option<Visitor> {
        let _ = begin;
        None
    }

    /// Handles the start of a burst: the client connects for it, or sends it. Returns whether the burst is counted. The
    /// worker's CPU time is reported from the first counted burst on ([`WorkerReport::counted`]).
    fn handle_begun(&mut self, begin: &Begin, now_ns: u64) -> bool;

    /// Records how a request ended. Called exactly once for each request that was started.
    fn handle_ended(&mut self, ended: &RequestRecord);

    /// Handles that requests are sent again.
    fn handle_sent_again(&mut self, requests: u32, why: SentAgain) {
        let _ = (requests, why);
    }

    /// Withdraws a burst that has not started, because the server permits at most `streams_max` streams on a connection.
    /// The slot must not be used until [`Self::handle_usable`].
    fn handle_unusable(&mut self, begin: &Begin, streams_max: u32) {
        let _ = (begin, streams_max);
    }

    /// Handles that the server now permits `streams_max` streams on a connection, so that a slot can be used again.
    fn handle_usable(&mut self, slot: u32, streams_max: u32, now_ns: u64) {
        let _ = (slot, streams_max, now_ns);
    }

    /// Returns the intended start of a burst that has not started, because its slot waited until another slot had
    /// opened the connection that they share.
    fn intended_after_wait(&self, begin: &Begin, now_ns: u64) -> u64 {
        let _ = now_ns;
        begin.intended_ns
    }

    /// Handles the arrival of all responses of a slot's burst. `is_open` is true if the connection is reusable. Returns
    /// the slot's next burst, if it starts now.
    fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin>;

    /// Handles a failed burst, whose connection is closed. `connected` is true if there was a connection.
    fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool);

    /// Handles the start of a connection attempt.
    fn handle_connecting(&mut self, now_ns: u64);

    /// Handles an established connection of a slot.
    fn handle_connected(&mut self, slot: u32, made: &Made, now_ns: u64);

    /// Handles the end of an established connection.
    fn handle_connection_end(&mut self, end: &ConnectionEnd);

    /// Handles a connection that the server closed between two bursts of a slot. If several slots share the connection,
    /// this is called for each of them, whether or not it has a burst in progress.
    fn handle_closed(&mut self, slot: u32);

    /// Handles a tick, several times a second. The tick is `late_ns` after its planned time, and `connections` are
    /// open.
    fn handle_tick(&mut self, now_ns: u64, late_ns: u64, connections: u32);

    /// Handles an interruption of the run. No more bursts should start.
    fn handle_interrupt(&mut self);
}

#[cfg(test)]
mod tests;
