//! The client role of HTTP: the load lab's connections, on the same workers as the server's.
//!
//! A worker is one thread with one single-threaded runtime. Its [`Drive`] decides what is due, when, and on which slot: a
//! slot is a place for one connection or, over HTTP/2, for one of the streams that share a connection. The worker sends
//! ready-made bytes, reads the answer to the last byte of its body, and tells the drive what happened. Over plain HTTP/1
//! that is one send and one receive a request, and nothing is allocated for one.
//!
//! | file | what it knows |
//! |---|---|
//! | `table` | the requests, ready-made |
//! | `slot`, `dispatch`, `pacer`, `vigil` | the slots, what is due on them, the clock that says so, and who stays awake for it |
//! | `connector`, `link`, `stream`, `tls` | from an address to a connection, plain or not |
//! | `reader`, `content` | answers of HTTP/1 from bytes; whether a body is what it should be |
//! | `connection`, `http2` | exchange after exchange |
//! | `deadline`, `failure` | lateness; how a request can end without an answer |
//!
//! Absent on purpose: what to send how often (the drive decides), and any record of what happened (the drive keeps it).
//! Redirects are not followed and requests are not retried: a load lab that mends what failed measures something else.

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
mod stream;
mod table;
mod tls;
mod vigil;
mod worker;

pub use content::sha256;
pub use failure::Failure;
pub use interrupt::{watch_endings, watch_interrupts};
pub use table::{DIGEST_BYTES, Http2Request, PreparedRequest};
pub use tls::{ClientTls, ClientTlsSettings, TlsFailure};
pub use worker::{WorkerCpu, WorkerReport, run_worker, thread_cpu_ns};

use std::net::SocketAddr;
use std::sync::Arc;

/// What a worker's connections do, the same for all of them.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server.
    pub address: SocketAddr,
    /// TLS, where it is spoken.
    pub tls: Option<ClientTls>,
    /// Streams at once on a connection of HTTP/2, at least 1; `None`: HTTP/1.
    pub http2_streams: Option<u32>,
    /// What may be sent; at least one request.
    pub requests: Arc<[PreparedRequest]>,
    /// How many slots the drive knows: connections open at once, or streams where those share one. At least 1.
    pub slots: u32,
    /// Where connections come from.
    pub sources: Sources,
    /// Longest wait for a connection, and for a whole answer, in nanoseconds, at least 1.
    pub request_timeout_ns: u64,
    /// One answer in so many has the digest of its body taken; 0 for none.
    pub digest_every: u32,
    /// Whether the worker stays awake while an answer is awaited, and shortly before something is due. A core that sleeps
    /// takes a hundred microseconds to wake, which would count as the server's.
    pub stays_awake: bool,
    /// Whether SIGINT ends the run: once to stop sending, twice to give up what is under way.
    pub handle_interrupts: bool,
}

/// Where connections come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources {
    /// Wherever the system likes; other addresses of the loopback network when that has no free port left.
    Automatic,
    /// In turn from `count` addresses from 127.0.0.1 on, at most 65,534, beginning with the `first`th; and from no
    /// others.
    Loopback {
        /// Index of the first.
        first: u32,
        /// How many, at least 1.
        count: u32,
    },
}

/// Requests that are due on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Where, from 0.
    pub slot: u32,
    /// Whether they need a connection of their own, and not one that is open already.
    pub connect: bool,
    /// How many, to be sent without waiting for answers; at least 1.
    pub burst: u32,
    /// Whether the connection is closed after them: the last one says so.
    pub closes: bool,
    /// When they should have begun, on the monotonic clock.
    pub intended_ns: u64,
    /// Whose requests they are; the drive's own affair.
    pub visit: u64,
    /// Number of the first one; the drive's own affair.
    pub request: u64,
    /// The drive's own affair as well.
    pub call: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// These begin now.
    Begin(Begin),
    /// The connection of this slot is of no more use to anybody: it is closed. What begins on the slot next makes a new one.
    Close(u32),
    /// Nothing before then, on the monotonic clock, unless something ends.
    WaitUntil(u64),
    /// Nothing until something ends.
    Idle,
    /// Nothing ever again.
    Done,
}

/// A connection that was made for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// From before the connect call until the socket stood, in nanoseconds.
    pub connect_ns: u64,
    /// From then until the TLS session stood; 0 without TLS.
    pub tls_ns: u64,
    /// Whether it replaces one that the server closed although it could have been used again.
    pub is_reconnect: bool,
    /// Whether its TLS session was resumed.
    pub is_resumed: bool,
}

/// A connection that is closed. Times are on the monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// When the client began to connect.
    pub begun_ns: u64,
    /// When it was closed.
    pub ended_ns: u64,
    /// Answers that came whole on it.
    pub replies: u64,
    /// Whether the server closed it although it could have been used again.
    pub by_server: bool,
}

/// How a request ended. All times are on the monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it was a part of.
    pub begin: Begin,
    /// Its index in [`ClientSettings::requests`].
    pub request: u32,
    /// When the client acted: began to connect for it, or to send it.
    pub begun_ns: u64,
    /// When it was handed to the kernel; `ended_ns` if it never was.
    pub sent_ns: u64,
    /// When the first bytes of the answer were there; `ended_ns` if none ever were.
    pub first_byte_ns: u64,
    /// When the last byte was there, or the failure was seen.
    pub ended_ns: u64,
    /// The connection made for it, if one was, and stood.
    pub made: Option<Made>,
    /// Status of the final response, or why there is none that counts.
    pub result: Result<u16, Failure>,
    /// Whether the body was looked at by its digest.
    pub is_digested: bool,
    /// Whether every byte of it was sent.
    pub is_sent: bool,
    /// Bytes of it that were sent.
    pub sent_bytes: u64,
    /// Bytes of heads and of framing that arrived, those of interim responses included.
    pub head_bytes: u64,
    /// Bytes of content that arrived.
    pub body_bytes: u64,
    /// Interim (1xx) responses before the final one.
    pub interim_responses: u64,
}

/// Decides what a worker does and is told what happened. All of its methods are called on the worker's own thread.
/// Times are nanoseconds of the monotonic clock.
pub trait Drive {
    /// What to do now. Asked again and again until there is nothing to begin.
    fn next(&mut self, now_ns: u64) -> Move;

    /// Which request of the table the `nth` of a burst is, from 0.
    fn choose(&mut self, begin: &Begin, nth: u32) -> u32;

    /// A burst begins: the client connects for it, or sends it. Says whether it counts: what the worker costs is told from
    /// the first one on that does ([`WorkerReport::counted`]).
    fn handle_begun(&mut self, begin: &Begin, now_ns: u64) -> bool;

    /// Notes how one request ended. Told of each that was begun, exactly once.
    fn handle_ended(&mut self, ended: &Ended);

    /// Every answer of a slot's burst has come; `is_open`: and its connection can be used again. Says what the slot does
    /// at once, if anything.
    fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin>;

    /// A slot's burst failed and its connection is gone; `connected`: there had been one.
    fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool);

    /// An attempt to connect begins for a slot.
    fn handle_connecting(&mut self, now_ns: u64);

    /// The connection of a slot stands.
    fn handle_connected(&mut self, slot: u32, made: &Made, now_ns: u64);

    /// A connection that stood is closed.
    fn handle_connection_end(&mut self, end: &ConnectionEnd);

    /// The server closed the connection of a slot between two bursts.
    fn handle_closed(&mut self, slot: u32);

    /// Called several times a second: `late_ns` after it should have been, with so many connections open.
    fn handle_tick(&mut self, now_ns: u64, late_ns: u64, connections: u32);

    /// Somebody asked for the run to end: nothing more should be begun.
    fn handle_interrupt(&mut self);
}

#[cfg(test)]
mod tests;
