//! The server role of the HTTP/1.1 core, on sockets.
//!
//! | file | what it knows |
//! |---|---|
//! | [`settings`] | timeouts and limits of a server |
//! | [`worker`] | what the connections of one thread share; its life from start to drain |
//! | `accept` | from a listener to a connection, answering before registering where it can |
//! | `connection` | bytes in, bytes out, and how a connection ends |
//! | `opening` | beginning with TLS, with HTTP/2, or on the wrong port |
//! | `exchanges` | from received bytes to output, through the handler |
//! | `receiving` | a request's content: thrown away, or on its way to the handler |
//! | `awaiting` | answers that are being made, and what goes ahead of them |
//! | `streaming` | answers that come bit by bit |
//! | `polling` | a connection that waits for the handler as well as for its client |
//! | `fault` | requests that are refused, too slow or cut |
//! | `tunnel` | connections that go on with another protocol |
//! | `sending` | writing: partial writes, slow readers, files |
//! | [`signals`] | what the operating system tells the server |
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

pub use settings::{Settings, Timeouts};
pub use signals::{Signals, Told, phase_channel};
pub use worker::{Command, Listener, Phase, Protocol, WorkerParts, WorkerReport, command_channel, run_worker};
