//! The requests of a run, prepared in advance and shared by all workers.

use super::cookies::ScopeRanges;
use super::template::RequestTemplate;
use flatout_http::request::is_idempotent;
use memchr::memmem::find;
use std::sync::{Arc, OnceLock};

/// Length of a SHA-256 digest, in bytes.
pub const DIGEST_BYTES: usize = 32;

/// One request, in each form in which it may be sent.
#[derive(Clone, Debug)]
pub struct PreparedRequest {
    /// HTTP/1 head and content of a request after which the connection persists.
    pub kept: Arc<[u8]>,
    /// HTTP/1 head and content of a request that is the last on its connection. May be the same bytes as `kept`.
    pub last: Arc<[u8]>,
    /// True for a HEAD request, whose response has no body.
    pub is_head: bool,
    /// True if the method is idempotent, so that the request may be sent again (RFC 9110 §9.2.2).
    pub is_idempotent: bool,
    /// Head and content for HTTP/2 or HTTP/3, if such a version is used.
    pub streamed: Option<StreamRequest>,
    /// Expected length of the body of a response with status 200, in bytes, if known.
    pub body_bytes: Option<u64>,
    /// SHA-256 of that body: either configured, or that of the first response whose digest is computed.
    pub digest: OnceLock<[u8; DIGEST_BYTES]>,
    /// The request with placeholders, if it has any. It is then sent instead of `kept`, `last` and the block of
    /// `streamed`, and also instead of the content of `streamed` if the content has placeholders.
    pub template: Option<Box<RequestTemplate>>,
    /// The host and the path in `kept`, by which cookies are chosen.
    pub scope: ScopeRanges,
    /// Lengths of the heads in `kept` and in `last` without the empty line, in bytes.
    pub fields_ends: [usize; 2],
}

/// A request in the form of HTTP/2 or HTTP/3.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    /// Method, scheme, authority, path and fields as a field block in the compression of the version, which is valid on
    /// every connection.
    pub block: Arc<[u8]>,
    /// Content of the request; empty if it has none.
    pub content: Arc<[u8]>,
}

impl PreparedRequest {
    /// Creates an HTTP/1 request that is the same at every position of its connection, without an expected body.
    pub fn plain(bytes: impl Into<Arc<[u8]>>) -> Self {
        let kept = bytes.into();
        Self::new(Arc::clone(&kept), kept)
    }

    /// Creates an HTTP/1 request with other bytes if it is the last on its connection, without an expected body.
    pub fn new(kept: impl Into<Arc<[u8]>>, last: impl Into<Arc<[u8]>>) -> Self {
        let (kept, last) = (kept.into(), last.into());
        let method = kept.split(|byte| *byte == b' ').next().unwrap_or_default();
        let is_idempotent = std::str::from_utf8(method).is_ok_and(is_idempotent);
        let fields_end = |bytes: &[u8]| find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + b"\r\n".len());
        Self {
            scope: ScopeRanges::of(&kept),
            fields_ends: [fields_end(&kept), fields_end(&last)],
            kept,
            last,
            is_head: false,
            is_idempotent,
            streamed: None,
            body_bytes: None,
            digest: OnceLock::new(),
            template: None,
        }
    }

    /// Returns the bytes for HTTP/1, unless the request has a template.
    pub(super) fn bytes(&self, is_last: bool) -> &[u8] {
        if is_last { &self.last } else { &self.kept }
    }

    /// Returns the length of the head in [`Self::bytes`] without the empty line, in bytes.
    pub(super) const fn fields_end(&self, is_last: bool) -> usize {
        self.fields_ends[is_last as usize]
    }
}
