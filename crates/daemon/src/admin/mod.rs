//! The admin socket: HTTP/1.1 over a Unix socket that only its owner can access.
//!
//! | file | content |
//! |---|---|
//! | [`path`] | the path of the socket |
//! | `socket` | binding the socket, and replacing stale socket files |
//! | `server` | the admin thread |
//! | [`client`] | the client, for `flatout status`, `reload` and `upgrade` |
//!
//! TCP, passwords, and more than one request per connection are deliberately not supported.

pub mod client;
pub mod path;
pub(crate) mod server;
pub(crate) mod socket;

#[cfg(feature = "fuzzing")]
pub use server::check_request;

use serde::{Deserialize, Serialize};
use std::sync::mpsc::SyncSender;

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OrderKind {
    /// Reloads the configuration.
    Reload,
    /// Hands over to a new process.
    Upgrade,
    /// Drains connections and exits.
    Stop,
}

/// A command, and the channel for its result.
#[derive(Debug)]
pub(crate) struct AdminCommand {
    pub(crate) kind: OrderKind,
    pub(crate) answer: SyncSender<CommandResult>,
}

/// The result of a command: a status code, and text that ends with a line end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandResult {
    pub(crate) status: u16,
    pub(crate) text: String,
}
