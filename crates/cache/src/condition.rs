//! The client's own conditions and ranges, decided on what is stored (RFC 9111 §4.3.2, RFC 9110 §13, §14).

use crate::request::CacheRequest;
use crate::stored::Stored;
use flatout_http::ranges::{Part, Parts};

/// What of a stored answer the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack for one decision
pub enum Answer {
    /// All of it, with its own status.
    Whole,
    /// 304 with its fields, without content.
    NotModified,
    /// One part: 206 with Content-Range.
    Part(Part),
    /// Several parts: 206 as multipart/byteranges.
    Parts(Parts),
    /// 416 with `Content-Range: bytes */total`.
    Unsatisfiable,
    /// What is asked for is not held: forward the request, Range included.
    NotHeld,
}

/// Decides what of `stored` the client gets. `content_bytes`: bytes of the whole representation: the stored content's
/// length, or the total of a stored part, when that is known.
pub fn decide_conditions(
    request: &CacheRequest<'_>,
    stored: &Stored,
    content_bytes: Option<u64>,
    now_s: i64,
) -> Answer {
    let _ = (request, stored, content_bytes, now_s);
    unimplemented!()
}
