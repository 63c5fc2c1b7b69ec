//! Message heads: where a head ends, how its lines end, and the field section of requests and responses.
//!
//! httparse parses the field lines. This module refuses input that httparse tolerates, such as a bare LF, and
//! classifies the errors of httparse.

use crate::limits::Limits;
use crate::lines::write_line;
use crate::refusal::Refusal;
use crate::token::{TCHAR, is, is_token, trim};
use httparse::EMPTY_HEADER;
pub use httparse::Header;
use memchr::{memchr, memchr_iter};
use std::fmt;
use std::ops::Range;

/// Number of field lines that need no heap allocation. Browsers send 10 to 16; initialising more space for every
/// request would cost more than a rare allocation.
const FIELDS_INLINE: usize = 16;

/// Storage for the fields of one head, on the caller's stack. More than 16 fields are allocated on the heap.
pub struct FieldStorage<'a> {
    inline: [Header<'a>; FIELDS_INLINE],
    overflow: Vec<Header<'a>>,
}

impl<'a> FieldStorage<'a> {
    /// Creates empty storage.
    pub const fn new() -> Self {
        Self { inline: [EMPTY_HEADER; FIELDS_INLINE], overflow: Vec::new() }
    }

    /// Stores `count` field lines that were not received as HTTP/1.1 and are already validated.
    pub fn fill(&'a mut self, lines: impl Iterator<Item = (&'a str, &'a [u8])>, count: usize) -> Fields<'a> {
        let storage = if count <= FIELDS_INLINE {
            &mut self.inline[..count]
        } else {
            self.overflow.resize(count, EMPTY_HEADER);
            &mut self.overflow[..]
        };
        let mut filled = 0;
        for (header, (name, value)) in storage.iter_mut().zip(lines) {
            *header = Header { name, value };
            filled += 1;
        }
        Fields::from_lines(&storage[..filled])
    }
}

impl Default for FieldStorage<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// The names of a head's fields as a bitmap, so that most lookups of absent fields need no scan. Different names may
/// share a bit.
#[derive(Clone, Copy)]
struct NameSet(u64);

impl NameSet {
    /// Returns the bit of `name`. Names that differ only in case have the same bit.
    const fn bit(name: &str) -> u64 {
        match name.as_bytes() {
            [] => 0,
            bytes @ ([first, .., last] | [first @ last]) => {
                let hash = bytes.len().wrapping_mul(5) ^ ((*first | 0x20) as usize) ^ ((*last | 0x20) as usize) << 1;
                1 << (hash % u64::BITS as usize)
            }
        }
    }

    /// Returns the set of the names of `lines`.
    const fn of(lines: &[Header<'_>]) -> Self {
        let (mut bits, mut index) = (0, 0);
        while index < lines.len() {
            bits |= Self::bit(lines[index].name);
            index += 1;
        }
        Self(bits)
    }

    /// Returns whether a field called `name` may be present. If false, there is certainly none.
    const fn may_contain(self, name: &str) -> bool {
        self.0 & Self::bit(name) != 0
    }
}

/// Field lines of one head, in the order received.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    lines: &'a [Header<'a>],
    names: NameSet,
    /// The field section as received, with its final empty line. Empty if it was not received as HTTP/1.1.
    section: &'a [u8],
}

impl<'a> Fields<'a> {
    /// No fields.
    pub const EMPTY: Self = Self::from_lines(&[]);

    /// Creates fields from lines that were not received as HTTP/1.1 and are already validated.
    pub const fn from_lines(lines: &'a [Header<'a>]) -> Self {
        Fields { lines, names: NameSet::of(lines), section: &[] }
    }

    /// Returns the field section as received, with its final empty line. Empty if it was not received as HTTP/1.1.
    pub const fn section(&self) -> &'a [u8] {
        self.section
    }

    /// Returns the number of lines.
    pub const fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether there are no lines.
    pub const fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Iterates over all lines: the name as received, and the value without surrounding white space.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.lines.iter().map(|header| (header.name, header.value))
    }

    /// Returns the values of all lines called `name`, ignoring case.
    pub fn all(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let lines = if self.names.may_contain(name) { self.lines } else { &[] };
        lines.iter().filter(move |line| line.name.eq_ignore_ascii_case(name)).map(|line| line.value)
    }

    /// Returns the value of the first line called `name`, ignoring case.
    pub fn first(&self, name: &'a str) -> Option<&'a [u8]> {
        self.all(name).next()
    }

    /// Appends each line for which `keep` returns true to `out`, as `Name: value` and CR LF. Consecutive lines that
    /// were received in this form are copied in one piece.
    pub fn copy_lines(&self, out: &mut Vec<u8>, mut keep: impl FnMut(&'a str, &'a [u8]) -> bool) {
        out.reserve(self.section.len());
        let mut run = 0..0;
        for line in self.lines {
            if !keep(line.name, line.value) {
                continue;
            }
            let place = self.place(line);
            if let Some(place) = &place
                && place.start == run.end
            {
                run.end = place.end;
                continue;
            }
            out.extend_from_slice(&self.section[std::mem::take(&mut run)]);
            match place {
                Some(place) => run = place,
                None => write_line(line.name.as_bytes(), line.value, out),
            }
        }
        out.extend_from_slice(&self.section[run]);
    }

    /// Returns the range of a line in the section if it was received as `Name: value` and CR LF. The parser has found a
    /// colon after the name, and the end of the line after the value, but white space around the value may vary.
    #[inline]
    fn place(&self, line: &Header<'_>) -> Option<Range<usize>> {
        let offset = |part: &[u8]| (part.as_ptr() as usize).wrapping_sub(self.section.as_ptr() as usize);
        let (start, value_at) = (offset(line.name.as_bytes()), offset(line.value));
        let end = value_at.wrapping_add(line.value.len());
        let is_canonical = value_at == start.wrapping_add(line.name.len() + 2)
            && self.section.get(value_at - 1) == Some(&b' ')
            && self.section.get(end) == Some(&b'\r');
        is_canonical.then_some(start..end + 2)
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.lines).finish()
    }
}

/// Where a head and its first line end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadEnd {
    /// Length of the first line with its CR LF.
    pub line_bytes: usize,
    /// Length of the head with its empty line.
    pub head_bytes: usize,
    /// Number of fields in the inline storage, if they have been parsed.
    parsed: Option<usize>,
}

/// Finds the end of the head at the start of `bytes`. Returns `None` if more bytes are needed.
///
/// Every LF must follow a CR: RFC 9112 §2.2 permits a bare LF, but input that implementations interpret differently is
/// refused. The result depends only on the bytes, not on how they were split between receive calls.
pub fn find_end(bytes: &[u8], limits: &Limits, line_too_long: Refusal) -> Result<Option<HeadEnd>, Refusal> {
    let line_bytes_max = first_line_bytes_max(limits);
    let (mut line_start, mut line_bytes) = (0, 0);
    for line_feed in memchr_iter(b'\n', bytes) {
        if line_start == 0 && line_feed >= line_bytes_max {
            return Err(line_too_long);
        }
        if line_feed >= limits.head_bytes_max {
            return Err(Refusal::HeadTooLarge);
        }
        if line_feed == 0 || bytes[line_feed - 1] != b'\r' {
            return Err(Refusal::BareLf);
        }
        if line_feed == line_start + 1 && line_start > 0 {
            return Ok(Some(HeadEnd { line_bytes, head_bytes: line_feed + 1, parsed: None }));
        }
        line_start = line_feed + 1;
        if line_bytes == 0 {
            line_bytes = line_start;
        }
    }
    if line_start == 0 && bytes.len() > line_bytes_max {
        return Err(line_too_long);
    }
    if bytes.len() > limits.head_bytes_max {
        return Err(Refusal::HeadTooLarge);
    }
    Ok(None)
}

/// Finds the end of the head at the start of `bytes`. Returns `None` if more bytes are needed. Parses an ordinary head
/// in the same pass, and searches any other head with [`find_end`]. `line_bytes` is the length of the first line with
/// its LF, if known.
pub(crate) fn read_end<'a>(
    bytes: &'a [u8],
    line_bytes: Option<usize>,
    limits: &Limits,
    line_too_long: Refusal,
    storage: &mut FieldStorage<'a>,
) -> Result<Option<HeadEnd>, Refusal> {
    let line_bytes = line_bytes.or_else(|| Some(memchr(b'\n', bytes)? + 1));
    match line_bytes.and_then(|line_bytes| parse_ordinary(bytes, line_bytes, limits, storage)) {
        Some(end) => Ok(Some(end)),
        None => find_end(bytes, limits, line_too_long),
    }
}

/// Returns the fields of a head whose end [`read_end`] found.
pub(crate) fn read_fields<'a>(
    bytes: &'a [u8],
    end: HeadEnd,
    limits: &Limits,
    storage: &'a mut FieldStorage<'a>,
) -> Result<Fields<'a>, Refusal> {
    let section = &bytes[end.line_bytes..end.head_bytes];
    match end.parsed {
        Some(count) => fields_of(section, count, limits, storage),
        None => parse_fields(section, limits, storage),
    }
}

/// Parses a complete head whose lines all end in CR LF and fit the inline storage. Returns `None` for any other head.
fn parse_ordinary<'a>(
    bytes: &'a [u8],
    line_bytes: usize,
    limits: &Limits,
    storage: &mut FieldStorage<'a>,
) -> Option<HeadEnd> {
    let section = &bytes[line_bytes..];
    let Ok(httparse::Status::Complete((section_bytes, lines))) = httparse::parse_headers(section, &mut storage.inline)
    else {
        return None;
    };
    let head_bytes = line_bytes + section_bytes;
    let ends_line = |at: usize| at >= 2 && bytes[at - 2] == b'\r';
    let start = section.as_ptr() as usize;
    let is_ordinary = line_bytes < first_line_bytes_max(limits)
        && head_bytes <= limits.head_bytes_max
        && ends_line(head_bytes)
        && lines.iter().map(|line| line.name.as_ptr() as usize - start + line_bytes).all(ends_line)
        && ends_line(head_bytes - 2);
    is_ordinary.then_some(HeadEnd { line_bytes, head_bytes, parsed: Some(lines.len()) })
}

/// Returns the maximum length of the first line, in bytes.
fn first_line_bytes_max(limits: &Limits) -> usize {
    (limits.target_bytes_max + limits.method_bytes_max + 16).min(limits.head_bytes_max)
}

/// Returns the first `count` fields in the inline storage.
fn fields_of<'a>(
    section: &'a [u8],
    count: usize,
    limits: &Limits,
    storage: &'a FieldStorage<'a>,
) -> Result<Fields<'a>, Refusal> {
    if count > limits.fields_max {
        return Err(Refusal::FieldsTooMany);
    }
    let lines = &storage.inline[..count];
    Ok(Fields { lines, names: NameSet::of(lines), section })
}

/// Parses a field section. `section` contains the field lines and the final empty line, all ending in CR LF.
pub fn parse_fields<'a>(
    section: &'a [u8],
    limits: &Limits,
    storage: &'a mut FieldStorage<'a>,
) -> Result<Fields<'a>, Refusal> {
    let count = match httparse::parse_headers(section, &mut storage.inline) {
        Ok(httparse::Status::Complete((_, lines))) => lines.len(),
        Err(httparse::Error::TooManyHeaders) if limits.fields_max > FIELDS_INLINE => {
            storage.overflow.resize(limits.fields_max, EMPTY_HEADER);
            let count = match httparse::parse_headers(section, &mut storage.overflow) {
                Ok(httparse::Status::Complete((_, lines))) => lines.len(),
                Err(httparse::Error::TooManyHeaders) => return Err(Refusal::FieldsTooMany),
                _ => return Err(name_field_error(section)),
            };
            let lines = &storage.overflow[..count];
            return Ok(Fields { lines, names: NameSet::of(lines), section });
        }
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::FieldsTooMany),
        _ => return Err(name_field_error(section)),
    };
    fields_of(section, count, limits, storage)
}

/// Returns the refusal for the first invalid line of a section that httparse refused.
fn name_field_error(section: &[u8]) -> Refusal {
    for line in section.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        if let Err(refusal) = check_field_line(line) {
            return refusal;
        }
    }
    Refusal::FieldValue
}

/// Parses one field line without its CR LF into its name and value (RFC 9112 §5).
pub(crate) fn check_field_line(line: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(Refusal::ObsFold);
    }
    let Some(colon) = memchr(b':', line) else {
        return Err(if memchr(b'\r', line).is_some() { Refusal::BareCr } else { Refusal::ColonMissing });
    };
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if matches!(name.last(), Some(b' ' | b'\t')) {
        return Err(Refusal::SpaceBeforeColon);
    }
    if !is_token(name) {
        return Err(if memchr(b'\r', name).is_some() { Refusal::BareCr } else { Refusal::FieldName });
    }
    for &byte in value {
        if byte == b'\r' {
            return Err(Refusal::BareCr);
        }
        if (byte < b' ' && byte != b'\t') || byte == 0x7f {
            return Err(Refusal::FieldValue);
        }
    }
    Ok((name, trim(value)))
}

/// Options in the Connection fields of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// `close` (RFC 9112 §9.6).
    pub close: bool,
    /// `keep-alive` (RFC 9112 §9.3, for HTTP/1.0).
    pub keep_alive: bool,
}

impl ConnectionOptions {
    /// Adds the options of one Connection line: a list of tokens (RFC 9110 §7.6.1), whose empty elements are skipped
    /// (§5.6.1).
    pub fn add(&mut self, value: &[u8]) -> Result<(), Refusal> {
        for option in value.split(|&byte| byte == b',').map(trim).filter(|option| !option.is_empty()) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if !option.iter().all(|&byte| is(byte, TCHAR)) {
                return Err(Refusal::ConnectionInvalid);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ConnectionOptions, FieldStorage, HeadEnd, Header, check_field_line, find_end, parse_fields, parse_ordinary,
    };
    use crate::limits::Limits;
    use crate::refusal::Refusal;

    fn end(bytes: &[u8]) -> Result<Option<usize>, Refusal> {
        let end = find_end(bytes, &Limits::DEFAULT, Refusal::TargetTooLong)?;
        Ok(end.map(|end| end.head_bytes))
    }

    #[test]
    fn the_end_is_the_first_empty_line() {
        assert_eq!(end(b"GET / HTTP/1.0\r\n\r\nrest"), Ok(Some(18)));
        assert_eq!(end(b"GET / HTTP/1.0\r\n"), Ok(None));
        assert_eq!(end(b""), Ok(None));
        assert_eq!(end(b"a\n"), Err(Refusal::BareLf));
        assert_eq!(end(b"a\r\nb\n\r\n"), Err(Refusal::BareLf));
        assert_eq!(end(b"a\r\nb\r\n\n"), Err(Refusal::BareLf));
    }

    fn parse_line_and_fields<'a>(text: &'a [u8], limits: &Limits, storage: &mut FieldStorage<'a>) -> Option<HeadEnd> {
        let line_bytes = text.iter().position(|&byte| byte == b'\n')? + 1;
        parse_ordinary(text, line_bytes, limits, storage)
    }

    #[test]
    fn ordinary_heads_are_those_that_both_passes_accept() {
        let texts: [&[u8]; 19] = [
            b"",
            b"\r\n\r\n",
            b"\r\nA: b\r\n\r\n",
            b"GET / HTTP/1.1\r\n: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest",
            b"GET / HTTP/1.1\r\nA:b \r\nC:\r\n\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n",
            b"GET / HTTP/1.1\nA: b\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n\n",
            b"GET / HTTP/1.1\n\r\n",
            b"GET / HTTP/1.1\r\n\n",
            b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\r\n\r\n",
            b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
            b"\n\r\n",
        ];
        for text in texts {
            let mut storage = FieldStorage::new();
            let ordinary = parse_line_and_fields(text, &Limits::DEFAULT, &mut storage).map(|end| end.head_bytes);
            let end = find_end(text, &Limits::DEFAULT, Refusal::TargetTooLong);
            let both = end.ok().flatten().filter(|end| {
                let section = &text[end.line_bytes..end.head_bytes];
                parse_fields(section, &Limits::DEFAULT, &mut FieldStorage::new()).is_ok()
            });
            assert_eq!(ordinary, both.map(|end| end.head_bytes), "{:?}", String::from_utf8_lossy(text));
        }
        let limits = Limits { head_bytes_max: 30, ..Limits::DEFAULT };
        for (text, is_ordinary) in
            [(&b"GET / HTTP/1.1\r\nA: bcdefgh\r\n\r\n"[..], true), (b"GET / HTTP/1.1\r\nA: bcdefghi\r\n\r\n", false)]
        {
            assert_eq!(parse_line_and_fields(text, &limits, &mut FieldStorage::new()).is_some(), is_ordinary);
        }
    }

    #[test]
    fn lines_are_copied_as_received_or_in_the_usual_form() {
        let mut storage = FieldStorage::new();
        let section = b"A: 1\r\nB:2\r\nC: \r\nD: 4 \r\ne: 5\r\nF: 6\r\n\r\n";
        let fields = parse_fields(section, &Limits::DEFAULT, &mut storage).unwrap();
        let copy = |skipped: &str| {
            let mut out = b"x".to_vec();
            fields.copy_lines(&mut out, |name, _| !skipped.contains(name));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(copy(""), "xA: 1\r\nB: 2\r\nC: \r\nD: 4\r\ne: 5\r\nF: 6\r\n");
        assert_eq!(copy("AF"), "xB: 2\r\nC: \r\nD: 4\r\ne: 5\r\n");
        assert_eq!(copy("Be"), "xA: 1\r\nC: \r\nD: 4\r\nF: 6\r\n");
        assert_eq!(copy("ABCDeF"), "x");
        let lines: Vec<_> = fields.iter().map(|(name, value)| Header { name, value }).collect();
        let mut out = Vec::new();
        super::Fields::from_lines(&lines[..2]).copy_lines(&mut out, |_, _| true);
        assert_eq!(out, b"A: 1\r\nB: 2\r\n");
    }

    #[test]
    fn limits_name_what_was_too_long() {
        let long_target = [&b"GET /"[..], &vec![b'a'; 17_000], b" HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(end(&long_target), Err(Refusal::TargetTooLong));
        let long_field = [&b"GET / HTTP/1.1\r\nA: "[..], &vec![b'a'; 33_000], b"\r\n\r\n"].concat();
        assert_eq!(end(&long_field), Err(Refusal::HeadTooLarge));
        assert_eq!(end(&long_field[..33_000]), Err(Refusal::HeadTooLarge));
    }

    fn fields_error(section: &[u8]) -> Option<Refusal> {
        parse_fields(section, &Limits::DEFAULT, &mut FieldStorage::new()).err()
    }

    #[test]
    fn every_wrong_line_has_its_name() {
        for (section, refusal) in [
            (&b"A: b\r\n c\r\n\r\n"[..], Refusal::ObsFold),
            (b" A: b\r\n\r\n", Refusal::ObsFold),
            (b"A : b\r\n\r\n", Refusal::SpaceBeforeColon),
            (b"A\t: b\r\n\r\n", Refusal::SpaceBeforeColon),
            (b": b\r\n\r\n", Refusal::FieldName),
            (b"A(: b\r\n\r\n", Refusal::FieldName),
            (b"A\0: b\r\n\r\n", Refusal::FieldName),
            (b"A b\r\n\r\n", Refusal::ColonMissing),
            (b"A: b\0\r\n\r\n", Refusal::FieldValue),
            (b"A: b\x7f\r\n\r\n", Refusal::FieldValue),
            (b"A: b\rc\r\n\r\n", Refusal::BareCr),
            (b"A: b\r\r\n\r\n", Refusal::BareCr),
            (b"A\r: b\r\n\r\n", Refusal::BareCr),
        ] {
            assert_eq!(fields_error(section), Some(refusal), "{:?}", String::from_utf8_lossy(section));
        }
    }

    /// httparse checks 16 or 32 bytes at once where it can. Wherever a byte is, httparse must agree with this module's
    /// grammar.
    #[test]
    fn httparse_and_the_grammar_agree_on_every_byte_everywhere() {
        for length in (1..=66).chain([97, 130]) {
            for at in 0..length {
                for byte in 0..=255_u8 {
                    let mut line = vec![b'a'; length];
                    line[at] = byte;
                    for line in [[&line[..], b": b"].concat(), [&b"A:"[..], &line].concat()] {
                        let section = [&line[..], b"\r\n\r\n"].concat();
                        // A line feed ends the line, and the rest of the section was refused before.
                        if byte == b'\n' {
                            continue;
                        }
                        let ours = check_field_line(&line).map(|(name, value)| (name.to_vec(), value.to_vec()));
                        let mut storage = FieldStorage::new();
                        let theirs = parse_fields(&section, &Limits::DEFAULT, &mut storage).map(|fields| {
                            let (name, value) = fields.iter().next().unwrap();
                            (name.as_bytes().to_vec(), value.to_vec())
                        });
                        assert_eq!(theirs, ours, "{:?}", String::from_utf8_lossy(&section));
                    }
                }
            }
        }
    }

    #[test]
    fn many_fields_are_read_up_to_the_limit() {
        let section = |count: usize| [b"A: b\r\n".repeat(count), b"\r\n".to_vec()].concat();
        for count in [0, 1, 15, 16, 17, 99, 100] {
            let section = section(count);
            let mut storage = FieldStorage::new();
            let fields = parse_fields(&section, &Limits::DEFAULT, &mut storage).unwrap();
            assert_eq!(fields.len(), count);
        }
        assert_eq!(fields_error(&section(101)), Some(Refusal::FieldsTooMany));
    }

    #[test]
    fn values_keep_what_the_grammar_allows() {
        let mut storage = FieldStorage::new();
        let section = b"a:\t x\ty \xff \r\nB:\r\nb: 2\r\n\r\n";
        let fields = parse_fields(section, &Limits::DEFAULT, &mut storage).unwrap();
        let lines: Vec<_> = fields.iter().collect();
        assert_eq!(lines, [("a", &b"x\ty \xff"[..]), ("B", b""), ("b", b"2")]);
        assert_eq!(fields.all("b").count(), 2);
        assert_eq!(fields.first("A"), Some(&b"x\ty \xff"[..]));
    }

    #[test]
    fn connection_options_are_tokens() {
        let mut options = ConnectionOptions::default();
        options.add(b", Keep-Alive,,x").unwrap();
        assert!(options.keep_alive && !options.close);
        options.add(b"CLOSE").unwrap();
        assert!(options.close);
        assert_eq!(options.add(b"a b"), Err(Refusal::ConnectionInvalid));
        assert_eq!(options.add(b"close;x"), Err(Refusal::ConnectionInvalid));
    }
}
