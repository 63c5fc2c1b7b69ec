//! HTTP/3 with the same handlers: `flatout_http::http3` on QUIC connections.
//!
//! | file | content |
//! |---|---|
//! | `settings` | limits of connections; QUIC keys and sockets of a worker |
//! | `announce` | Alt-Svc in responses over other protocols |
//! | `listen` | the QUIC endpoints of a worker, and which connections they accept |
//! | [`relay`] | datagrams that belong to another worker or process |
//! | `task` | the turns and the close of one connection |
//! | `receiving` | events of QUIC, and received bytes |
//! | `transport` | the streams and their output |
//! | `credit` | the receive window, and its share of the worker's budget |
//! | `timeouts` | deadlines |
//!
//! Absent by design: requests before the end of the handshake (0-RTT), server push, and datagrams.

pub(crate) mod announce;
mod credit;
pub(crate) mod listen;
mod receiving;
pub mod relay;
pub(crate) mod settings;
mod task;
mod timeouts;
mod transport;

pub use settings::{QuicIdentity, QuicParts};
