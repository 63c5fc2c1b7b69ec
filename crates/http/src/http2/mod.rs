//! What this project must know of HTTP/2 itself (RFC 9113): where frames begin, and when there are too many of one
//! kind. Everything else of the protocol is the h2 crate's, in `flatout-net`.
//!
//! | file | what it knows |
//! |---|---|
//! | [`frame`] | where frames begin, however the bytes were cut |
//! | [`flood`] | how many frames of a kind are too many |
//!
//! Absent by design: header compression, streams, flow control.

pub mod flood;
pub mod frame;
