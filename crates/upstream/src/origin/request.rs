//! Requests to an origin.

use flatout_handler::content::RequestContent;
use flatout_handler::shared::SharedBytes;

/// A request to an origin.
#[derive(Debug)]
pub struct OutgoingRequest<'a> {
    /// The method, a token. CONNECT is not supported.
    pub method: &'a str,
    /// The request target in wire form: a path with its query, or `*`.
    pub target: &'a [u8],
    /// Field lines, each `Name: value` and CR LF, including Host. No framing fields (Content-Length,
    /// Transfer-Encoding), no connection-specific ones (Connection, Keep-Alive, Upgrade, TE other than `trailers`),
    /// and no Expect: those needed are added here.
    pub lines: &'a [u8],
    /// The content. Streamed content is taken from here when sending starts.
    pub content: OutgoingContent,
    /// The Upgrade field's value, to request another protocol. HTTP/1.1 only: such a request is never sent over
    /// HTTP/2.
    pub upgrade: Option<&'a [u8]>,
}

/// The content of a request.
#[derive(Debug, Default)]
pub enum OutgoingContent {
    /// No content, and no field that declares it.
    #[default]
    None,
    /// Content in memory. Empty content is framed as `Content-Length: 0`.
    Bytes(SharedBytes),
    /// Content streamed from the client. Framed by its length if known, else in chunks.
    Content(RequestContent),
    /// Content that was streamed; a part of it may have been sent.
    Taken,
}

impl OutgoingContent {
    /// Returns whether it was taken, so that the request cannot be sent again.
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken)
    }
}

impl OutgoingRequest<'_> {
    /// Returns whether the method is idempotent (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        is_idempotent(self.method)
    }
}

/// Returns whether repeating a request with `method` has the effect of sending it once (RFC 9110 §9.2.2, and the safe
/// methods of WebDAV).
pub fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "PROPFIND" | "SEARCH" | "REPORT" | "QUERY"
    )
}

#[cfg(test)]
mod tests {
    use super::is_idempotent;

    #[test]
    fn methods_are_case_sensitive() {
        assert!(is_idempotent("GET") && is_idempotent("DELETE"));
        assert!(!is_idempotent("POST") && !is_idempotent("PATCH") && !is_idempotent("get"));
    }
}
