//! What is known of a request and of its answer when a line is made.

use super::logs::LogSet;
use crate::handler::LogSource;
use flatout_http::framing::Version;
use flatout_http::request::RequestHead;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

/// A request that was refused is shown so far.
const RAW_BYTES_MAX: usize = 128;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Who asks; `None` when the kernel would not say.
    pub client: Option<SocketAddr>,
    /// Whether it came over TLS.
    pub secure: bool,
}

/// What is logged of a request.
#[derive(Clone, Copy, Debug)]
pub enum Logged<'a> {
    /// A parsed request.
    Head(&'a RequestHead<'a>),
    /// The beginning of what was refused, or of what was not complete in time.
    Raw(&'a [u8]),
}

/// What a line says of the response.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The log it stands in, by index; one that is not there, such as 255, is none.
    pub log: u8,
    /// The status; 0 when there was no answer.
    pub status: u16,
    /// Bytes of content the response has; what a cut response lost is not known here.
    pub body_bytes: u64,
    /// Why this answer: the handler's outcome or the refusal's name.
    pub outcome: &'static str,
    /// When the first bytes of the request were received, on the precise clock.
    pub started_ns: u64,
    /// Who has shown a password.
    pub user: Option<&'a str>,
    /// The site that answered.
    pub site: Option<&'a str>,
    /// What a shared cache did with it.
    pub cache: Option<&'static str>,
}

impl<'a> Answer<'a> {
    /// The same, with the log and the site of `source`.
    pub(crate) fn with_source(self, source: &'a LogSource) -> Self {
        Self { log: source.log, site: source.site.as_deref(), ..self }
    }

    /// The answer to a request that was refused, or to one that never came to an answer (`status` 0).
    pub const fn refused(log: u8, status: u16, outcome: &'static str, body_bytes: u64, started_ns: u64) -> Self {
        Self { log, status, body_bytes, outcome, started_ns, user: None, site: None, cache: None }
    }
}

/// A request as a line sees it. Looking for a field costs something, so only the fields of the format are looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) client: Option<IpAddr>,
    pub(super) secure: bool,
    pub(super) unix_ms: i64,
    source: Source<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Logged(Logged<'a>),
    Owned(&'a Description),
}

impl<'a> Record<'a> {
    pub(super) fn new(peer: Peer, unix_ms: i64, logged: Logged<'a>) -> Self {
        let client = peer.client.map(|client| client.ip());
        Self { client, secure: peer.secure, unix_ms, source: Source::Logged(logged) }
    }

    /// Method and version, when a head was understood.
    pub(super) fn method(&self) -> Option<(&'a str, Version)> {
        match self.source {
            Source::Logged(Logged::Head(head)) => Some((head.method.as_str(), head.version)),
            Source::Logged(Logged::Raw(_)) => None,
            Source::Owned(description) => description.version.map(|version| (&description.method[..], version)),
        }
    }

    /// The target, or the line that stands in its place when no head was understood.
    pub(super) fn target(&self) -> &'a [u8] {
        match self.source {
            Source::Logged(Logged::Head(head)) => head.target_text,
            Source::Logged(Logged::Raw(raw)) => first_line(raw),
            Source::Owned(description) => &description.text[description.target.clone()],
        }
    }

    pub(super) fn host(&self) -> Option<&'a [u8]> {
        match self.source {
            Source::Logged(Logged::Head(head)) => head.host,
            Source::Logged(Logged::Raw(_)) => None,
            Source::Owned(description) => description.part(description.host.as_ref()),
        }
    }

    pub(super) fn referer(&self) -> Option<&'a [u8]> {
        match self.source {
            Source::Logged(Logged::Head(head)) => head.fields.first("referer"),
            Source::Logged(Logged::Raw(_)) => None,
            Source::Owned(description) => description.part(description.referer.as_ref()),
        }
    }

    pub(super) fn user_agent(&self) -> Option<&'a [u8]> {
        match self.source {
            Source::Logged(Logged::Head(head)) => head.fields.first("user-agent"),
            Source::Logged(Logged::Raw(_)) => None,
            Source::Owned(description) => description.part(description.user_agent.as_ref()),
        }
    }
}

/// An empty line before it, or a lone CR within it, hides nothing.
fn first_line(raw: &[u8]) -> &[u8] {
    let raw = raw.strip_prefix(b"\r\n").unwrap_or(raw);
    let raw = &raw[..raw.len().min(RAW_BYTES_MAX)];
    let line_end = raw.windows(2).position(|pair| pair == b"\r\n").unwrap_or(raw.len());
    &raw[..line_end]
}

/// A request kept while its body comes or its answer is being made. The log it will stand in may not be known yet.
#[derive(Clone, Debug)]
pub struct Description {
    /// The logs when it was made, which the answer's index means, whatever has been adopted since.
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
        Record { client: self.client, secure: self.secure, unix_ms: self.unix_ms, source: Source::Owned(self) }
    }

    fn part(&self, range: Option<&Range<usize>>) -> Option<&[u8]> {
        range.map(|range| &self.text[range.clone()])
    }
}
