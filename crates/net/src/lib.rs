//! HTTP on sockets: the parts shared by servers and clients.
//!
//! | file | content |
//! |---|---|
//! | [`tls`] | certificates by name for servers, verification for clients, named failures |
//! | [`transport`] | a socket or a TLS session as a stream |
//! | [`http2`] | HTTP/2 connections of clients |
//! | [`windows`] | flow-control windows that follow the bandwidth-delay product |
//! | [`quic`] | QUIC connections on UDP sockets, in both roles |
//! | [`deadlines`], [`task_deadlines`] | the table of deadlines; deadlines of tasks |
//! | [`waker`] | the waker of a single waiting task |
//!
//! Absent by design: who connects and why. See `flatout_server`, `flatout_upstream` and `flatout_client`.

pub mod deadlines;
pub mod http2;
pub mod quic;
pub mod task_deadlines;
pub mod tls;
pub mod transport;
pub mod waker;
pub mod windows;
