//! The requests of a run, prepared in advance and shared by all workers.

use std::sync::{Arc, OnceLock};

/// Bytes of a body's SHA-256 digest.
pub const DIGEST_BYTES: usize = 32;

/// One request in each form in which it may be sent.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    /// HTTP/1 head and content, for a persistent connection.
    pub kept: Arc<[u8]>,
    /// The same as the last request of its connection; may be the same bytes.
    pub last: Arc<[u8]>,
    /// True for a HEAD request, whose response has no body.
    pub is_head: bool,
    /// Head and content for HTTP/2, if used.
    pub http2: Option<Http2Request>,
    /// Expected length of the body of a 200, if known.
    pub body_bytes: Option<u64>,
    /// SHA-256 of that body: configured, or that of the first digested response.
    pub digest: OnceLock<[u8; DIGEST_BYTES]>,
}

/// A request in HTTP/2 form.
#[derive(Clone, Debug)]
pub struct Http2Request {
    /// Method, scheme, authority, path and fields, as a field block that every connection understands.
    pub block: Arc<[u8]>,
    /// Content; empty for none.
    pub content: Arc<[u8]>,
}

impl PreparedRequest {
    /// An HTTP/1 request that is the same at every position of its connection, without expectations of the body.
    pub fn plain(bytes: impl Into<Arc<[u8]>>) -> Self {
        let kept = bytes.into();
        Self { last: Arc::clone(&kept), kept, is_head: false, http2: None, body_bytes: None, digest: OnceLock::new() }
    }

    /// The bytes for HTTP/1.
    pub(super) fn bytes(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.kept }
    }
}
