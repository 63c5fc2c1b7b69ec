//! Client connections: workers, listeners, HTTP/1.1 and HTTP/2.
//!
//! Each worker has a single-threaded tokio runtime and its own SO_REUSEPORT listener; workers share nothing but
//! counters, each with one writer. A request on the hot path is: wait, receive, send.
//!
//! | file | content |
//! |---|---|
//! | [`settings`] | timeouts and limits of a server |
//! | [`worker`] | state shared by one thread's connections; its life from start to drain |
//! | `accept` | from a listener to a connection, responding before registration if possible |
//! | `sending` | writing: partial writes, slow readers, files |
//! | `http1`, `http2` | the connections of each protocol, over the same handler |
//! | `exchange` | one request and its response, whatever the protocol |
//! | `tls_session` | one connection's TLS session over a non-blocking socket |
//! | [`counters`], `deadline` | a worker's counters; deadlines of connections |
//! | `date_clock` | the Date field |

pub(crate) mod accept;
pub mod counters;
pub(crate) mod date_clock;
pub(crate) mod deadline;
pub(crate) mod exchange;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod sending;
pub mod settings;
pub(crate) mod tls_session;
pub mod worker;

#[cfg(test)]
pub(crate) mod tests;

pub use settings::Settings;
pub use worker::{
    Command, Listener, Phase, Protocol, WorkerParts, WorkerReport, command_channel, phase_channel, run_worker,
};
