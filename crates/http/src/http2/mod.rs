//! HTTP/2 (RFC 9113) for both roles, without I/O.
//!
//! | file | contents |
//! |---|---|
//! | [`error`] | rules whose violation closes a connection or resets a stream |
//! | [`frame`] | frames, error codes, settings |
//! | [`hpack`] | field compression |
//! | [`fields`] | decoded and validated field sections |
//! | [`connection`] | one side of a connection: streams, windows, settings |
//! | [`flood`] | flood protection: limits per kind of frame |
//! | [`priority`] | priorities of responses |
//! | [`window`] | window sizes derived from bandwidth and delay |
//!
//! Absent by design: server push, the priority tree of RFC 7540, and upgrades from HTTP/1.1.

pub mod connection;
pub mod error;
pub mod fields;
pub mod flood;
pub mod frame;
pub mod hpack;
pub mod priority;
mod stream;
pub mod window;
