//! HTTP on sockets: the parts that servers and clients share.
//!
//! | file | content |
//! |---|---|
//! | [`tls`] | certificates by name for servers, verification for clients, named failures |
//! | [`transport`] | a socket or a TLS session as a stream |
//! | [`http2`] | HTTP/2 connections of clients |
//! | [`windows`] | flow-control windows that follow the bandwidth-delay product |
//! | [`task_deadlines`] | deadlines of tasks |
//!
//! Absent by design: who connects and why; see `flatout_server`, `flatout_upstream` and `flatout_client`.

pub mod http2;
pub mod task_deadlines;
pub mod tls;
pub mod transport;
pub mod windows;
