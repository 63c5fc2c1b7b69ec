//! What a handler answers with: a status, a head built beforehand, and one of a few kinds of body.

use crate::file::OpenFile;
use crate::shared::SharedBytes;
use crate::stream::{Stream, TunnelStart};
use flatout_http::chunked::may_be_trailer;
use flatout_http::date::DATE_BYTES;
use flatout_http::status::reason;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::cell::OnceCell;
use std::rc::Rc;

/// A response head, complete but for the Date's value, the Connection field and the empty line. Of one worker, so
/// counted without an atomic operation.
#[derive(Clone, Debug)]
pub struct Head(Rc<Prebuilt>);

#[derive(Debug)]
struct Prebuilt {
    /// As HTTP/1.1 has it.
    bytes: SharedBytes,
    /// Where the Date's value stands; `None` when the head has another's Date, or none.
    date_at: Option<usize>,
    /// As HTTP/2 has it, without the Date; made when it is asked for first.
    http2: OnceCell<HeaderMap>,
}

/// Every head begins with a status line of this version, then Date.
const DATE_FIELD: &str = "\r\nDate: ";

impl Head {
    /// Builds the head for `status` with `fields`, whose values must be fit for a header line.
    pub fn new(status: u16, fields: &[(&str, &str)]) -> Self {
        use std::fmt::Write as _;
        let mut text = format!("HTTP/1.1 {status} {}{DATE_FIELD}", reason(status));
        let date_at = text.len();
        text.push_str(&" ".repeat(DATE_BYTES));
        text.push_str("\r\n");
        for (name, value) in fields {
            debug_assert!(!value.contains(['\r', '\n', '\0']), "a field value with a line end: {name}");
            // Writing to a String cannot fail.
            let _ = write!(text, "{name}: {value}\r\n");
        }
        Self(Rc::new(Prebuilt {
            bytes: SharedBytes::from(text.into_bytes()),
            date_at: Some(date_at),
            http2: OnceCell::new(),
        }))
    }

    /// Builds the head for `status` from `lines`, each `Name: value` and CR LF, which another server has made: its
    /// Date stands among them and is kept (RFC 9110 §6.6.1).
    pub fn from_lines(status: u16, lines: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(lines.len() + 64);
        write_status_line(status, &mut bytes);
        bytes.extend_from_slice(lines);
        Self::from_bytes(SharedBytes::from_buffer(bytes))
    }

    /// The head that stands in `bytes`: what [`write_status_line`] writes, and lines as [`Self::from_lines`] takes them.
    pub fn from_bytes(bytes: SharedBytes) -> Self {
        Self(Rc::new(Prebuilt { bytes, date_at: None, http2: OnceCell::new() }))
    }

    /// The Date among the lines, when the head has another's.
    pub fn has_own_date(&self) -> bool {
        self.0.date_at.is_none()
    }

    /// The head's fields as HTTP/2 has them: names in lower case, without our Date and what belongs to a connection.
    pub fn http2_fields(&self) -> &HeaderMap {
        self.0.http2.get_or_init(|| {
            // Left out while parsing: taking it out afterwards would change the order of the others.
            parse_lines_but(&self.0.bytes, self.0.date_at.is_some().then_some("date"))
        })
    }

    /// Appends the head to `output` with `date`, the field lines in `extra` and, for the last response of a connection or the keep-alive of an
    /// HTTP/1.0 client, a Connection field.
    #[inline]
    pub fn append_to(
        &self,
        output: &mut Vec<u8>,
        date: &[u8; DATE_BYTES],
        extra: &[u8],
        connection: Option<&'static str>,
    ) {
        self.append_framed_to(output, date, extra, b"", connection);
    }

    /// The same with the field line `framing`, when it is not empty, which says where the content ends.
    #[inline]
    pub(crate) fn append_framed_to(
        &self,
        output: &mut Vec<u8>,
        date: &[u8; DATE_BYTES],
        extra: &[u8],
        framing: &'static [u8],
        connection: Option<&'static str>,
    ) {
        let start = output.len();
        output.extend_from_slice(&self.0.bytes);
        if let Some(date_at) = self.0.date_at {
            let date_at = start + date_at;
            output[date_at..date_at + DATE_BYTES].copy_from_slice(date);
        }
        output.extend_from_slice(extra);
        output.extend_from_slice(framing);
        if let Some(option) = connection {
            output.extend_from_slice(b"Connection: ");
            output.extend_from_slice(option.as_bytes());
            output.extend_from_slice(b"\r\n");
        }
        output.extend_from_slice(b"\r\n");
    }

    /// Bytes of the head without the Connection field and the empty line.
    pub fn len(&self) -> usize {
        self.0.bytes.len()
    }

    /// Never: a head has a status line.
    pub fn is_empty(&self) -> bool {
        self.0.bytes.is_empty()
    }
}

/// Appends the line that begins the head of an answer with `status`, which has three digits.
pub fn write_status_line(status: u16, output: &mut Vec<u8>) {
    let digit = |number: u16| b'0' + (number % 10) as u8;
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    output.extend_from_slice(reason(status).as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Field lines, each `Name: value` and CR LF, as a header map. What belongs to an HTTP/1.1 connection is left out
/// (RFC 9113 §8.2.2), and so is a status line, which has no such form.
pub fn parse_lines(lines: &[u8]) -> HeaderMap {
    parse_lines_but(lines, None)
}

/// The same without the field `left_out`, in lower case.
pub(crate) fn parse_lines_but(lines: &[u8], left_out: Option<&str>) -> HeaderMap {
    const LEFT_OUT: [&str; 5] = ["connection", "keep-alive", "transfer-encoding", "upgrade", "proxy-connection"];
    let mut map = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], flatout_http::token::trim(&line[colon + 1..]));
        // A status line with a colon in it has a space, and no name has.
        let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) else { continue };
        if !LEFT_OUT.contains(&name.as_str()) && left_out != Some(name.as_str()) {
            map.append(name, value);
        }
    }
    map
}

/// Fields as lines, each `name: value` and CR LF.
pub(crate) fn encode_lines(fields: &HeaderMap) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in fields {
        append_line(name, value, &mut lines);
    }
    lines
}

/// A trailer section as field lines, without the fields that are not allowed there (RFC 9110 §6.5.1); `None` when none
/// is left.
pub(crate) fn trailer_lines(trailers: &HeaderMap) -> Option<Rc<[u8]>> {
    let mut lines = Vec::new();
    for (name, value) in trailers {
        if may_be_trailer(name.as_str().as_bytes()) {
            append_line(name, value, &mut lines);
        }
    }
    (!lines.is_empty()).then(|| lines.into())
}

fn append_line(name: &HeaderName, value: &HeaderValue, lines: &mut Vec<u8>) {
    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// The content of a response. HEAD is answered with the body its GET would have; the pump leaves it out.
#[derive(Clone, Debug)]
pub enum Body {
    /// None.
    Empty,
    /// Bytes in memory, shared with a cache.
    Bytes(SharedBytes),
    /// A part of a file, sent from the page cache.
    File(FileBody),
    /// One after the other.
    Segments(Vec<Segment>),
    /// Content that is not all here yet. Clones share it, and only one of them may be sent.
    Stream(Stream),
    /// No content: after this answer, a 101, the connection belongs to another protocol. Over HTTP/1.1 only, and when
    /// the request's content is whole; else the client is told with 501 that it cannot be.
    Tunnel(TunnelStart),
}

/// A part of a content made of several.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(SharedBytes),
    /// A part of a file.
    File(FileBody),
}

impl Segment {
    /// Bytes of content.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.bytes,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Body {
    /// Bytes of content; of a stream whose length is not known, 0.
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty | Self::Tunnel(_) => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.bytes,
            Self::Segments(segments) => segments.iter().map(Segment::len).sum(),
            Self::Stream(stream) => stream.length().unwrap_or(0),
        }
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.length() == Some(0),
            _ => self.len() == 0,
        }
    }
}

/// A part of one version of a file.
#[derive(Clone, Debug)]
pub struct FileBody {
    /// The file, with the identity of the version that the head describes.
    pub file: Rc<OpenFile>,
    /// The first byte to send.
    pub offset: u64,
    /// How many bytes to send; `offset + bytes` is within the version's size.
    pub bytes: u64,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status, as in the head.
    pub status: u16,
    /// The head.
    pub head: Head,
    /// More field lines, each `Name: value` and CR LF: what only this answer has.
    pub extra: Option<Rc<[u8]>>,
    /// Values of Link for a 103 that goes before (RFC 8297), to clients of HTTP/2.
    pub early_links: Option<Rc<Vec<String>>>,
    /// The content.
    pub body: Body,
    /// Why this answer: an index into the handler's `OUTCOMES`.
    pub outcome: u8,
    /// The log it stands in, by index; `LOG_NONE` for none.
    pub log: u8,
    /// Who has shown a password.
    pub user: Option<Rc<str>>,
    /// The site that answers, by its first name.
    pub site: Option<Rc<str>>,
    /// What a shared cache did with the answer, for the log: a word of `flatout_proxy`'s tables.
    pub cache: Option<&'static str>,
}

/// For an answer that is not logged.
pub const LOG_NONE: u8 = u8::MAX;

impl Response {
    /// An answer that stands in the first log.
    pub const fn new(status: u16, head: Head, body: Body, outcome: u8) -> Self {
        Self {
            status,
            head,
            extra: None,
            early_links: None,
            body,
            outcome,
            log: 0,
            user: None,
            site: None,
            cache: None,
        }
    }

    /// The field lines that only this answer has.
    pub fn extra_lines(&self) -> &[u8] {
        self.extra.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Head;
    use flatout_http::date::format_date;

    #[test]
    fn heads_take_date_and_connection_when_they_are_sent() {
        let head = Head::new(200, &[("Content-Length", "3"), ("ETag", "\"a\"")]);
        let mut output = b"before".to_vec();
        head.append_to(&mut output, &format_date(784_111_777), b"", None);
        head.append_to(&mut output, &format_date(0), b"A: b\r\n", Some("close"));
        let expected = "beforeHTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 3\r\n\
            ETag: \"a\"\r\n\r\nHTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length: 3\r\n\
            ETag: \"a\"\r\nA: b\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&output), expected);
    }

    #[test]
    fn http2_has_the_fields_alone() {
        let head = Head::new(200, &[("Content-Length", "3"), ("Link", "<a>; rel=\"b:c\""), ("Connection", "x")]);
        let fields: Vec<_> =
            head.http2_fields().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("content-length", &b"3"[..]), ("link", b"<a>; rel=\"b:c\"")]);
        assert!(super::parse_lines(b"\r\nno colon\r\nA b: c\r\n").is_empty());
    }
}
