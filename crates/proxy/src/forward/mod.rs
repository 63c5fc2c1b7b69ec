//! What is changed of a request on its way to an origin, and of an answer on its way back (RFC 9110 §7.6).
//!
//! One pass over the fields, in their order; nothing is allocated but what the caller's buffer needs.
//!
//! | of a request | becomes |
//! |---|---|
//! | Host | the client's, the origin's or a fixed one; an absolute-form's authority counts before Host |
//! | Connection and what it names | left behind; see below |
//! | Keep-Alive, Proxy-…, Upgrade, HTTP2-Settings, Expect | left behind; `Proxy` alone (httpoxy) as well |
//! | Content-Length, Transfer-Encoding | left behind: the connection to the origin has its own framing |
//! | TE | `TE: trailers` when the client takes trailers, else left behind |
//! | Via | as it came, and one more line; our name twice before means a loop |
//! | Forwarded, X-Forwarded-For, -Proto, -Host | replaced, or extended when the client is trusted |
//! | other X-Forwarded-…, X-Real-IP and their kind | left behind, unless the client is trusted ([`names`]) |
//! | X-Original-URL, X-HTTP-Method-Override and their kind | the same: no cache key has them |
//! | a name with `_` that would be one of these with `-` | left behind: CGI and its heirs cannot tell them apart |
//! | Max-Forwards of OPTIONS and TRACE | one less; at 0 the request ends here |
//! | several Cookie lines of HTTP/2 | one (RFC 9113 §8.2.3) |
//!
//! **Connection may not name what matters.** RFC 9110 §7.6.1 has every field removed that Connection names, and says
//! that a sender must not name fields that are meant for all recipients. Clients that do so anyway want an origin not
//! to see Cookie, Authorization, Host, X-Forwarded-For or the like, while a cache and others before it have seen them
//! ("hop-by-hop abuse"). Such naming is void: those fields stay ([`names::Kind`]). It is not refused, for
//! then a hit and a miss would treat the same request differently. Likewise an origin cannot have its own Cache-Control
//! or Set-Cookie dropped.

pub mod names;
mod operations;
mod request;
mod response;
pub mod retry;
mod sent;
pub mod upgrade;

pub use request::{Passage, Strip, effective_host, write_host_lines, write_request_lines};
pub use response::{Return, write_interim_lines, write_response_lines, write_trailer_lines};
pub use sent::{SentFields, unkeyed_fields};

use flatout_http::head::Fields;
use flatout_http::token::trim;

/// The methods that a proxy forwards, as Allow has them. Others that origins know are forwarded as well.
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

/// The elements of a comma-separated list without quotes, over all its lines.
fn elements<'a>(fields: Fields<'a>, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
    fields.all(name).flat_map(|value| value.split(|&byte| byte == b',')).map(trim).filter(|element| !element.is_empty())
}

/// What the Connection fields of a message name, looked for only when there is something to look for.
#[derive(Clone, Copy, Debug)]
struct Connection<'a> {
    fields: Fields<'a>,
    names_any: bool,
}

impl<'a> Connection<'a> {
    fn new(fields: Fields<'a>) -> Self {
        // What nearly every Connection field holds names no field that would not go anyway.
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
