//! What is changed of a request on its way to an origin, and of an answer on its way back.
pub mod retry;
pub mod upgrade;
use crate::outcome::ForwardOutcome;
use flatout_config::model::{Origin, Proxy};
use flatout_http::framing::Version;
use flatout_http::head::Fields;
use flatout_net::handler::Request;

/// Fields of the client's that stay behind, because the one who forwards has its own: bits for [`Passage::strip`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strip(pub u8);

impl Strip {
    /// If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since.
    pub const CONDITIONS: Self = Self(1);
    /// Range and If-Range.
    pub const RANGE: Self = Self(2);
    /// Accept-Encoding.
    pub const ENCODING: Self = Self(4);
    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How one request is passed on.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// The origin it goes to.
    pub origin: &'a Origin,
    /// Fields of the client's that stay behind.
    pub strip: Strip,
    /// Lines of our own, each `Name: value` and CR LF, behind the client's: validators, Surrogate-Capability.
    pub extra: &'a [u8],
    /// Content-Length for the origin; `None`: no content, or chunked, which the connection frames itself.
    pub length: Option<u64>,
    /// Whether an upgrade is passed on (see [`upgrade`]): Upgrade stays and Connection names it.
    pub upgrade: bool,
    /// Whether it goes by HTTP/1.1: then lines that only a connection of HTTP/1.1 has are written (Connection: TE).
    pub http1: bool,
}

/// Appends to `out` the field lines that the origin gets, each `Name: value` and CR LF, without the empty line: Host
/// first, Content-Length when given, never Transfer-Encoding; `Connection: TE`, `Connection: upgrade` where needed.
pub fn write_request_lines(
    _request: &Request<'_>,
    _settings: &Proxy,
    _passage: &Passage<'_>,
    _out: &mut Vec<u8>,
) -> Result<(), ForwardOutcome> {
    unimplemented!()
}

/// How one answer is passed on.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    /// The version it came by, for Via.
    pub version: Version,
    /// Whether Content-Length stays: the framing is this length, or it answers HEAD, or it is a 304.
    pub keep_length: bool,
    /// Whether Upgrade stays: 101, or 426.
    pub upgrade: bool,
}

/// Appends to `out` the field lines that the client gets, or that are stored.
pub fn write_response_lines(_fields: Fields<'_>, _settings: &Proxy, _answer: Return, _out: &mut Vec<u8>) {
    unimplemented!()
}

/// Appends the trailer lines that may be passed on, either way (RFC 9110 §6.5.1).
pub fn write_trailer_lines(_fields: Fields<'_>, _out: &mut Vec<u8>) {
    unimplemented!()
}

/// The host that a request is for: an absolute-form's authority before Host (RFC 9112 §3.2.2).
pub fn effective_host<'a>(_request: &Request<'a>) -> Option<&'a [u8]> {
    unimplemented!()
}
