//! What is asked of an origin.

use crate::content::Content;
use crate::shared::SharedBytes;

/// A request on its way to an origin.
#[derive(Debug)]
pub struct OutgoingRequest<'a> {
    /// The method, a token. CONNECT is not for origins.
    pub method: &'a str,
    /// The request target as it goes over the wire: a path with its query, or `*`.
    pub target: &'a [u8],
    /// Field lines, each `Name: value` and CR LF, a Host line among them. Nothing of the framing (Content-Length,
    /// Transfer-Encoding), nothing of the connection (Connection, Keep-Alive, Upgrade, TE but `trailers`), and no
    /// Expect: what is needed of those is added here.
    pub lines: &'a [u8],
    /// The content. What streams is taken from here when it begins to be sent.
    pub content: OutgoingContent,
    /// The Upgrade field's value, to ask for another protocol. Over HTTP/1.1 only: such a request never goes over
    /// HTTP/2.
    pub upgrade: Option<&'a [u8]>,
}

/// The content of a request.
#[derive(Debug, Default)]
pub enum OutgoingContent {
    /// There is none, and no field says so.
    #[default]
    None,
    /// It is at hand. Empty content is framed as `Content-Length: 0`.
    Bytes(SharedBytes),
    /// It comes from the client as it is sent. Framed by its length where that is known, else in chunks.
    Content(Content),
    /// It came from the client, and some of it may have been sent.
    Taken,
}

impl OutgoingContent {
    /// Whether it was taken, so that the request cannot be sent again.
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken)
    }
}

impl OutgoingRequest<'_> {
    /// Whether the method is idempotent (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        is_idempotent(self.method)
    }
}

/// Whether a request with `method` may be sent twice with the effect of once (RFC 9110 §9.2.2, and the safe methods of
/// WebDAV).
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
