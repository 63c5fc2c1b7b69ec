//! The logged data of a request and its response.

use super::logs::LogSet;
use flatout_handler::response::{LogFacts, LoggedClient};
use flatout_http::framing::Version;
use flatout_http::request::RequestHead;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// Maximum number of bytes of a refused request that are logged.
const RAW_BYTES_MAX: usize = 128;

/// The source of a request.
#[derive(Clone, Copy, Debug)]
pub struct LoggedPeer {
    /// The client's address; `None` if the kernel does not report one.
    pub client: Option<SocketAddr>,
    /// True if the request was received over TLS.
    pub secure: bool,
}

/// The logged part of a request.
#[derive(Clone, Copy, Debug)]
pub enum Logged<'a> {
    /// A parsed request.
    Head(&'a RequestHead<'a>),
    /// The first bytes of a request that was refused or was not complete in time.
    Raw(&'a [u8]),
}

/// The logged data of a response.
#[derive(Clone, Copy, Debug)]
pub struct LoggedResponse<'a> {
    /// The status; 0 if there was no response.
    pub status: u16,
    /// Length of the response's content, in bytes. For a truncated response, this may include bytes that were not sent.
    pub body_bytes: u64,
    /// The handler's outcome, or the name of the refusal.
    pub outcome: &'static str,
    /// Time at which the first bytes of the request were received, on the precise clock, in nanoseconds.
    pub started_ns: u64,
    /// All other facts. If their log index has no log, such as 255, the request is not logged.
    pub facts: &'a LogFacts,
}

impl<'a> LoggedResponse<'a> {
    /// Returns a copy with `facts`.
    #[must_use]
    pub const fn with_facts(self, facts: &'a LogFacts) -> Self {
        Self { facts, ..self }
    }

    /// Creates the response to a refused request, or to a request without a response (`status` 0), for the first log.
    pub const fn refused(status: u16, outcome: &'static str, body_bytes: u64, started_ns: u64) -> Self {
        const NO_FACTS: &LogFacts =
            &LogFacts { log: 0, client: LoggedClient::Peer, user: None, site: None, cache: None };
        Self { status, body_bytes, outcome, started_ns, facts: NO_FACTS }
    }
}

/// A request, as seen by the formatting of a line. Finding a header field takes time, so only the fields of the format
/// are looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) client: Option<IpAddr>,
    pub secure: bool,
    pub(super) unix_ms: i64,
    source: RecordSource<'a>,
}

#[derive(Clone, Copy, Debug)]
enum RecordSource<'a> {
    Logged(Logged<'a>),
    Owned(&'a Description),
}

impl<'a> Record<'a> {
    pub(super) fn new(peer: LoggedPeer, unix_ms: i64, logged: Logged<'a>) -> Self {
        let client = peer.client.map(|client| client.ip());
        Self { client, secure: peer.secure, unix_ms, source: RecordSource::Logged(logged) }
    }

    /// Returns the record with the client that a trusted proxy has named, if one has.
    pub(super) const fn with_client(self, client: LoggedClient) -> Self {
        match client {
            LoggedClient::Peer => self,
            LoggedClient::At(client) => Self { client: Some(client), ..self },
            LoggedClient::Unknown => Self { client: None, ..self },
        }
    }

    /// Returns the method and the version if the head was parsed.
    pub(super) fn method(&self) -> Option<(&'a str, Version)> {
        match self.source {
            RecordSource::Logged(Logged::Head(head)) => Some((head.method.as_str(), head.version)),
            RecordSource::Logged(Logged::Raw(_)) => None,
            RecordSource::Owned(description) => description.version.map(|version| (&description.method[..], version)),
        }
    }

    /// Returns the target, or the first line if no head was parsed.
    pub(super) fn target(&self) -> &'a [u8] {
        match self.source {
            RecordSource::Logged(Logged::Head(head)) => head.target_text,
            RecordSource::Logged(Logged::Raw(raw)) => first_line(raw),
            RecordSource::Owned(description) => &description.text[description.target.clone()],
        }
    }

    pub(super) fn host(&self) -> Option<&'a [u8]> {
        match self.source {
            RecordSource::Logged(Logged::Head(head)) => head.host,
            RecordSource::Logged(Logged::Raw(_)) => None,
            RecordSource::Owned(description) => description.part(description.host.as_ref()),
        }
    }

    pub(super) fn referer(&self) -> Option<&'a [u8]> {
        match self.source {
            RecordSource::Logged(Logged::Head(head)) => head.fields.first("referer"),
            RecordSource::Logged(Logged::Raw(_)) => None,
            RecordSource::Owned(description) => description.part(description.referer.as_ref()),
        }
    }

    pub(super) fn user_agent(&self) -> Option<&'a [u8]> {
        match self.source {
            RecordSource::Logged(Logged::Head(head)) => head.fields.first("user-agent"),
            RecordSource::Logged(Logged::Raw(_)) => None,
            RecordSource::Owned(description) => description.part(description.user_agent.as_ref()),
        }
    }
}

/// Returns the first line, without an empty line before it. A lone CR does not end a line.
fn first_line(raw: &[u8]) -> &[u8] {
    let raw = raw.strip_prefix(b"\r\n").unwrap_or(raw);
    let raw = &raw[..raw.len().min(RAW_BYTES_MAX)];
    let line_end = raw.windows(2).position(|pair| pair == b"\r\n").unwrap_or(raw.len());
    &raw[..line_end]
}

/// A copy of the logged data of a request while its body or its response is pending. The log may not be known yet.
#[derive(Clone, Debug)]
pub struct Description {
    /// The logs when the request was received. The response's log index refers to these, even if new logs have been
    /// adopted since.
    pub(super) logs: LogSet,
    client: Option<IpAddr>,
    secure: bool,
    unix_ms: i64,
    method: Box<str>,
    version: Option<Version>,
    text: Box<[u8]>,
    target: Range<usize>,
    host: Option<Range<usize>>,
    referer: Option<Range<usize>>,
    user_agent: Option<Range<usize>>,
}

impl Description {
    pub(super) fn new(record: &Record<'_>, logs: LogSet) -> Self {
        let mut text = Vec::new();
        let mut keep = |part: &[u8]| {
            let start = text.len();
            text.extend_from_slice(part);
            start..text.len()
        };
        let target = keep(record.target());
        let [host, referer, user_agent] =
            [record.host(), record.referer(), record.user_agent()].map(|part| part.map(&mut keep));
        let (method, version) = record.method().unzip();
        Self {
            logs,
            client: record.client,
            secure: record.secure,
            unix_ms: record.unix_ms,
            method: method.unwrap_or_default().into(),
            version,
            text: text.into(),
            target,
            host,
            referer,
            user_agent,
        }
    }

    pub(super) const fn record(&self) -> Record<'_> {
        Record { client: self.client, secure: self.secure, unix_ms: self.unix_ms, source: RecordSource::Owned(self) }
    }

    fn part(&self, range: Option<&Range<usize>>) -> Option<&[u8]> {
        range.map(|range| &self.text[range.clone()])
    }
}
