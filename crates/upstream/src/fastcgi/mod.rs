//! Connections to FastCGI application servers: connecting, pooling, timeouts.
//!
//! | file | content |
//! |---|---|
//! | [`address`] | addresses of application servers |
//! | [`client`] | connections of a worker to an application server |
//! | [`connection`] | bytes in both directions, and timeouts |
//! | [`saturation`] | detection of saturated servers |
//!
//! FastCGI records and their content are handled elsewhere (see `flatout_fastcgi`). A connection carries one request at
//! a time.

pub mod address;
pub mod client;
pub mod connection;
pub mod saturation;

pub use address::FastcgiAddress;
pub use client::{ConnectFailure, FastcgiClient, FastcgiSettings};
pub use connection::FastcgiConnection;
pub use saturation::ServerSaturation;

#[cfg(test)]
mod tests;
