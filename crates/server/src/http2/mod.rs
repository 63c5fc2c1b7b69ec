//! HTTP/2 with the same handlers: `flatout_http::http2` on the sockets of a worker.
//!
//! | file | content |
//! |---|---|
//! | `settings` | announced settings |
//! | `link` | the socket or TLS session, written to once per turn |
//! | `task` | the turns and the close of one connection |
//! | `transport` | the streams and their output |
//! | `timeouts` | deadlines |
//!
//! Absent by design: server push, and upgrades from HTTP/1.1 to HTTP/2, which clients no longer use.

pub(crate) mod link;
pub(crate) mod settings;
pub(crate) mod task;
mod timeouts;
mod transport;

#[cfg(test)]
pub(crate) mod tests;
