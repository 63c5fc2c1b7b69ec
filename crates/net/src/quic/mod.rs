//! QUIC on sockets: the state machines of `quinn_proto`, driven by the worker's runtime. Shared by servers and clients.
//!
//! | file | contents |
//! |---|---|
//! | [`endpoint`] | a UDP socket and its connections: receiving, routing, timers |
//! | [`connection`] | one connection: its events and datagrams |
//! | [`socket`] | the UDP socket: batches of datagrams, segmentation offload, ECN |
//! | `timers` | precise timers of the connections of an endpoint |
//! | [`ids`], [`steering`] | connection IDs that contain their owner; the kernel program that reads the owner |
//! | [`settings`] | transport settings, and TLS for HTTP/3 |
//!
//! Absent by design: HTTP/3, and the owners of connections, whose tasks drive them.

pub mod connection;
pub mod endpoint;
mod handshake;
pub mod ids;
pub mod settings;
pub mod socket;
pub mod steering;
mod timers;

pub use connection::QuicConnection;
pub use endpoint::{Datagram, QuicEndpoint};
