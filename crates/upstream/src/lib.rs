//! Connections to upstream servers: pools, timeouts, failures. Each worker has its own.
//!
//! | file | content |
//! |---|---|
//! | [`origin`] | origins, by HTTP/1.1 or HTTP/2 |
//! | [`permit`] | waiting for a permit to send a request |
//! | [`fastcgi`] | FastCGI application servers |
//!
//! Absent by design: the choice of a server, retry policy, and the use of the response.

pub mod fastcgi;
pub mod origin;
pub mod permit;
