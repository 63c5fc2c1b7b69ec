//! HTTP/2 over the same handler: the h2 crate's protocol machine on a worker's sockets.
//!
//! | file | content |
//! |---|---|
//! | `settings` | announced settings and internal limits |
//! | `link` | the socket or TLS session, written to once per turn, with flood detection |
//! | `body` | response bodies without copies, and how each response ended |
//! | `exchange` | conversion of h2 requests to replies, and of responses to heads |
//! | `stream` | requests and responses in progress |
//! | `intake` | request content on its way to its handler |
//! | `streaming` | streamed responses |
//! | `task` | one connection: its turns and its end |
//! | `answers` | responding to its requests |
//! | `timeouts` | its deadlines |
//!
//! Absent by design: server push, upgrades from HTTP/1.1, which clients no longer use, and tunnels: a handler that
//! requests one causes a 501.

pub(crate) mod answers;
pub(crate) mod body;
pub(crate) mod exchange;
pub(crate) mod intake;
pub(crate) mod link;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod streaming;
pub(crate) mod task;
pub(crate) mod timeouts;

#[cfg(test)]
pub(crate) mod tests;
