//! The client role of HTTP: the load lab's connections, on the same kind of worker as the server's.
//!
//! A worker is one thread with one single-threaded runtime. Its [`Drive`] decides which bursts are due, when, and on
//! which slot. A slot holds one connection or, over HTTP/2, one of the streams that share a connection. The worker
//! sends prepared bytes, reads the response to the last byte of its body, and reports the result to the drive. Over
//! plain HTTP/1 that is one send and one receive per request, without allocation.
//!
//! | file | content |
//! |---|---|
//! | `table` | the prepared requests |
//! | `slot`, `dispatch`, `pacer`, `busy_polling` | slots, due bursts, the timer for them, and busy polling |
//! | `connector`, `link`, `stream`, `tls` | from an address to a connection, plain or TLS |
//! | `reader`, `content` | HTTP/1 responses from bytes; verification of bodies |
//! | `connection`, `http2` | the exchange loops |
//! | `deadline`, `failure` | timeouts; reasons for incomplete responses |
//!
//! The vocabulary is `flatout_load`'s: a drive answers with a [`Move`], and hears of each [`ConnectionEnd`].
//!
//! Absent by design: the schedule and the records, which belong to the drive. Redirects are not followed and requests
//! are not retried, as a load lab that hides failures measures something else.

mod busy_poll;
mod connection;
mod connector;
mod content;
mod deadline;
mod dispatch;
mod failure;
mod http2;
mod interrupt;
mod link;
mod pacer;
mod reader;
mod slot;
mod table;
mod tls;
mod worker;

pub use content::sha256;
pub use failure::RequestFailure;
pub use interrupt::{watch_endings, watch_interrupts};
pub use table::{DIGEST_BYTES, Http2Request, PreparedRequest};
pub use tls::{ClientTls, ClientTlsSettings};
pub use worker::{WorkerCpu, WorkerReport, run_worker, thread_cpu_ns};

use flatout_load::record::ConnectionEnd;
use flatout_load::schedule::{Begin, Move};
use std::net::SocketAddr;
use std::sync::Arc;

/// Settings common to all connections of a worker.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server's address.
    pub address: SocketAddr,
    /// TLS, if used.
    pub tls: Option<ClientTls>,
    /// Concurrent streams per HTTP/2 connection, at least 1; `None` for HTTP/1.
    pub http2_streams: Option<u32>,
    /// The requests, at least one.
    pub requests: Arc<[PreparedRequest]>,
    /// Number of slots: open connections, or streams where those share one. At least 1.
    pub slots: u32,
    /// Source addresses of connections.
    pub sources: Sources,
    /// Timeout of a connection, and of a complete response, in nanoseconds, at least 1.
    pub request_timeout_ns: u64,
    /// Computes the digest of every nth response body; 0 for none.
    pub digest_every: u32,
    /// True if the worker polls while a response is awaited, and shortly before a burst is due. A sleeping core takes
    /// a hundred microseconds to wake, which would count as the server's time.
    pub stays_awake: bool,
    /// True if SIGINT ends the run: the first stops sending, the second aborts exchanges in progress.
    pub handle_interrupts: bool,
}

/// Source addresses of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Chosen by the kernel; further addresses of the loopback network once that has no free port left.
    Automatic,
    /// Round robin over `count` addresses from 127.0.0.1 on, at most 65,534, starting at index `first`; no others are
    /// used.
    Loopback {
        /// Index of the first address.
        first: u32,
        /// Number of addresses, at least 1.
        count: u32,
    },
}

/// A connection that was opened for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// From before connect until the socket was connected, in nanoseconds.
    pub connect_ns: u64,
    /// From then until the TLS handshake was complete; 0 without TLS.
    pub tls_ns: u64,
    /// True if it replaces a connection that the server closed although it was reusable.
    pub is_reconnect: bool,
    /// True if its TLS session was resumed.
    pub is_resumed: bool,
}

/// The record of one request. All times are on the monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRecord {
    /// The burst it belongs to.
    pub begin: Begin,
    /// Its index in [`ClientSettings::requests`].
    pub request: u32,
    /// When the client started to connect for it, or to send it.
    pub begun_ns: u64,
    /// When it was handed to the kernel; `ended_ns` if it never was.
    pub sent_ns: u64,
    /// When the first bytes of the response arrived; `ended_ns` if none did.
    pub first_byte_ns: u64,
    /// When the last byte arrived, or the failure was detected.
    pub ended_ns: u64,
    /// The connection opened for it, if one was established.
    pub made: Option<Made>,
    /// Status of the final response, or why there is no valid one.
    pub result: Result<u16, RequestFailure>,
    /// True if the digest of the body was computed.
    pub is_digested: bool,
    /// True if all of its bytes were sent.
    pub is_sent: bool,
    /// Bytes of the request that were sent.
    pub sent_bytes: u64,
    /// Bytes of heads and framing received, including interim responses.
    pub head_bytes: u64,
    /// Bytes of content received.
    pub body_bytes: u64,
    /// Interim (1xx) responses before the final one.
    pub interim_responses: u64,
}

/// The schedule of a worker and the recorder of its results. All methods are called on the worker's thread. Times are
/// nanoseconds of the monotonic clock.
pub trait Drive {
    /// The next action. Called repeatedly until there is nothing to start.
    fn next(&mut self, now_ns: u64) -> Move;

    /// Table index of the `nth` request of a burst, from 0.
    fn choose(&mut self, begin: &Begin, nth: u32) -> u32;

    /// A burst starts: the client connects for it, or sends it. Returns whether it counts: the worker's CPU time is
    /// reported from the first counted burst on ([`WorkerReport::counted`]).
    fn handle_begun(&mut self, begin: &Begin, now_ns: u64) -> bool;

    /// Records how one request ended. Called exactly once for each request that was started.
    fn handle_ended(&mut self, ended: &RequestRecord);

    /// All responses of a slot's burst have arrived; `is_open` is true if the connection is reusable. Returns the
    /// slot's next burst, if any.
    fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin>;

    /// A slot's burst failed and its connection is closed; `connected` is true if there was one.
    fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool);

    /// A connection attempt starts for a slot.
    fn handle_connecting(&mut self, now_ns: u64);

    /// The connection of a slot is established.
    fn handle_connected(&mut self, slot: u32, made: &Made, now_ns: u64);

    /// An established connection closed.
    fn handle_connection_end(&mut self, end: &ConnectionEnd);

    /// The server closed the connection of a slot between two bursts.
    fn handle_closed(&mut self, slot: u32);

    /// Called several times a second, `late_ns` after the planned time, with the number of open connections.
    fn handle_tick(&mut self, now_ns: u64, late_ns: u64, connections: u32);

    /// The run was interrupted: no more bursts should start.
    fn handle_interrupt(&mut self);
}

#[cfg(test)]
mod tests;
