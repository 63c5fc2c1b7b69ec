//! Changes to requests and responses in transit (RFC 9110 §7.6).
//!
//! One pass over the fields, in order; the only allocation is the caller's buffer.
//!
//! | request field | treatment |
//! |---|---|
//! | Host | the client's, the origin's or a fixed one; an absolute-form's authority counts before Host |
//! | Connection and the fields it names | removed; see below |
//! | Keep-Alive, Proxy-…, Upgrade, HTTP2-Settings, Expect | removed; `Proxy` alone (httpoxy) as well |
//! | Content-Length, Transfer-Encoding | removed: the upstream connection has its own framing |
//! | TE | `TE: trailers` if the client accepts trailers, otherwise removed |
//! | Via | unchanged, plus one line; this proxy's name twice before means a loop |
//! | Forwarded, X-Forwarded-For, -Proto, -Host | replaced, or extended if the client is trusted |
//! | other X-Forwarded-…, X-Real-IP and similar | removed, unless the client is trusted ([`names`]) |
//! | X-Original-URL, X-HTTP-Method-Override and similar | the same: no cache key contains them |
//! | a name with `_` that would be one of these with `-` | removed: CGI cannot distinguish them |
//! | Max-Forwards of OPTIONS and TRACE | decremented; at 0 the proxy responds itself |
//! | several Cookie lines of HTTP/2 | joined (RFC 9113 §8.2.3) |
//!
//! **Connection cannot remove essential fields.** RFC 9110 §7.6.1 requires removal of all fields that Connection
//! names, and forbids senders to name fields meant for all recipients. A client that does so anyway wants to hide
//! Cookie, Authorization, Host, X-Forwarded-For or the like from an origin, after a cache and other intermediaries
//! have seen them ("hop-by-hop abuse"). The proxy ignores such names: those fields stay ([`names::FieldClass`]). It does not
//! refuse the request, as a hit and a miss would then treat it differently. Likewise an origin cannot remove its own
//! Cache-Control or Set-Cookie.

pub mod names;
mod operations;
mod request;
mod response;
pub mod retry;
mod sent;
pub mod upgrade;

pub use request::{Passage, Strip, write_host_lines, write_request_lines};
pub use response::{Return, write_interim_lines, write_response_lines, write_trailer_lines};
pub use sent::{SentFields, unkeyed_fields};

use flatout_http::head::Fields;
use flatout_http::token::trim;

/// Methods that a proxy forwards, as listed in Allow. Others are forwarded as well if the origin knows them.
pub const ALLOW_FORWARDED: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Appends one line.
#[inline]
fn write_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + b": \r\n".len());
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Elements of a comma-separated list without quotes, over all its lines.
fn elements<'a>(fields: Fields<'a>, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    fields.all(name).flat_map(|value| value.split(|&byte| byte == b',')).map(trim).filter(|element| !element.is_empty())
}

/// Names in the Connection fields of a message, parsed only if there are any to match.
#[derive(Clone, Copy, Debug)]
struct ConnectionNames<'a> {
    fields: Fields<'a>,
    names_any: bool,
}

impl<'a> ConnectionNames<'a> {
    fn new(fields: Fields<'a>) -> Self {
        // Usual values of Connection, which name only fields that are removed anyway.
        const USUAL: [&[u8]; 5] = [b"keep-alive", b"close", b"upgrade", b"te", b"http2-settings"];
        let usual = |option: &[u8]| USUAL.iter().any(|usual| usual.eq_ignore_ascii_case(option));
        Self { fields, names_any: elements(fields, "connection").any(|option| !usual(option)) }
    }

    fn names(&self, name: &str) -> bool {
        self.names_any && elements(self.fields, "connection").any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
