//! The client role of HTTP/1.1: the load lab's connections, on the same workers as the server's.
//!
//! A worker is one thread with one single-threaded runtime and one task a connection. A task asks its [`Drive`] whether
//! there is a request to send, sends the same prebuilt bytes every time, reads the answer to the last byte of its body,
//! and tells the drive what happened. One send and one receive a request; nothing is allocated for one.
//!
//! Absent on purpose: what to send how often (the drive decides), and any record of what happened (the drive keeps it).
//! Redirects are not followed and requests are not retried: a load lab that mends what failed measures something else.

mod connection;
mod connector;
mod deadline;
mod failure;
mod interrupt;
mod link;
mod reader;
mod worker;

pub use failure::Failure;
pub use interrupt::{watch_endings, watch_interrupts};
pub use worker::{WorkerReport, run_worker, thread_cpu_ns};

use std::net::SocketAddr;
use std::sync::Arc;

/// What a worker's connections do, the same for all of them.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The server.
    pub address: SocketAddr,
    /// The whole request, head and any body.
    pub request: Arc<[u8]>,
    /// Whether that is a HEAD request, whose answer has no body.
    pub is_head: bool,
    /// Whether a connection is used for one request only. The request must then say `Connection: close` itself.
    pub closes: bool,
    /// Connections this worker keeps, at least 1.
    pub connections: u32,
    /// Longest wait for a connection, and for a whole answer, in nanoseconds, at least 1.
    pub request_timeout_ns: u64,
    /// Whether SIGINT ends the run: once to stop sending, twice to give up what is under way.
    pub handle_interrupts: bool,
}

/// What happened on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection was established.
    Connected {
        /// From before the connect call, in nanoseconds.
        connect_ns: u64,
        /// Whether it replaces one that the server closed although it could have been used again.
        is_reconnect: bool,
    },
    /// A whole request was handed to the kernel.
    Sent {
        /// Its length.
        bytes: u64,
    },
    /// An interim (1xx) response arrived; the final one is still to come.
    Interim,
    /// An answer arrived whole.
    Answered {
        /// Status of the final response, 200 to 599, or 101.
        status: u16,
        /// From just before the request was sent to the last byte of the answer, in nanoseconds.
        latency_ns: u64,
    },
    /// What arrived for one request, told once for each, answered or not.
    Received {
        /// Bytes of heads and of chunked framing, in `Answered` and unfinished responses alike.
        head_bytes: u64,
        /// Bytes of content.
        body_bytes: u64,
    },
    /// A request failed, before or after it was sent.
    Failed(Failure),
}

/// Decides what a worker's connections do and is told what happened. All of its methods are called on the worker's own
/// thread. Times are nanoseconds of the monotonic clock.
pub trait Drive {
    /// Takes one request to send; false when nothing more is to be sent. Whatever is taken is later told of as
    /// [`Event::Answered`] or [`Event::Failed`], exactly once.
    fn take_request(&mut self, now_ns: u64) -> bool;

    /// How long a connection pauses that could not be established for the `failures_in_a_row`th time; `None` to give up.
    fn decide_pause_ns(&mut self, now_ns: u64, failures_in_a_row: u32) -> Option<u64>;

    /// Notes what happened.
    fn handle_event(&mut self, event: Event);

    /// Called several times a second.
    fn handle_tick(&mut self, now_ns: u64);

    /// Somebody asked for the run to end: nothing more should be sent.
    fn handle_interrupt(&mut self);
}

#[cfg(test)]
mod tests;
