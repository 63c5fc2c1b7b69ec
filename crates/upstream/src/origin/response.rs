//! Responses of an origin.

use super::body::IncomingBody;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::Duplex;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use std::fmt;

/// An origin's final response: its head, and its streamed body.
pub struct Incoming {
    /// 200 to 599, or 101 if an upgrade was requested.
    pub status: u16,
    /// The HTTP version of the response.
    pub version: Version,
    /// Content-Length as declared, also if no body follows (HEAD, 304).
    pub content_length: Option<u64>,
    /// True if only the end of the connection delimits the body (RFC 9112 §6.3, rule 8). Truncation of such a body is
    /// undetectable, except over TLS.
    pub ends_with_connection: bool,
    /// True if the request was sent on a reused connection.
    pub reused: bool,
    /// The body.
    pub body: IncomingBody,
    /// Both directions of the connection after a 101; bytes that the origin sent after its head are read first.
    pub upgraded: Option<Box<dyn Duplex>>,
    /// The field lines and the empty line after them.
    section: SharedBytes,
}

impl Incoming {
    pub(super) fn new(status: u16, version: Version, section: SharedBytes, body: IncomingBody) -> Self {
        Self {
            status,
            version,
            content_length: None,
            ends_with_connection: false,
            reused: false,
            body,
            upgraded: None,
            section,
        }
    }

    /// The body alone; frees the head's memory.
    pub fn into_body(self) -> IncomingBody {
        self.body
    }

    /// The field lines as received, each `Name: value` and CR LF, including framing and connection fields.
    pub fn lines(&self) -> &[u8] {
        &self.section[..self.section.len() - 2]
    }

    /// The field lines and the empty line after them, as input of [`parse_fields`].
    pub const fn section(&self) -> &SharedBytes {
        &self.section
    }

    /// The field lines, parsed.
    pub fn fields<'a>(&'a self, storage: &'a mut FieldStorage<'a>) -> Fields<'a> {
        // They were parsed on arrival, under bounds no wider than these.
        let limits = Limits { head_bytes_max: usize::MAX, ..Limits::CLIENT };
        parse_fields(&self.section, &limits, storage).unwrap_or(Fields::EMPTY)
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Incoming")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("lines", &String::from_utf8_lossy(self.lines()))
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
