//! HTTP/2 over the same handler: `flatout_http::http2` on a worker's sockets.
//!
//! | file | content |
//! |---|---|
//! | `settings` | announced settings |
//! | `link` | the socket or TLS session, written to once per turn |
//! | `stream` | states of a stream |
//! | `task` | one connection: its turns and its end |
//! | `requests` | requests, and their responses |
//! | `content` | request content |
//! | `sending` | response content, by priority |
//! | `timeouts` | deadlines |
//!
//! Absent by design: server push, upgrades from HTTP/1.1, which clients no longer use, and tunnels: a handler that
//! requests one causes a 501.

mod content;
pub(crate) mod link;
mod requests;
mod sending;
pub(crate) mod settings;
mod stream;
pub(crate) mod task;
mod timeouts;

#[cfg(test)]
pub(crate) mod tests;
