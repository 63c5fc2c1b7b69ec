//! HTTP/2 support (RFC 9113) besides the h2 crate in `flatout-net`: frame boundaries, flood protection and window
//! sizes.
//!
//! | file | contents |
//! |---|---|
//! | [`frame`] | frame boundaries in any split of the input |
//! | [`flood`] | limits per kind of frame |
//! | [`resizes`] | limit on changes of the dynamic table size per field block |
//! | [`window`] | window sizes by bandwidth and delay |
//!
//! Absent by design: header compression, streams, flow control.

pub mod flood;
pub mod frame;
pub mod hpack;
pub mod resizes;
pub mod window;
