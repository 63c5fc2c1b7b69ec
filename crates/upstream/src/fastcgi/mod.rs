//! Connections to FastCGI application servers: connecting, pooling, timeouts.
//!
//! | file | content |
//! |---|---|
//! | [`address`] | addresses of application servers |
//! | [`client`] | one worker's connections to one of them |
//! | [`connection`] | bytes in both directions, and timeouts |
//! | [`saturation`] | detection of saturated servers |
//!
//! Absent by design: records and their content (see `flatout_fastcgi`). A connection carries one request at a time.

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
