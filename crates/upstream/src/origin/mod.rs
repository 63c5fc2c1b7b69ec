//! HTTP client for origin servers, with a connection pool per worker.
//!
//! An exchange with small messages needs one send, one wait and one receive. The head of a response and the content
//! that arrived with it are copied from the receive buffer together, in one copy. Longer content is streamed in both
//! directions at the same time, since an origin may respond before it has read the whole request.
//!
//! | file | content |
//! |---|---|
//! | [`settings`], [`tls`] | timeouts and limits, certificate verification |
//! | [`request`], [`response`], [`body`] | upstream requests and their responses |
//! | [`failure`], [`counts`] | failures by name; counters |
//! | `client` | a complete exchange, and its retry on a new connection |
//! | `resolve`, `connect`, `transport` | from a name to a connection |
//! | `pool` | idle connections |
//! | `content` | the content of a request, as it is sent |
//! | `http1`, `upload`, `streaming` | the exchange over HTTP/1.1 |
//! | `http2` | the exchange over HTTP/2 |
//!
//! By design, this module does not select origins, decide on retries other than those of stale connections, or process
//! responses.

pub mod body;
mod client;
mod connect;
mod content;
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
