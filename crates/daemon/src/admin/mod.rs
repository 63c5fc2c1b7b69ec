//! The admin socket: HTTP/1.1 over a Unix socket that only its owner may open.
//!
//! | file | what it knows |
//! |---|---|
//! | [`path`] | where the socket is |
//! | `socket` | binding it, and replacing what a dead process left |
//! | `server` | the thread that answers |
//! | [`client`] | the other side, for `flatout status`, `reload` and `upgrade` |
//!
//! Absent by design: TCP, passwords, more than one question on a connection.

pub mod client;
pub mod path;
pub(crate) mod server;
pub(crate) mod socket;

use std::sync::mpsc::SyncSender;

/// What an operator orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderKind {
    /// Read the configuration again.
    Reload,
    /// Hand over to a new process.
    Upgrade,
    /// Drain and end.
    Stop,
}

/// An order, and where the answer is awaited.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) kind: OrderKind,
    pub(crate) answer: SyncSender<Answer>,
}

/// What came of an order: a status and text for people, with a line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}
