//! Connections to application servers that speak FastCGI: made, kept, waited for.
//!
//! | file | what it knows |
//! |---|---|
//! | [`address`] | where application servers are |
//! | [`client`] | one worker's connections to one of them |
//! | [`connection`] | bytes both ways, and when patience with them ends |
//! | [`crowd`] | when keeping connections does harm |
//!
//! Absent by design: records and what is in them (`flatout_fastcgi` has them). A connection carries one request at a
//! time.

pub mod address;
pub mod client;
pub mod connection;
pub mod crowd;

pub use address::FastcgiAddress;
pub use client::{ConnectFailure, FastcgiClient, FastcgiSettings};
pub use connection::Connection;
pub use crowd::Crowd;

#[cfg(test)]
mod tests;
