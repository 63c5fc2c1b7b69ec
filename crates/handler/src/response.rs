//! Responses of handlers: a status, a prebuilt head, and one of several kinds of body.

use crate::shared::SharedBytes;
use crate::stream::{Stream, TunnelStart};
use flatout_http::chunked::may_be_trailer;
use flatout_http::date::DATE_BYTES;
use flatout_http::http2::hpack;
use flatout_http::http3::qpack;
use flatout_http::lines::{FieldOp, apply_operations, is_forbidden_in_streams};
use flatout_http::status::{digits, reason};
use flatout_http::token::{is_token, parse_decimal, trim};
use flatout_os::file::OpenFile;
use flatout_reason::Outcome;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// A response head, complete except for the value of Date, the Connection field and the empty line. It belongs to one
/// worker, so its reference count is not atomic.
#[derive(Clone, Debug)]
pub struct Head(Form);

#[derive(Clone, Debug)]
enum Form {
    /// A head that can be used for any number of responses.
    Prebuilt(Rc<Prebuilt>),
    /// The head of one response, with an origin's Date or none.
    Single(SharedBytes),
}

#[derive(Debug)]
struct Prebuilt {
    /// The head in HTTP/1.1 form.
    bytes: SharedBytes,
    /// Offset of the value of Date, or `None` if the head has an origin's Date or no Date.
    date_at: Option<usize>,
    /// The head as an HPACK field block, without the server's Date. Built on first use.
    http2_block: OnceCell<Box<[u8]>>,
    /// The head as a QPACK field section, without the server's Date. Built on first use.
    http3_block: OnceCell<Box<[u8]>>,
}

/// Fields that describe the content.
const DESCRIBING: [&str; 3] = ["content-type", "content-language", "content-location"];

/// Separates the status line from the value of Date. Every head that the server generates begins like this.
const DATE_FIELD: &str = "\r\nDate: ";

impl Head {
    /// Builds the head for `status` with `fields`, whose values must be valid field values.
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
        Self::prebuilt(SharedBytes::from(text.into_bytes()), Some(date_at))
    }

    fn prebuilt(bytes: SharedBytes, date_at: Option<usize>) -> Self {
        let (http2_block, http3_block) = (OnceCell::new(), OnceCell::new());
        Self(Form::Prebuilt(Rc::new(Prebuilt { bytes, date_at, http2_block, http3_block })))
    }

    /// Builds the head for `status` from `fields` with the configured header operations applied (see
    /// [`apply_operations`]). The operations do not affect fields that describe the content of a 304 (RFC 9110
    /// §15.4.5), nor the type and the coding of a multipart response.
    pub fn with_operations(status: u16, fields: &[(&str, &str)], operations: &[FieldOp]) -> Self {
        if operations.is_empty() {
            return Self::new(status, fields);
        }
        let is_multipart = fields.iter().any(|(_, value)| value.starts_with("multipart/byteranges"));
        let is_exempt = |name: &str| {
            let is = |other: &str| other.eq_ignore_ascii_case(name);
            status == 304 && DESCRIBING.iter().any(|other| is(other))
                || is_multipart && (is("content-type") || is("content-encoding"))
        };
        let operations: Vec<FieldOp> =
            operations.iter().filter(|operation| !is_exempt(operation.name())).cloned().collect();
        Self::new(status, &apply_operations(status, fields, &operations))
    }

    /// Builds the head for `status` from `lines`, each as `Name: value` and CR LF, that another server generated. Its
    /// Date, if any, is forwarded unchanged (RFC 9110 §6.6.1).
    pub fn from_lines(status: u16, lines: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(lines.len() + 64);
        write_status_line(status, &mut bytes);
        bytes.extend_from_slice(lines);
        Self::prebuilt(SharedBytes::from_buffer(bytes), None)
    }

    /// Builds the head as in [`Self::from_lines`], with the other server's reason phrase if it is not the standard one.
    pub fn forwarded(status: u16, reason: Option<&[u8]>, lines: &[u8]) -> Self {
        let Some(reason) = reason else { return Self::from_lines(status, lines) };
        let mut bytes = Vec::with_capacity(lines.len() + reason.len() + 64);
        write_reason_line(status, reason, &mut bytes);
        bytes.extend_from_slice(lines);
        Self::prebuilt(SharedBytes::from_buffer(bytes), None)
    }

    /// Creates the head of a single response from `bytes`: a line from [`write_status_line`], followed by field lines
    /// as in [`Self::from_lines`].
    pub const fn from_bytes(bytes: SharedBytes) -> Self {
        Self(Form::Single(bytes))
    }

    #[inline]
    fn bytes(&self) -> &SharedBytes {
        match &self.0 {
            Form::Prebuilt(head) => &head.bytes,
            Form::Single(bytes) => bytes,
        }
    }

    #[inline]
    fn date_at(&self) -> Option<usize> {
        match &self.0 {
            Form::Prebuilt(head) => head.date_at,
            Form::Single(_) => None,
        }
    }

    /// Returns whether the head has no room for the server's Date, because its lines come from an origin.
    pub fn has_own_date(&self) -> bool {
        self.date_at().is_none()
    }

    /// Iterates over the names and values of the head's fields, without connection-specific fields (RFC 9113 §8.2.2).
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        http2_lines(self.bytes(), None)
    }

    /// Returns the head as an HTTP/2 field block, without the server's Date. It uses no dynamic table, so it is valid
    /// on every connection.
    pub fn http2_block(&self) -> Cow<'_, [u8]> {
        self.block(|head| &head.http2_block, || self.encode_block(hpack::encode_status, hpack::encode_field))
    }

    /// Returns the head as an HTTP/3 field section, without the server's Date and without the prefix of the section.
    pub fn http3_block(&self) -> Cow<'_, [u8]> {
        self.block(|head| &head.http3_block, || self.encode_block(qpack::encode_status, qpack::encode_field))
    }

    fn block(
        &self,
        known: impl Fn(&Prebuilt) -> &OnceCell<Box<[u8]>>,
        encode: impl FnOnce() -> Box<[u8]>,
    ) -> Cow<'_, [u8]> {
        match &self.0 {
            Form::Prebuilt(head) => Cow::Borrowed(known(head).get_or_init(encode)),
            Form::Single(_) => Cow::Owned(encode().into_vec()),
        }
    }

    fn encode_block(
        &self,
        encode_status: impl Fn(u16, &mut Vec<u8>),
        encode_field: impl Fn(&[u8], &[u8], &mut Vec<u8>),
    ) -> Box<[u8]> {
        let mut block = Vec::new();
        // "HTTP/1.1 " precedes the status.
        let status = self.bytes().get(9..12).and_then(parse_decimal).unwrap_or(500);
        encode_status(status as u16, &mut block);
        encode_lines(self.bytes(), self.date_at().is_some().then_some("date"), &mut block, encode_field);
        block.into()
    }

    /// Appends the head to `output`, with `date`, the field lines in `extra`, and a Connection field if `connection` is
    /// set: for the last response of a connection, or to keep the connection of an HTTP/1.0 client alive.
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

    /// Appends the head as in [`Self::append_to`], with the additional field line `framing`, which delimits the
    /// content, if not empty.
    #[inline]
    pub fn append_framed_to(
        &self,
        output: &mut Vec<u8>,
        date: &[u8; DATE_BYTES],
        extra: &[u8],
        framing: &'static [u8],
        connection: Option<&'static str>,
    ) {
        let start = output.len();
        output.extend_from_slice(self.bytes());
        if let Some(date_at) = self.date_at() {
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

    /// Returns the length of the head in bytes, without the Connection field and the empty line.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns whether the head is empty, which it never is: it has a status line.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
}

/// Appends the status line for `status`, which must have three digits.
pub fn write_status_line(status: u16, output: &mut Vec<u8>) {
    if status == 200 {
        return output.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    write_reason_line(status, reason(status).as_bytes(), output);
}

/// Appends the status line for `status` with the phrase `reason`, which must not contain control characters.
pub fn write_reason_line(status: u16, reason: &[u8], output: &mut Vec<u8>) {
    output.extend_from_slice(b"HTTP/1.1 ");
    output.extend_from_slice(&digits(status));
    output.push(b' ');
    output.extend_from_slice(reason);
    output.extend_from_slice(b"\r\n");
}

/// Iterates over the names and values of field lines, each as `Name: value` and CR LF. Skips a status line,
/// connection-specific fields (RFC 9113 §8.2.2) and the field `left_out`.
fn http2_lines<'a>(lines: &'a [u8], left_out: Option<&'static str>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    lines.split(|&byte| byte == b'\n').filter_map(move |line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|&byte| byte == b':')?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        // If a status line contains a colon, a space precedes the colon, and no field name contains a space.
        let is_left_out = left_out.is_some_and(|left_out| name.eq_ignore_ascii_case(left_out.as_bytes()));
        (is_token(name) && !is_forbidden_in_streams(name) && !is_left_out).then_some((name, value))
    })
}

/// Appends field lines, each as `Name: value` and CR LF, as HTTP/2 fields. Skips connection-specific fields and the
/// field `left_out`.
pub fn encode_fields(lines: &[u8], left_out: Option<&'static str>, output: &mut Vec<u8>) {
    encode_lines(lines, left_out, output, hpack::encode_field);
}

/// Appends field lines using `encode`, which appends one field to the output. Skips the same fields as
/// [`encode_fields`].
pub fn encode_lines(
    lines: &[u8],
    left_out: Option<&'static str>,
    output: &mut Vec<u8>,
    encode: impl Fn(&[u8], &[u8], &mut Vec<u8>),
) {
    for (name, value) in http2_lines(lines, left_out) {
        let (mut short, mut long) = ([0; 64], Vec::new());
        let lower = if name.len() <= short.len() {
            &mut short[..name.len()]
        } else {
            long.resize(name.len(), 0);
            &mut long[..]
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        encode(lower, value, output);
    }
}

/// Formats a trailer section as field lines, without fields that are not allowed in trailers (RFC 9110 §6.5.1). Returns
/// `None` if no field is left.
pub fn trailer_lines<'a>(trailers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Option<Rc<[u8]>> {
    let mut lines = Vec::new();
    for (name, value) in trailers.filter(|(name, _)| may_be_trailer(name.as_bytes())) {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            lines.extend_from_slice(part);
        }
    }
    (!lines.is_empty()).then(|| lines.into())
}

/// The content of a response. A response to HEAD has the same body as a response to GET, and the connection does not
/// send it.
#[derive(Clone, Debug)]
pub enum Body {
    /// No content.
    Empty,
    /// Bytes in memory, shared with a cache.
    Bytes(SharedBytes),
    /// A part of a file, sent from the page cache.
    File(FileBody),
    /// Several segments in order.
    Segments(Vec<Segment>),
    /// Content that is still arriving. Clones share it, and only one of them may be sent.
    Stream(Stream),
    /// No content: after this 101 response, the connection switches to another protocol. Valid only over HTTP/1.1 and
    /// after the request's content is complete; otherwise the client receives a 501.
    Tunnel(TunnelStart),
}

/// A segment of a body.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Bytes in memory.
    Bytes(SharedBytes),
    /// A part of a file.
    File(FileBody),
}

impl Segment {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.bytes,
        }
    }

    /// Returns whether the segment is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Body {
    /// Returns the length in bytes, or 0 for a stream of unknown length.
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty | Self::Tunnel(_) => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.bytes,
            Self::Segments(segments) => segments.iter().map(Segment::len).sum(),
            Self::Stream(stream) => stream.length().unwrap_or(0),
        }
    }

    /// Returns whether there is certainly no content.
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
    /// Offset of the first byte to send.
    pub offset: u64,
    /// Number of bytes to send. `offset + bytes` does not exceed the size of the file version.
    pub bytes: u64,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code, which is also in the head.
    pub status: u16,
    /// The head.
    pub head: Head,
    /// Additional field lines of this response, each as `Name: value` and CR LF.
    pub extra: Option<Rc<[u8]>>,
    /// Values of Link for a 103 (Early Hints, RFC 8297) before this response, which is sent to HTTP/2 clients.
    pub early_links: Option<Rc<Vec<String>>>,
    /// The content.
    pub body: Body,
    /// The outcome, for the access log and the counters.
    pub outcome: Outcome,
    /// Further facts for the access log.
    pub logged: LogFacts,
}

/// Facts about a response that are only recorded in the access log.
#[derive(Clone, Debug, Default)]
pub struct LogFacts {
    /// Index of the access log, or [`LOG_NONE`].
    pub log: u8,
    /// Sender of the request: the peer of the connection, unless that is a trusted proxy.
    pub client: LoggedClient,
    /// The name of the authenticated user.
    pub user: Option<Rc<str>>,
    /// The first name of the site that handled the request.
    pub site: Option<Rc<str>>,
    /// The storage result of the origin's response. `None` for stored responses, and without a cache.
    pub cache: Option<StorageResult>,
}

/// The storage result of a response from an origin: `storing`, or the reason why it is not stored, which is a name from
/// the tables of `flatout_proxy`.
#[derive(Clone, Debug, derive_more::From)]
pub enum StorageResult {
    /// Known when the head is sent.
    Known(&'static str),
    /// `storing`, unless a reason is set before the content ends. All clones share the reason.
    Pending(Arc<OnceLock<&'static str>>),
}

impl StorageResult {
    /// Returns the result so far.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Known(name) => name,
            Self::Pending(reason) => reason.get().copied().unwrap_or("storing"),
        }
    }

    /// Sets the reason why the response is not stored after all. The first one counts.
    pub fn set(&self, reason: &'static str) {
        if let Self::Pending(pending) = self {
            let _ = pending.set(reason);
        }
    }
}

/// The client of a request, for the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoggedClient {
    /// The peer of the connection.
    #[default]
    Peer,
    /// The address that a trusted proxy has named.
    At(IpAddr),
    /// A client whose address a trusted proxy hides.
    Unknown,
}

/// Log index of a response that is not logged.
pub const LOG_NONE: u8 = u8::MAX;

impl Response {
    /// Creates a response that is logged to the first access log.
    pub fn new(status: u16, head: Head, body: Body, outcome: impl Into<Outcome>) -> Self {
        Self {
            status,
            head,
            extra: None,
            early_links: None,
            body,
            outcome: outcome.into(),
            logged: LogFacts::default(),
        }
    }

    /// Returns the additional field lines of this response.
    pub fn extra_lines(&self) -> &[u8] {
        self.extra.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Head;
    use flatout_http::date::format_date;
    use flatout_http::http2::hpack::Decoder;

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
        let (mut scratch, mut lines) = (Vec::new(), Vec::new());
        Decoder::new()
            .decode(&head.http2_block(), &mut scratch, |scratch, name, value| {
                lines.push((scratch[name].to_vec(), scratch[value].to_vec()));
            })
            .unwrap();
        let lines: Vec<_> = lines.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let link = (&b"link"[..], &b"<a>; rel=\"b:c\""[..]);
        assert_eq!(lines, [(&b":status"[..], &b"200"[..]), (b"content-length", b"3"), link]);
        assert_eq!(head.fields().count(), 3, "with the Date");
        assert!(super::http2_lines(b"\r\nno colon\r\nA b: c\r\n", None).next().is_none());
    }
}
