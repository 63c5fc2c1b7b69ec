//! The client role towards origin servers, with one connection pool per worker.
//!
//! A forwarded request is: send, wait, receive; with small messages one call each. The head of a response and the
//! part of its content that arrived with it are copied out of the worker's input buffer once, together. Longer
//! content streams in both directions at once, as an origin may respond before it has read everything.
//!
//! | file | content |
//! |---|---|
//! | [`settings`], [`tls`] | timeouts and bounds, certificate verification |
//! | [`request`], [`response`], [`body`] | upstream requests and their responses |
//! | [`failure`], [`counts`] | failures by name; counters |
//! | `client` | a complete exchange, and its retries |
//! | `resolve`, `connect`, `transport` | from a name to a connection |
//! | `pool` | idle connections |
//! | `http1`, `upload`, `streaming` | the exchange over HTTP/1.1 |
//! | `http2` | the exchange over HTTP/2 |
//!
//! Absent by design: the choice of an origin, retry policy, and the use of the response.

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
mod upload;

pub use body::{IncomingBody, IncomingPiece};
pub use client::{KeptAnswer, KeptExchange, OriginClient};
pub use counts::OriginCounts;
pub use failure::{ExchangeFailure, OriginFailure, Repeat};
pub use http1::WholeAnswer;
pub use request::{OutgoingContent, OutgoingRequest};
pub use response::Incoming;
pub use settings::OriginSettings;
pub use tls::{OriginTls, OriginTlsSettings};

#[cfg(test)]
mod tests;
