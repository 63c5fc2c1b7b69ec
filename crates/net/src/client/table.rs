//! The requests a run may send, made ready beforehand and shared by all workers.

use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// Bytes of a body's digest, SHA-256.
pub const DIGEST_BYTES: usize = 32;

/// One request, ready to be sent in every way that it may have to be.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    /// Head and any content for HTTP/1, where the connection is used again.
    pub kept: Arc<[u8]>,
    /// The same as the last request of its connection; it may be the very same bytes.
    pub last: Arc<[u8]>,
    /// Whether it is a HEAD request, whose answer has no body.
    pub is_head: bool,
    /// Head and content for HTTP/2, where that is spoken.
    pub http2: Option<Http2Request>,
    /// Length of the body that a 200 must have, where known.
    pub body_bytes: Option<u64>,
    /// SHA-256 of that body: given, or that of the first answer looked at.
    pub digest: OnceLock<[u8; DIGEST_BYTES]>,
}

/// A request as HTTP/2 has it.
#[derive(Clone, Debug)]
pub struct Http2Request {
    /// Method, scheme, authority, path and fields.
    pub head: http::Request<()>,
    /// Content; empty for none.
    pub content: Bytes,
}

impl PreparedRequest {
    /// A request of HTTP/1, the same wherever it stands on its connection, of whose body nothing is known.
    pub fn plain(bytes: impl Into<Arc<[u8]>>) -> Self {
        let kept = bytes.into();
        Self { last: Arc::clone(&kept), kept, is_head: false, http2: None, body_bytes: None, digest: OnceLock::new() }
    }

    /// The bytes for HTTP/1.
    pub(super) fn bytes(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.kept }
    }
}
