//! The server role of the HTTP/1.1 core, on sockets.
//!
//! | file | content |
//! |---|---|
//! | [`settings`] | timeouts and limits of a server |
//! | [`worker`] | state shared by one thread's connections; its life from start to drain |
//! | `accept` | from a listener to a connection, responding before registration if possible |
//! | `connection` | bytes in, bytes out, and how a connection ends |
//! | `opening` | connections that begin with TLS, with HTTP/2, or on the wrong port |
//! | `exchanges` | from received bytes to output, through the handler |
//! | `receiving` | request content: discarded, or on its way to the handler |
//! | `awaiting` | pending responses, and their interim responses |
//! | `streaming` | streamed responses |
//! | `polling` | a connection that waits for both the handler and the client |
//! | `fault` | requests that are refused, too slow or cut |
//! | `tunnel` | connections that switch to another protocol |
//! | `sending` | writing: partial writes, slow readers, files |
//! | [`signals`] | signals from the operating system |
//! | `task` | waiting: readiness and deadlines of one registered connection |

pub(crate) mod accept;
pub(crate) mod awaiting;
pub(crate) mod connection;
pub(crate) mod exchanges;
pub(crate) mod fault;
pub(crate) mod opening;
pub(crate) mod polling;
pub(crate) mod receiving;
pub(crate) mod sending;
pub mod settings;
pub mod signals;
pub(crate) mod streaming;
pub(crate) mod task;
pub(crate) mod tunnel;
pub mod worker;

#[cfg(test)]
pub(crate) mod tests;

pub use settings::Settings;
pub use signals::{SignalAction, Signals, phase_channel};
pub use worker::{Command, Listener, Phase, Protocol, WorkerParts, WorkerReport, command_channel, run_worker};
