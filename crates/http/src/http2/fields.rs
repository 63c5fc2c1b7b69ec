//! A decoded field section, validated as it is decoded (RFC 9113 §8.2, §8.3), and its conversion to the heads that
//! HTTP/1.1 yields.

use super::hpack::{Decoder, DecoderError};
use crate::framing::Framing;
use crate::head::{FieldStorage, Fields};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::request::{RequestHead, assemble_request_head};
use crate::token::{LOWER_TCHAR, is, parse_decimal};
use std::ops::Range;

/// Overhead that each field adds to the size of a section, in bytes (RFC 9113 §6.5.2).
const LINE_OVERHEAD_BYTES: usize = 32;

/// Sections beyond their limit are refused; those beyond this many times the limit end the connection.
const EXCESS_FACTOR: usize = 8;

/// The pseudo-fields, in the order of [`FieldBlock::pseudo`].
const PSEUDO_FIELDS: [&[u8]; 6] = [b":method", b":scheme", b":authority", b":path", b":protocol", b":status"];
const METHOD: usize = 0;
const SCHEME: usize = 1;
const AUTHORITY: usize = 2;
const PATH: usize = 3;
const PROTOCOL: usize = 4;
const STATUS: usize = 5;

/// Fields of the connection, which HTTP/2 does not have (RFC 9113 §8.2.2).
const CONNECTION_FIELDS: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];

/// The kind of message that a section belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// The head of a request.
    Request,
    /// The head of a response, also an interim one.
    Response,
    /// Trailers.
    Trailers,
}

#[derive(Clone, Debug)]
struct FieldLine {
    name: Range<usize>,
    value: Range<usize>,
}

/// A field section. One block serves all connections of a worker, so decoding allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct FieldBlock {
    /// Names and values.
    scratch: Vec<u8>,
    lines: Vec<FieldLine>,
    pseudo: [Option<Range<usize>>; PSEUDO_FIELDS.len()],
    /// Size as RFC 9113 §6.5.2 counts it.
    size_bytes: usize,
    size_bytes_max: usize,
    /// The first rule that the section violates.
    malformed: Option<&'static str>,
    content_length: Option<u64>,
    cookies: usize,
}

impl FieldBlock {
    /// An empty block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a section of at most `size_bytes_max`; see [`Self::is_too_large`].
    pub(super) fn decode(
        &mut self,
        decoder: &mut Decoder,
        block: &[u8],
        section: SectionKind,
        size_bytes_max: usize,
    ) -> Result<(), DecoderError> {
        self.scratch.clear();
        self.lines.clear();
        self.pseudo = Default::default();
        (self.size_bytes, self.size_bytes_max, self.cookies) = (0, size_bytes_max, 0);
        (self.malformed, self.content_length) = (None, None);
        // Moved out while the decoder writes into it.
        let mut scratch = std::mem::take(&mut self.scratch);
        let decoded = decoder.decode(block, &mut scratch, |scratch, name, value| {
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
            // The decoder goes on, to keep its table; what it yields is not stored.
            scratch.truncate(name.start);
            return;
        }
        if let Err(rule) = self.check(&scratch[name.clone()], &scratch[value.clone()], section) {
            self.malformed.get_or_insert(rule);
        }
        if let Some(index) = PSEUDO_FIELDS.iter().position(|pseudo| *pseudo == &scratch[name.clone()]) {
            if self.pseudo[index].replace(value).is_some() {
                self.malformed.get_or_insert("a pseudo-field occurs twice");
            }
        } else {
            self.cookies += usize::from(&scratch[name.clone()] == b"cookie");
            self.lines.push(FieldLine { name, value });
        }
    }

    /// Checks one field (RFC 9113 §8.2.1, §8.2.2, §8.3).
    fn check(&mut self, name: &[u8], value: &[u8], section: SectionKind) -> Result<(), &'static str> {
        if !value.iter().all(|&byte| byte >= b' ' && byte != 0x7f || byte == b'\t') {
            return Err("a value contains a control character");
        }
        if matches!(value.first(), Some(b' ' | b'\t')) || matches!(value.last(), Some(b' ' | b'\t')) {
            return Err("a value begins or ends with white space");
        }
        if name.first() == Some(&b':') {
            let is_known = match section {
                SectionKind::Request => PSEUDO_FIELDS[..STATUS].contains(&name),
                SectionKind::Response => name == PSEUDO_FIELDS[STATUS],
                SectionKind::Trailers => false,
            };
            return match is_known {
                false => Err("an unknown pseudo-field, or one that is not allowed here"),
                true if !self.lines.is_empty() => Err("a pseudo-field follows a field"),
                true => Ok(()),
            };
        }
        if name.is_empty() || !name.iter().all(|&byte| is(byte, LOWER_TCHAR)) {
            return Err("a field name is not a token in lower case");
        }
        if CONNECTION_FIELDS.contains(&name) || name == b"te" && !value.eq_ignore_ascii_case(b"trailers") {
            return Err("a connection-specific field");
        }
        if name == b"content-length" && section != SectionKind::Trailers {
            let length = parse_decimal(value);
            match (length, self.content_length) {
                (None, _) => return Err("an invalid Content-Length"),
                (length, Some(_)) if length != self.content_length => return Err("two values of Content-Length"),
                _ => self.content_length = length,
            }
        }
        Ok(())
    }

    /// Checks for required pseudo-fields (RFC 9113 §8.3.1, §8.3.2, §8.5; RFC 8441 §4).
    fn missing(&self, section: SectionKind) -> Option<&'static str> {
        let has = |index: usize| self.pseudo[index].is_some();
        let is_ok = match section {
            SectionKind::Trailers => true,
            SectionKind::Response => self.status().is_some(),
            SectionKind::Request if self.text(METHOD) == Some(b"CONNECT") && !has(PROTOCOL) => {
                has(AUTHORITY) && !has(SCHEME) && !has(PATH)
            }
            SectionKind::Request => {
                let is_connect = self.text(METHOD) == Some(b"CONNECT");
                let has_path = self.text(PATH).is_some_and(|path| !path.is_empty());
                has(METHOD) && has(SCHEME) && has_path && (has(PROTOCOL) == is_connect)
            }
        };
        (!is_ok).then_some("a required pseudo-field is missing, or one is not allowed here")
    }

    /// Joins Cookie fields that came in several lines, which a handler must see as one (RFC 9113 §8.2.3).
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

    fn text(&self, index: usize) -> Option<&[u8]> {
        self.pseudo[index].clone().map(|range| &self.scratch[range])
    }

    /// Returns whether the section exceeds its limit. Its fields are then incomplete.
    pub const fn is_too_large(&self) -> bool {
        self.size_bytes > self.size_bytes_max
    }

    /// Returns whether the section exceeds its limit many times.
    pub(super) const fn is_excessive(&self) -> bool {
        self.size_bytes / EXCESS_FACTOR > self.size_bytes_max
    }

    /// The first rule that the section violates, if any: a stream error (RFC 9113 §8.1.1).
    pub const fn malformed(&self) -> Option<&'static str> {
        self.malformed
    }

    /// The value of Content-Length.
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The status of a response, which has three digits.
    pub fn status(&self) -> Option<u16> {
        let text = self.text(STATUS).filter(|text| text.len() == 3 && text.iter().all(u8::is_ascii_digit))?;
        Some(text.iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0')))
    }

    /// The protocol of an extended CONNECT (RFC 8441).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.text(PROTOCOL)
    }

    /// The fields, without pseudo-fields: names in lower case, and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.lines.iter().filter_map(|line| {
            // A checked name is ASCII.
            let name = std::str::from_utf8(&self.scratch[line.name.clone()]).ok()?;
            Some((name, &self.scratch[line.value.clone()]))
        })
    }

    /// The value of the first field called `name`.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The head of a request. `ends` is true if no content follows.
    pub fn request_head<'a>(
        &'a self,
        ends: bool,
        limits: &Limits,
        storage: &'a mut FieldStorage<'a>,
    ) -> Result<RequestHead<'a>, Refusal> {
        if self.is_too_large() {
            return Err(Refusal::HeadTooLarge);
        }
        let method = self.text(METHOD).unwrap_or_default();
        let authority = self.text(AUTHORITY);
        let target = match self.text(PATH) {
            Some(path) if method != b"CONNECT" || self.protocol().is_some() => path,
            _ => authority.unwrap_or_default(),
        };
        // RFC 9110 §7.4. The server cannot tell whether a proxy in front of it terminated TLS.
        if let Some(scheme) = self.text(SCHEME)
            && !scheme.eq_ignore_ascii_case(b"http")
            && !scheme.eq_ignore_ascii_case(b"https")
        {
            return Err(Refusal::TargetScheme);
        }
        let fields: Fields<'a> = storage.fill(self.iter(), self.lines.len());
        let mut head = assemble_request_head(method, target, authority, fields, limits)?;
        // The end of the stream delimits the content (RFC 9113 §8.1), not a field.
        head.framing = match (ends, head.framing) {
            (true, _) => Framing::None,
            (false, Framing::Length(length)) => Framing::Length(length),
            (false, _) => Framing::Chunked,
        };
        Ok(head)
    }

    /// The log text of a refused request: a request line in HTTP/1.1 form.
    pub fn request_line(&self) -> Vec<u8> {
        let part = |index: usize| self.text(index).unwrap_or_default();
        let target = if part(PATH).is_empty() { part(AUTHORITY) } else { part(PATH) };
        [part(METHOD), b" ", target, b" HTTP/2.0\r\n"].concat()
    }

    /// Returns whether the request is a HEAD.
    pub fn is_head(&self) -> bool {
        self.text(METHOD) == Some(b"HEAD")
    }
}

#[cfg(test)]
mod tests {
    use super::{FieldBlock, SectionKind};
    use crate::head::FieldStorage;
    use crate::http2::hpack::{Decoder, encode_field};
    use crate::limits::Limits;

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
