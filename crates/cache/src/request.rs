//! The parts of a request that matter to a cache.

use crate::directive::{RequestDirectives, parse_request_directives};
use flatout_http::head::Fields;
use std::fmt;

/// Input that determines the value of a forwarded field, besides the client's lines of that name and the cache key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// The value depends on no other input.
    Client,
    /// The client is (`true`) or is not (`false`) a trusted proxy.
    Trust(bool),
    /// Request data that is not part of any key, such as the client's address.
    Request,
}

/// Describes how request fields are forwarded to the origin.
pub trait Forwarding: fmt::Debug {
    /// Returns the source of the forwarded value of the field `name`, which is in lower case.
    fn source(&self, name: &str) -> FieldSource;

    /// Returns whether the origin may receive a scheme, host or path prefix from a trusted proxy, on which its response
    /// may depend without Vary.
    fn has_trusted(&self) -> bool {
        false
    }

    /// Returns whether the configuration removes or replaces the field `name`, so that the origin does not receive the
    /// client's value.
    fn removes(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// Returns whether the origin receives the field `name`, and may respond for the target that it names instead of the
    /// request's target.
    fn overrides_target(&self, name: &str) -> bool {
        let _ = name;
        false
    }
}

/// Forwards every field as received.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsReceived;

impl Forwarding for AsReceived {
    fn source(&self, _: &str) -> FieldSource {
        FieldSource::Client
    }
}

/// Request data relevant to a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheRequest<'a> {
    /// The method, as received; case-sensitive (RFC 9110 §9.1).
    pub method: &'a str,
    /// True if the client uses https.
    pub secure: bool,
    /// The requested host and optional port, validated by `flatout_http::host`.
    pub authority: &'a [u8],
    /// The path as received, beginning with `/`.
    pub path: &'a [u8],
    /// The query, without `?`, if present.
    pub query: Option<&'a [u8]>,
    /// All field lines.
    pub fields: Fields<'a>,
    /// True if the request has content.
    pub has_content: bool,
    /// How fields are forwarded to the origin, for Vary.
    pub forwarding: &'a dyn Forwarding,
}

impl<'a> CacheRequest<'a> {
    /// Returns whether the request has no content and no field that can affect the use of a fresh stored response. For
    /// such a request, [`Stored::is_fresh_for_plain_request`](crate::stored::Stored::is_fresh_for_plain_request) is
    /// sufficient. The method is not considered.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.has_content && self.fields.iter().all(|(name, _)| !matters(name))
    }

    /// Parses Cache-Control, or Pragma in its absence (RFC 9111 §5.4).
    pub fn directives(&self) -> RequestDirectives {
        parse_request_directives(&self.fields)
    }

    /// Returns whether the method is GET or HEAD, to which a stored response to GET may be sent.
    pub fn is_get_or_head(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }

    /// Returns the value of the first field line called `name`.
    pub fn field(&self, name: &'a str) -> Option<&'a [u8]> {
        self.fields.first(name)
    }
}

/// Returns whether a request field called `name` can affect the use of a fresh stored response. Matching on the length
/// first leaves few names to compare.
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
