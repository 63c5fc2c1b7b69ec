//! The request as a cache sees it.

use crate::directive::RequestDirectives;
use flatout_http::head::Fields;

/// What of a request matters to a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheRequest<'a> {
    /// The method, as received: case matters (RFC 9110 §9.1).
    pub method: &'a str,
    /// Whether the client speaks https.
    pub secure: bool,
    /// The host and perhaps port that the client asked, checked by `flatout_http::host`.
    pub authority: &'a [u8],
    /// The path as received; begins with `/`.
    pub path: &'a [u8],
    /// What follows the `?`, when there is one.
    pub query: Option<&'a [u8]>,
    /// All field lines.
    pub fields: Fields<'a>,
    /// Whether content comes with it.
    pub has_content: bool,
}

impl<'a> CacheRequest<'a> {
    /// Whether no field of the request can change what a fresh stored answer is answered with: then
    /// [`Stored::is_fresh_for_plain_request`](crate::stored::Stored::is_fresh_for_plain_request) decides alone. One
    /// pass over the fields; the method is not looked at.
    pub fn is_plain(&self) -> bool {
        unimplemented!()
    }

    /// The request's Cache-Control, or Pragma in its absence (RFC 9111 §5.4).
    pub fn directives(&self) -> RequestDirectives {
        unimplemented!()
    }

    /// Whether it is GET or HEAD, which a stored answer to GET may answer.
    pub fn is_get_or_head(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }

    /// The value of the first line called `name`.
    pub fn field(&self, name: &'a str) -> Option<&'a [u8]> {
        self.fields.first(name)
    }
}
