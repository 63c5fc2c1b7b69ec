//! The admin socket: HTTP/1.1 over a Unix socket accessible by its owner only.
//!
//! | file | content |
//! |---|---|
//! | [`path`] | the path of the socket |
//! | `socket` | binding it, and replacing stale files |
//! | `server` | the admin thread |
//! | [`client`] | the client side, for `flatout status`, `reload` and `upgrade` |
//!
//! Absent by design: TCP, passwords, more than one request per connection.

pub mod client;
pub mod path;
pub(crate) mod server;
pub(crate) mod socket;

use std::sync::mpsc::SyncSender;

/// The kind of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    /// Reload the configuration.
    Reload,
    /// Hand over to a new process.
    Upgrade,
    /// Drain and exit.
    Stop,
}

/// An order, and the channel for its result.
#[derive(Debug)]
pub(crate) struct AdminCommand {
    pub(crate) kind: OrderKind,
    pub(crate) answer: SyncSender<CommandResult>,
}

/// The result of an order: a status and a text with a line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandResult {
    pub(crate) status: u16,
    pub(crate) text: String,
}
