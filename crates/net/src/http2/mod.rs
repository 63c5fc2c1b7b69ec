//! HTTP/2 over the same handler: the h2 crate's protocol machine on a worker's own sockets.
//!
//! | file | what it knows |
//! |---|---|
//! | `settings` | what clients are told, and why |
//! | `link` | the socket or TLS session below, written to once a turn, and watched for floods |
//! | `body` | what is sent, without copies, and how each response ended |
//! | `exchange` | from a request of the h2 crate to a reply, and from a response to its head |
//! | `stream` | requests and responses under way |
//! | `intake` | a request's content on its way to its handler |
//! | `streaming` | answers that come bit by bit |
//! | `task` | one connection: its turns and its end |
//! | `answers` | its requests answered |
//! | `patience` | its deadlines |
//!
//! Absent by design: server push, upgrades from HTTP/1.1, which clients have given up, and tunnels: a handler that wants
//! one is answered for with 501.

pub(crate) mod answers;
pub(crate) mod body;
pub(crate) mod exchange;
pub(crate) mod intake;
pub(crate) mod link;
pub(crate) mod patience;
pub(crate) mod settings;
pub(crate) mod stream;
pub(crate) mod streaming;
pub(crate) mod task;

#[cfg(test)]
pub(crate) mod tests;
