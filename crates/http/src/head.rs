//! Head of a message: its end, line ends, and the field section of requests and responses.
//!
//! httparse parses the field lines. This module first refuses input that httparse tolerates (a bare LF), and
//! classifies its errors.

use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::token::{TCHAR, is, is_token, trim};
use httparse::EMPTY_HEADER;
pub use httparse::Header;
use memchr::{memchr, memchr_iter};

/// Field lines that need no heap. Browsers send 10 to 16; initialising more space per request costs more than a rare
/// allocation.
const FIELDS_INLINE: usize = 16;

/// Storage for the fields of one head, on the caller's stack; more than 16 fields allocate.
pub struct FieldStorage<'a> {
    inline: [Header<'a>; FIELDS_INLINE],
    overflow: Vec<Header<'a>>,
}

impl<'a> FieldStorage<'a> {
    /// Empty storage.
    pub const fn new() -> Self {
        Self { inline: [EMPTY_HEADER; FIELDS_INLINE], overflow: Vec::new() }
    }

    /// Stores `count` field lines received by other means than HTTP/1.1, already validated.
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
        Fields(&storage[..filled])
    }
}

impl Default for FieldStorage<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Field lines of one head in the order received.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [Header<'a>]);

impl<'a> Fields<'a> {
    /// No fields.
    pub const EMPTY: Self = Fields(&[]);

    /// Field lines received by other means than HTTP/1.1, already validated.
    pub const fn from_lines(lines: &'a [Header<'a>]) -> Self {
        Fields(lines)
    }

    /// Number of lines.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no lines.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over all lines: name as received, value without surrounding white space.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        self.0.iter().map(|header| (header.name, header.value))
    }

    /// Values of all lines called `name`, case-insensitive.
    pub fn all(&self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.iter().filter(move |(line_name, _)| line_name.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Value of the first line called `name`.
    pub fn first(&self, name: &'a str) -> Option<&'a [u8]> {
        self.all(name).next()
    }
}

/// End of a head and of its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadEnd {
    /// Length of the first line with its CR LF.
    pub line_bytes: usize,
    /// Length of the head with its empty line.
    pub head_bytes: usize,
}

/// Finds the end of the head at the start of `bytes`. `None`: more bytes are needed.
///
/// Every LF must follow a CR: RFC 9112 §2.2 permits a bare LF, but input that implementations interpret differently is
/// refused. The result depends only on the bytes, not on how they were split into receives.
pub fn find_end(bytes: &[u8], limits: &Limits, line_too_long: Refusal) -> Result<Option<HeadEnd>, Refusal> {
    let line_bytes_max = (limits.target_bytes_max + limits.method_bytes_max + 16).min(limits.head_bytes_max);
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
            return Ok(Some(HeadEnd { line_bytes, head_bytes: line_feed + 1 }));
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

/// Parses a field section. `section` contains the lines and the final empty line, all ending in CR LF.
pub fn parse_fields<'a>(
    section: &'a [u8],
    limits: &Limits,
    storage: &'a mut FieldStorage<'a>,
) -> Result<Fields<'a>, Refusal> {
    match httparse::parse_headers(section, &mut storage.inline) {
        Ok(httparse::Status::Complete((_, _))) => {}
        Err(httparse::Error::TooManyHeaders) if limits.fields_max > FIELDS_INLINE => {
            storage.overflow.resize(limits.fields_max, EMPTY_HEADER);
            match httparse::parse_headers(section, &mut storage.overflow) {
                Ok(httparse::Status::Complete((_, _))) => {}
                Err(httparse::Error::TooManyHeaders) => return Err(Refusal::FieldsTooMany),
                _ => return Err(name_field_error(section)),
            }
            let count = storage.overflow.iter().take_while(|header| !header.name.is_empty()).count();
            return Ok(Fields(&storage.overflow[..count]));
        }
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::FieldsTooMany),
        _ => return Err(name_field_error(section)),
    }
    let count = storage.inline.iter().take_while(|header| !header.name.is_empty()).count();
    if count > limits.fields_max {
        return Err(Refusal::FieldsTooMany);
    }
    Ok(Fields(&storage.inline[..count]))
}

/// Classifies the first invalid line of a section that httparse refused.
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

/// Parses one field line without its CR LF (RFC 9112 §5).
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

/// Options in the `Connection` fields of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// `close` (RFC 9112 §9.6).
    pub close: bool,
    /// `keep-alive` (RFC 9112 §9.3, for HTTP/1.0).
    pub keep_alive: bool,
}

impl ConnectionOptions {
    /// Adds the value of one field line: a list of tokens (RFC 9110 §7.6.1). Empty elements are skipped (§5.6.1).
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
    use super::{ConnectionOptions, FieldStorage, check_field_line, find_end, parse_fields};
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

    #[test]
    fn limits_name_what_was_too_long() {
        let long_target = [&b"GET /"[..], &vec![b'a'; 9000], b" HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(end(&long_target), Err(Refusal::TargetTooLong));
        let long_field = [&b"GET / HTTP/1.1\r\nA: "[..], &vec![b'a'; 17_000], b"\r\n\r\n"].concat();
        assert_eq!(end(&long_field), Err(Refusal::HeadTooLarge));
        assert_eq!(end(&long_field[..17_000]), Err(Refusal::HeadTooLarge));
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

    /// httparse reads 16 or 32 bytes at once where it can; wherever a byte stands, it must decide as our grammar does.
    #[test]
    fn httparse_and_the_grammar_agree_on_every_byte_everywhere() {
        for length in (1..=66).chain([97, 130]) {
            for at in 0..length {
                for byte in 0..=255_u8 {
                    let mut line = vec![b'a'; length];
                    line[at] = byte;
                    for line in [[&line[..], b": b"].concat(), [&b"A:"[..], &line].concat()] {
                        let section = [&line[..], b"\r\n\r\n"].concat();
                        // A line feed ends the line; what stands behind it was refused before.
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
