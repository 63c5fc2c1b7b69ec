//! This process as a client of origin servers: one pool of connections for each worker.
//!
//! The life of a forwarded request is: send, wait, receive; with small messages one call each. The head of an answer
//! and what of its content came with it are copied out of the worker's input buffer once, together. Longer content
//! streams, in both directions at once, for an origin may answer before it has read everything.
//!
//! | file | what it knows |
//! |---|---|
//! | [`address`], [`settings`], [`tls`] | where origins are, how patient we are, whom we believe |
//! | [`request`], [`response`], [`body`] | what is asked, and what is answered |
//! | [`failure`], [`counts`] | every way it can fail, by name; how often |
//! | `client` | an exchange from beginning to end, and when it is tried again |
//! | `resolve`, `connect`, `transport` | from a name to a connection |
//! | `pool` | connections without use |
//! | `waits` | when patience ends, without tokio's timers |
//! | `http1`, `upload`, `streaming` | the exchange over HTTP/1.1 |
//! | `http2` | the same over HTTP/2 |
//!
//! Absent by design: which origin is asked, how often, and what is done with the answer.

pub mod address;
pub mod body;
mod client;
mod connect;
pub mod counts;
pub mod failure;
mod http1;
mod http2;
mod pool;
pub mod request;
mod resolve;
pub mod response;
pub mod settings;
mod streaming;
pub mod tls;
pub(crate) mod transport;
mod upload;
pub(crate) mod waits;

pub use address::OriginAddress;
pub use body::{IncomingBody, IncomingPiece};
pub use client::{KeptAnswer, KeptExchange, OriginClient};
pub use counts::OriginCounts;
pub use failure::{ExchangeFailure, OriginFailure, Repeat};
pub use http1::WholeAnswer;
pub use request::{OutgoingContent, OutgoingRequest};
pub use response::Incoming;
pub use settings::OriginSettings;
pub use tls::{OriginTls, OriginTlsError, OriginTlsSettings};

#[cfg(test)]
mod tests;
