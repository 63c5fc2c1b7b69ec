//! Client connections: workers, listeners, HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! Each worker has a single-threaded tokio runtime and its own SO_REUSEPORT listeners. Workers share only a few
//! counters. On the hot path, a request costs three steps: wait, receive, send.
//!
//! | file | content |
//! |---|---|
//! | [`settings`] | timeouts and limits of a server |
//! | [`worker`] | state shared by one thread's connections; a worker's life from start to drain |
//! | `accept` | accepts connections, and responds before registration if possible |
//! | `sending` | writing: partial writes, slow readers, files |
//! | `acknowledged` | whether a slow reader still accepts bytes |
//! | [`limits`] | limits on concurrent connections, incomplete handshakes and incomplete heads of clients |
//! | `http1`, `http2`, `http3` | the connections of each protocol, with the same handlers |
//! | `streams` | requests on the streams of a connection, for HTTP/2 and HTTP/3 |
//! | `exchange` | one request and its response, independent of the protocol |
//! | `tls_session` | one connection's TLS session over a non-blocking socket |
//! | [`counters`], `deadline` | a worker's counters; deadlines of connections |
//! | `date_clock` | the value of the Date field |

pub(crate) mod accept;
pub(crate) mod acknowledged;
pub mod counters;
pub(crate) mod date_clock;
pub(crate) mod deadline;
pub(crate) mod exchange;
pub(crate) mod http1;
pub(crate) mod http2;
pub mod http3;
pub mod limits;
mod send_room;
pub(crate) mod sending;
pub mod settings;
pub(crate) mod streams;
pub(crate) mod tls_session;
pub mod worker;

#[cfg(test)]
pub(crate) mod tests;

pub use accept::AcceptProblem;
pub use limits::ConnectionCounters;
pub use settings::Settings;
pub use worker::{
    Command, Listener, Phase, Protocol, WorkerParts, WorkerReport, command_channel, phase_channel, run_worker,
};
