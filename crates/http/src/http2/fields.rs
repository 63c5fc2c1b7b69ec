//! Field sections of HTTP/2 and HTTP/3, validated as they are decoded (RFC 9113 §8.2, §8.3; RFC 9114 §4.2, §4.3), and
//! their conversion to request heads as parsed from HTTP/1.1.

use super::error::StreamError;
use crate::framing::{Framing, Version};
use crate::head::{FieldStorage, Fields};
use crate::limits::Limits;
use crate::lines::is_forbidden_in_streams;
use crate::refusal::Refusal;
use crate::request::{RequestHead, assemble_request_head};
use crate::token::{LOWER_TCHAR, is, parse_decimal};
use std::ops::Range;

/// Number of bytes added to the size of a field's name and value (RFC 9113 §6.5.2).
const LINE_OVERHEAD_BYTES: usize = 32;

/// A section larger than its limit is refused; a section larger than this multiple of the limit closes the connection.
const EXCESS_FACTOR: usize = 8;

/// The pseudo-fields, in the order of `FieldBlock::pseudo`.
const PSEUDO_FIELDS: [&[u8]; 6] = [b":method", b":scheme", b":authority", b":path", b":protocol", b":status"];
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;
const STATUS: usize = 5;

/// The kind of message that a section belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// The head of a request.
    Request,
    /// The head of a final or interim response.
    Response,
    /// Trailers.
    Trailers,
}

#[derive(Clone, Debug)]
struct FieldLine {
    name: Range<usize>,
    value: Range<usize>,
}

/// A decoder of compressed field sections.
pub(crate) trait SectionDecoder {
    /// The reason a section could not be decoded. It is a connection error.
    type Error;

    /// The HTTP version whose field sections this decoder decodes.
    const VERSION: Version;

    /// Decodes a complete section. For each field, calls `add` with the scratch buffer and the ranges of the name and
    /// the value in it. `add` may truncate the buffer to drop the field.
    fn decode_section(
        &mut self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        add: impl FnMut(&mut Vec<u8>, Range<usize>, Range<usize>),
    ) -> Result<(), Self::Error>;
}

/// A decoded field section. One block serves all connections of a worker, so that decoding needs no allocation.
#[derive(Clone, Debug, Default)]
pub struct FieldBlock {
    /// Names and values of the fields.
    scratch: Vec<u8>,
    lines: Vec<FieldLine>,
    pseudo: [Option<Range<usize>>; PSEUDO_FIELDS.len()],
    /// Size of the section as defined in RFC 9113 §6.5.2.
    size_bytes: usize,
    size_bytes_max: usize,
    /// The first rule that the section violates, if any.
    malformed: Option<StreamError>,
    content_length: Option<u64>,
    cookies: usize,
    is_http3: bool,
}

impl FieldBlock {
    /// Creates an empty block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a section of at most `size_bytes_max` bytes. For larger sections, see [`Self::is_too_large`].
    pub(crate) fn decode<D: SectionDecoder>(
        &mut self,
        decoder: &mut D,
        block: &[u8],
        section: SectionKind,
        size_bytes_max: usize,
    ) -> Result<(), D::Error> {
        self.is_http3 = D::VERSION == Version::Http3;
        self.scratch.clear();
        self.lines.clear();
        self.pseudo = Default::default();
        (self.size_bytes, self.size_bytes_max, self.cookies) = (0, size_bytes_max, 0);
        (self.malformed, self.content_length) = (None, None);
        // Moved out of `self` while the decoder writes to it.
        let mut scratch = std::mem::take(&mut self.scratch);
        let decoded = decoder.decode_section(block, &mut scratch, |scratch, name, value| {
            self.add(scratch, name, value, section);
        });
        self.scratch = scratch;
        decoded?;
        if !self.is_too_large() {
            self.malformed = self.malformed.or_else(|| self.missing(section));
            self.join_cookies();
        }
        Ok(())
    }

    fn add(&mut self, scratch: &mut Vec<u8>, name: Range<usize>, value: Range<usize>, section: SectionKind) {
        self.size_bytes = self.size_bytes.saturating_add(name.len() + value.len() + LINE_OVERHEAD_BYTES);
        if self.is_too_large() {
            // Decoding continues to keep the compression table consistent, but the fields are not stored.
            scratch.truncate(name.start);
            return;
        }
        if let Err(error) = self.check(&scratch[name.clone()], &scratch[value.clone()], section) {
            self.malformed.get_or_insert(error);
        }
        if let Some(index) = PSEUDO_FIELDS.iter().position(|pseudo| *pseudo == &scratch[name.clone()]) {
            if self.pseudo[index].replace(value).is_some() {
                self.malformed.get_or_insert(StreamError::PseudoRepeated);
            }
        } else {
            self.cookies += usize::from(&scratch[name.clone()] == b"cookie");
            self.lines.push(FieldLine { name, value });
        }
    }

    /// Checks one field against RFC 9113 §8.2.1, §8.2.2 and §8.3.
    fn check(&mut self, name: &[u8], value: &[u8], section: SectionKind) -> Result<(), StreamError> {
        if !value.iter().all(|&byte| byte >= b' ' && byte != 0x7f || byte == b'\t') {
            return Err(StreamError::FieldValue);
        }
        if matches!(value.first(), Some(b' ' | b'\t')) || matches!(value.last(), Some(b' ' | b'\t')) {
            return Err(StreamError::FieldSpace);
        }
        if name.first() == Some(&b':') {
            let is_known = match section {
                SectionKind::Request => PSEUDO_FIELDS[..STATUS].contains(&name),
                SectionKind::Response => name == PSEUDO_FIELDS[STATUS],
                SectionKind::Trailers => false,
            };
            return match is_known {
                false => Err(StreamError::PseudoField),
                true if !self.lines.is_empty() => Err(StreamError::PseudoOrder),
                true => Ok(()),
            };
        }
        if name.is_empty() || !name.iter().all(|&byte| is(byte, LOWER_TCHAR)) {
            return Err(StreamError::FieldName);
        }
        if is_forbidden_in_streams(name) || name == b"te" && !value.eq_ignore_ascii_case(b"trailers") {
            return Err(StreamError::ConnectionField);
        }
        if name == b"content-length" && section != SectionKind::Trailers {
            let length = parse_decimal(value);
            match (length, self.content_length) {
                (None, _) => return Err(StreamError::LengthInvalid),
                (length, Some(_)) if length != self.content_length => return Err(StreamError::LengthsDiffer),
                _ => self.content_length = length,
            }
        }
        Ok(())
    }

    /// Returns the error if a required pseudo-field is missing, or one that must be absent is present (RFC 9113 §8.3.1,
    /// §8.3.2, §8.5; RFC 8441 §4).
    fn missing(&self, section: SectionKind) -> Option<StreamError> {
        let has = |index: usize| self.pseudo[index].is_some();
        let is_ok = match section {
            SectionKind::Trailers => true,
            // RFC 9113 §8.6, RFC 9114 §4.5: there is no 101 (Switching Protocols).
            SectionKind::Response if has(STATUS) && !matches!(self.status(), Some(100 | 102..)) => {
                return Some(StreamError::Status);
            }
            SectionKind::Response => has(STATUS),
            SectionKind::Request if self.is_connect() && !has(PROTOCOL) => has(AUTHORITY) && !has(SCHEME) && !has(PATH),
            SectionKind::Request => {
                let is_connect = self.is_connect();
                let has_path = self.text(PATH).is_some_and(|path| !path.is_empty());
                has(METHOD) && has(SCHEME) && has_path && (has(PROTOCOL) == is_connect)
            }
        };
        (!is_ok).then_some(StreamError::PseudoMissing)
    }

    /// Joins Cookie fields that arrived in several lines, because handlers expect a single field (RFC 9113 §8.2.3).
    fn join_cookies(&mut self) {
        if self.cookies < 2 {
            return;
        }
        let start = self.scratch.len();
        let mut name = 0..0;
        self.lines.retain(|line| {
            if &self.scratch[line.name.clone()] != b"cookie" {
                return true;
            }
            if self.scratch.len() > start {
                self.scratch.extend_from_slice(b"; ");
            }
            self.scratch.extend_from_within(line.value.clone());
            name = line.name.clone();
            false
        });
        self.lines.push(FieldLine { name, value: start..self.scratch.len() });
    }

    const fn version(&self) -> Version {
        if self.is_http3 { Version::Http3 } else { Version::Http2 }
    }

    fn text(&self, index: usize) -> Option<&[u8]> {
        self.pseudo[index].clone().map(|range| &self.scratch[range])
    }

    /// Returns whether the section exceeds its limit. Its fields are then incomplete.
    pub const fn is_too_large(&self) -> bool {
        self.size_bytes > self.size_bytes_max
    }

    /// Returns whether the section exceeds its limit by the factor `EXCESS_FACTOR`.
    pub(crate) const fn is_excessive(&self) -> bool {
        self.size_bytes / EXCESS_FACTOR > self.size_bytes_max
    }

    /// Returns the first rule that the section violates, if any (RFC 9113 §8.1.1).
    pub const fn malformed(&self) -> Option<StreamError> {
        self.malformed
    }

    /// Returns the value of Content-Length.
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns the status code of a response, or `None` if it does not have three digits.
    pub fn status(&self) -> Option<u16> {
        let text = self.text(STATUS).filter(|text| text.len() == 3 && text.iter().all(u8::is_ascii_digit))?;
        Some(text.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
    }

    /// Returns the protocol of an extended CONNECT (RFC 8441).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.text(PROTOCOL)
    }

    /// Iterates over the fields, without pseudo-fields: the name in lower case, and the value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.lines.iter().filter_map(|line| {
            // A validated name is ASCII.
            let name = std::str::from_utf8(&self.scratch[line.name.clone()]).ok()?;
            Some((name, &self.scratch[line.value.clone()]))
        })
    }

    /// Returns the value of the first field called `name`.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Converts the section to a request head. `ends` is true if no content follows.
    pub fn request_head<'a>(
        &'a self,
        ends: bool,
        limits: &Limits,
        storage: &'a mut FieldStorage<'a>,
    ) -> Result<RequestHead<'a>, Refusal> {
        if self.is_too_large() {
            return Err(Refusal::HeadTooLarge);
        }
        if let Some(protocol) = self.protocol() {
            return self.upgrade_head(protocol, limits, storage);
        }
        let method = self.text(METHOD).unwrap_or_default();
        let authority = self.text(AUTHORITY);
        let target = match self.text(PATH) {
            Some(path) if method != b"CONNECT" => path,
            _ => authority.unwrap_or_default(),
        };
        self.check_scheme()?;
        let fields: Fields<'a> = storage.fill(self.iter(), self.lines.len());
        let mut head = assemble_request_head(method, target, authority, fields, limits)?;
        head.version = self.version();
        // The end of the stream delimits the content, not a field (RFC 9113 §8.1).
        head.framing = match (ends, head.framing) {
            (true, _) => Framing::None,
            (false, Framing::Length(length)) => Framing::Length(length),
            (false, _) => Framing::Chunked,
        };
        Ok(head)
    }

    /// Checks that the scheme is http or https (RFC 9110 §7.4). The server cannot tell which, as a proxy in front of it
    /// may terminate TLS.
    fn check_scheme(&self) -> Result<(), Refusal> {
        let is_known = |scheme: &[u8]| scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
        if self.text(SCHEME).is_none_or(is_known) { Ok(()) } else { Err(Refusal::TargetScheme) }
    }

    /// Converts an extended CONNECT (RFC 8441) to the head that a handler sees: the same upgrade over HTTP/1.1, without
    /// the handshake key, which HTTP/2 does not have (§5). No content precedes the tunnel.
    fn upgrade_head<'a>(
        &'a self,
        protocol: &[u8],
        limits: &Limits,
        storage: &'a mut FieldStorage<'a>,
    ) -> Result<RequestHead<'a>, Refusal> {
        const UPGRADE: [(&str, &[u8]); 2] = [("upgrade", b"websocket"), ("connection", b"Upgrade")];
        const LEFT_OUT: [&str; 3] = ["sec-websocket-key", "sec-websocket-accept", "content-length"];
        if protocol != b"websocket" {
            return Err(Refusal::ConnectProtocol);
        }
        self.check_scheme()?;
        let lines = || self.iter().filter(|(name, _)| !LEFT_OUT.contains(name)).chain(UPGRADE);
        let fields: Fields<'a> = storage.fill(lines(), lines().count());
        let (target, authority) = (self.text(PATH).unwrap_or_default(), self.text(AUTHORITY));
        let mut head = assemble_request_head(b"GET", target, authority, fields, limits)?;
        (head.version, head.framing) = (self.version(), Framing::None);
        Ok(head)
    }

    /// Formats a request line in HTTP/1.1 form, for logging a refused request.
    pub fn request_line(&self) -> Vec<u8> {
        let part = |index: usize| self.text(index).unwrap_or_default();
        let target = if part(PATH).is_empty() { part(AUTHORITY) } else { part(PATH) };
        [part(METHOD), b" ", target, b" ", self.version().as_str().as_bytes(), b"\r\n"].concat()
    }

    /// Returns whether the method is CONNECT. This includes extended CONNECT.
    pub(crate) fn is_connect(&self) -> bool {
        self.text(METHOD) == Some(b"CONNECT")
    }

    /// Returns whether the method is HEAD.
    pub fn is_head(&self) -> bool {
        self.text(METHOD) == Some(b"HEAD")
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldBlock, SectionKind};
    use crate::framing::Framing;
    use crate::head::FieldStorage;
    use crate::http2::hpack::{Decoder, encode_field};
    use crate::limits::Limits;
    use crate::refusal::Refusal;
    use crate::request::Method;

    fn block(section: SectionKind, fields: &[(&str, &str)]) -> FieldBlock {
        let mut encoded = Vec::new();
        for (name, value) in fields {
            encode_field(name.as_bytes(), value.as_bytes(), &mut encoded);
        }
        let mut block = FieldBlock::new();
        block.decode(&mut Decoder::new(), &encoded, section, 16 * 1024).unwrap();
        block
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "example.org"), (":path", "/a?b")];

    #[test]
    fn a_request_yields_the_head_of_http1() {
        let fields = [&GET[..], &[("cookie", "a=1"), ("x-a", "b"), ("cookie", "c=2")]].concat();
        let block = block(SectionKind::Request, &fields);
        let mut storage = FieldStorage::new();
        let head = block.request_head(true, &Limits::DEFAULT, &mut storage).unwrap();
        assert_eq!(
            (head.method.as_str(), head.target_text, head.host),
            ("GET", &b"/a?b"[..], Some(&b"example.org"[..]))
        );
        let lines: Vec<_> = head.fields.iter().collect();
        assert_eq!(lines, [("x-a", &b"b"[..]), ("cookie", b"a=1; c=2")]);
    }

    #[test]
    fn a_path_with_a_host_of_its_own_is_refused() {
        for path in ["https://other.example/a", "http://example.org/", "a", "//"] {
            let section = block(SectionKind::Request, &[&GET[..3], &[(":path", path)]].concat());
            let refused = section.request_head(true, &Limits::DEFAULT, &mut FieldStorage::new()).map(|_| ());
            // Two slashes are an empty segment, which is allowed.
            assert_eq!(refused, if path == "//" { Ok(()) } else { Err(Refusal::Target) }, "{path}");
        }
    }

    #[test]
    fn an_extended_connect_yields_the_upgrade_of_http1() {
        let connect = |protocol: &'static str| {
            let fields = [
                (":method", "CONNECT"),
                (":protocol", protocol),
                (":scheme", "https"),
                (":path", "/chat?a"),
                (":authority", "example.org"),
                ("sec-websocket-key", "forged"),
                ("sec-websocket-protocol", "chat"),
            ];
            block(SectionKind::Request, &fields)
        };
        let websocket = connect("websocket");
        assert_eq!(websocket.malformed(), None);
        let mut storage = FieldStorage::new();
        let head = websocket.request_head(false, &Limits::DEFAULT, &mut storage).unwrap();
        assert_eq!((head.method, head.target_text, head.framing), (Method::Get, &b"/chat?a"[..], Framing::None));
        let lines: Vec<_> = head.fields.iter().collect();
        let expected: [(&str, &[u8]); 3] =
            [("sec-websocket-protocol", b"chat"), ("upgrade", b"websocket"), ("connection", b"Upgrade")];
        assert_eq!(lines, expected);
        let other = connect("connect-udp");
        let refused = other.request_head(false, &Limits::DEFAULT, &mut FieldStorage::new()).map(|_| ());
        assert_eq!(refused, Err(Refusal::ConnectProtocol));
    }

    #[test]
    fn what_rfc_9113_forbids_is_malformed() {
        use SectionKind::{Request, Response, Trailers};
        let with = |more: &[(&'static str, &'static str)]| [&GET[..], more].concat();
        for (section, fields) in [
            (Request, with(&[("X-A", "b")])),
            (Request, with(&[("x a", "b")])),
            (Request, with(&[("", "b")])),
            (Request, with(&[("x", "a\rb")])),
            (Request, with(&[("x", " b")])),
            (Request, with(&[("x", "b\t")])),
            (Request, with(&[("connection", "close")])),
            (Request, with(&[("te", "gzip")])),
            (Request, with(&[(":path", "/")])),
            (Request, with(&[("x", "y"), (":protocol", "websocket")])),
            (Request, with(&[(":protocol", "websocket")])),
            (Request, with(&[(":status", "200")])),
            (Request, with(&[("content-length", "-1")])),
            (Request, with(&[("content-length", "+1")])),
            (Request, with(&[("content-length", "1"), ("content-length", "2")])),
            (Request, GET[..3].to_vec()),
            (Request, [&GET[..3], &[(":path", "")]].concat()),
            (Request, vec![(":method", "CONNECT")]),
            (Request, vec![(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")]),
            (Response, vec![]),
            (Response, vec![(":status", "20")]),
            (Response, vec![(":status", "200"), (":path", "/")]),
            (Trailers, vec![(":status", "200")]),
        ] {
            assert!(block(section, &fields).malformed().is_some(), "{section:?} {fields:?}");
        }
        for (section, fields) in [
            (Request, with(&[("te", "Trailers"), ("content-length", "1"), ("content-length", "1")])),
            (Request, vec![(":method", "CONNECT"), (":authority", "a:1")]),
            (Request, [&[(":method", "CONNECT"), (":protocol", "websocket")], &GET[1..]].concat()),
            (Response, vec![(":status", "103"), ("link", "<a>")]),
            (Trailers, vec![("grpc-status", "0")]),
        ] {
            assert_eq!(block(section, &fields).malformed(), None, "{section:?} {fields:?}");
        }
    }

    #[test]
    fn sections_beyond_their_limit_store_nothing() {
        let long = "c".repeat(3000);
        let fields: Vec<_> = std::iter::once(("x", &long[..])).chain([("y", &long[..]); 400]).collect();
        let block = block(SectionKind::Trailers, &fields);
        assert!(block.is_too_large() && block.is_excessive());
        assert!(block.scratch.len() <= 16 * 1024 + 3001, "{}", block.scratch.len());
    }
}
