//! Responses from an origin.

use super::body::IncomingBody;
use flatout_handler::shared::SharedBytes;
use flatout_handler::stream::Duplex;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use std::fmt;

/// Final response of an origin, with its head and body.
pub struct Incoming {
    /// Status code, 200 or more, or 101 if an upgrade was requested.
    pub status: u16,
    /// The reason phrase, if it is not the usual one for the status. Always `None` over HTTP/2, which has no reason
    /// phrases.
    pub reason: Option<Box<[u8]>>,
    /// The HTTP version of the response.
    pub version: Version,
    /// Value of Content-Length, even if no body follows (in a response to HEAD, or a 304).
    pub content_length: Option<u64>,
    /// True if the body is close-delimited (RFC 9112 §6.3, rule 8). Truncation of such a body is undetectable, except
    /// over TLS.
    pub ends_with_connection: bool,
    /// True if the request was sent on a reused connection.
    pub reused: bool,
    /// The body.
    pub body: IncomingBody,
    /// Both directions of the connection or stream after a 101. Bytes that arrived along with the head are read first.
    pub upgraded: Option<Box<dyn Duplex>>,
    /// The field lines, and the empty line after them.
    section: SharedBytes,
}

impl Incoming {
    pub(super) fn new(status: u16, version: Version, section: SharedBytes, body: IncomingBody) -> Self {
        Self {
            status,
            reason: None,
            version,
            content_length: None,
            ends_with_connection: false,
            reused: false,
            body,
            upgraded: None,
            section,
        }
    }

    /// Returns the body, and frees the memory of the head.
    pub fn into_body(self) -> IncomingBody {
        self.body
    }

    /// Returns the field lines as received, each `Name: value` and CR LF, including framing and connection-specific
    /// fields.
    pub fn lines(&self) -> &[u8] {
        &self.section[..self.section.len() - 2]
    }

    /// Returns the field lines and the empty line after them, as input for [`parse_fields`].
    pub const fn section(&self) -> &SharedBytes {
        &self.section
    }

    /// Parses the field lines.
    pub fn fields<'a>(&'a self, storage: &'a mut FieldStorage<'a>) -> Fields<'a> {
        // The lines were parsed on arrival with limits at least as strict as these.
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
