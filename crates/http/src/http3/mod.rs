//! HTTP/3 (RFC 9114) for both roles, without I/O: QUIC delivers and sends the bytes of streams.
//!
//! | file | contents |
//! |---|---|
//! | [`frame`] | variable-length integers, frames, stream types, settings |
//! | [`error`] | error codes, and the rules whose violation closes a connection |
//! | [`qpack`] | field compression |
//! | [`connection`] | one side of a connection: streams, settings |
//! | `stream` | request streams |
//! | `flood` | flood protection: limits per kind of frame |
//!
//! Decoded field sections and priorities are shared with [`http2`](super::http2). Absent by design: QUIC and its flow
//! control, server push, datagrams, and a dynamic table for what this side sends.

pub mod connection;
pub mod error;
mod flood;
pub mod frame;
pub mod qpack;
mod stream;
