//! HTTP/2 (RFC 9113) for both roles, without I/O.
//!
//! | file | contents |
//! |---|---|
//! | [`frame`] | frames, error codes, settings |
//! | [`hpack`] | field compression |
//! | [`fields`] | decoded field sections, validated |
//! | [`connection`] | one side of a connection: streams, windows, settings |
//! | [`flood`] | limits per kind of frame |
//! | [`priority`] | priorities of responses |
//! | [`window`] | window sizes by bandwidth and delay |
//!
//! Absent by design: server push, the priority tree of RFC 7540, and upgrades from HTTP/1.1.

pub mod connection;
pub mod fields;
pub mod flood;
pub mod frame;
pub mod hpack;
pub mod priority;
mod stream;
pub mod window;
