//! Connections to upstream servers: pools, timeouts and failures. Each worker has its own connections.
//!
//! | file | content |
//! |---|---|
//! | [`origin`] | origins, over HTTP/1.1 or HTTP/2 |
//! | [`upload`] | sending a request while its content arrives |
//! | [`spool`] | buffering content so that slow clients occupy no server |
//! | [`permit`] | waiting for a permit to send a request |
//! | [`failing`], [`events`] | series of failed requests; events that are reported to operators |
//! | [`fastcgi`] | FastCGI application servers |
//!
//! By design, this crate does not select servers, decide on retries other than those of stale connections, or process
//! responses.

pub mod events;
pub mod failing;
pub mod fastcgi;
pub mod origin;
pub mod permit;
pub mod spool;
pub mod upload;
