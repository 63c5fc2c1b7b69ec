//! The request as a cache sees it.

use crate::directive::{RequestDirectives, parse_request_directives};
use flatout_http::head::Fields;
use std::fmt;

/// What the value that the origin gets for a field depends on, besides the lines of that name that the client sent and the
/// cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// Nothing else.
    Client,
    /// On whether the client is a trusted proxy: it is, or it is not.
    Trust(bool),
    /// On something of this request that no key holds, such as the client's address.
    Request,
}

/// How the fields of a request are forwarded.
pub trait Forwarding: fmt::Debug {
    /// Where the value of the field `name`, in lower case, comes from.
    fn source(&self, name: &str) -> FieldSource;
}

/// Every field is forwarded as received.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsReceived;

impl Forwarding for AsReceived {
    fn source(&self, _: &str) -> FieldSource {
        FieldSource::Client
    }
}

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
    /// How its fields are forwarded to the origin, which Vary speaks of.
    pub forwarding: &'a dyn Forwarding,
}

impl<'a> CacheRequest<'a> {
    /// Whether no field of the request can change what a fresh stored answer is answered with: then
    /// [`Stored::is_fresh_for_plain_request`](crate::stored::Stored::is_fresh_for_plain_request) decides alone. One
    /// pass over the fields; the method is not looked at.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.has_content && self.fields.iter().all(|(name, _)| !matters(name))
    }

    /// The request's Cache-Control, or Pragma in its absence (RFC 9111 §5.4).
    pub fn directives(&self) -> RequestDirectives {
        parse_request_directives(&self.fields)
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

/// Whether a request field called `name` can change what a fresh stored answer is answered with. The length leaves few
/// names to compare with.
#[inline]
fn matters(name: &str) -> bool {
    let is = |other| name.eq_ignore_ascii_case(other);
    match name.len() {
        5 => is("range"),
        6 => is("pragma") || is("expect"),
        7 => is("upgrade"),
        8 => is("if-match") || is("if-range"),
        13 => is("cache-control") || is("authorization") || is("if-none-match") || is("x-http-method"),
        17 => is("if-modified-since") || is("x-method-override"),
        22 => is("x-http-method-override"),
        19 => is("if-unmodified-since"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::CacheRequest;
    use crate::lines::with_fields;

    #[test]
    fn plain_requests_have_no_field_that_matters() {
        let plain = |lines: &str, has_content| {
            with_fields(lines.as_bytes(), |fields| {
                let request = CacheRequest {
                    method: "GET",
                    secure: false,
                    authority: b"a",
                    path: b"/",
                    query: None,
                    fields: *fields,
                    has_content,
                    forwarding: &crate::request::AsReceived,
                };
                request.is_plain()
            })
            .unwrap()
        };
        assert!(plain("Host: a\r\nUser-Agent: x\r\nAccept: */*\r\nCookie: a=b\r\nConnection: keep-alive\r\n", false));
        assert!(plain("", false) && !plain("", true));
        for name in [
            "Cache-Control",
            "pragma",
            "RANGE",
            "If-Match",
            "If-None-Match",
            "If-Modified-Since",
            "If-Unmodified-Since",
            "If-Range",
            "Authorization",
            "Upgrade",
            "Expect",
            "X-HTTP-Method-Override",
        ] {
            assert!(!plain(&format!("Host: a\r\n{name}: x\r\n"), false), "{name}");
        }
    }
}
