//! What this project must know of HTTP/2 itself (RFC 9113): where frames begin, when there are too many of one kind,
//! and how large windows must be. Everything else of the protocol is the h2 crate's, in `flatout-net`.
//!
//! | file | what it knows |
//! |---|---|
//! | [`frame`] | where frames begin, however the bytes were cut |
//! | [`flood`] | how many frames of a kind are too many |
//! | [`resizes`] | how many changes of the table's size a field block may begin with |
//! | [`window`] | how large windows must be for the bandwidth and the delay of a connection |
//!
//! Absent by design: header compression, streams, who may send how much.

pub mod flood;
pub mod frame;
pub mod resizes;
pub mod window;
