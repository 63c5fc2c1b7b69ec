//! What an origin answers.

use super::body::IncomingBody;
use crate::shared::SharedBytes;
use crate::stream::Duplex;
use flatout_http::framing::Version;
use flatout_http::head::{FieldStorage, Fields, parse_fields};
use flatout_http::limits::Limits;
use std::fmt;

/// An origin's final answer: its head, and its body as it comes.
pub struct Incoming {
    /// 200 to 599, or 101 when an upgrade was asked for.
    pub status: u16,
    /// The version the origin answered in.
    pub version: Version,
    /// Content-Length as declared, also where no body follows (HEAD, 304).
    pub content_length: Option<u64>,
    /// Whether only the end of the connection tells the end of the body (RFC 9112 §6.3, rule 8). Such a body may be
    /// cut without anyone's knowing, unless the connection is one of TLS.
    pub ends_with_connection: bool,
    /// Whether the request went out on a connection that had served others before.
    pub reused: bool,
    /// The body.
    pub body: IncomingBody,
    /// Both directions of the connection after a 101; what the origin sent behind its head is read first.
    pub upgraded: Option<Box<dyn Duplex>>,
    /// The field lines and the empty line behind them.
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

    /// The body alone; the head's memory goes.
    pub fn into_body(self) -> IncomingBody {
        self.body
    }

    /// The field lines as received, each `Name: value` and CR LF; those of framing and connection among them.
    pub fn lines(&self) -> &[u8] {
        &self.section[..self.section.len() - 2]
    }

    /// The field lines and the empty line behind them, as [`parse_fields`] reads them.
    pub const fn section(&self) -> &SharedBytes {
        &self.section
    }

    /// The field lines, parsed.
    pub fn fields<'a>(&'a self, storage: &'a mut FieldStorage<'a>) -> Fields<'a> {
        // They were parsed when they came, under bounds no wider than these.
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
