//! From the path of a target to the one form that rules and files are matched by.
//!
//! The form is percent-decoded once, has no `.` and `..`, no empty segments and no first slash. An encoded slash is part of a
//! segment, which keeps it as [`SLASH_IN_SEGMENT`]. Other servers read some paths differently: they take `%2F` or `\` for a
//! separator, or drop what follows a `;`. [`Readings`] names those ways, and [`decode_as`] gives the form under each, so that
//! whoever matches rules can refuse a path for which they disagree.

use crate::refusal::Refusal;
use crate::token::{PATH, hex_value, is};
use memchr::{memchr, memchr2};
use std::borrow::Cow;

/// Stands in a decoded path for a slash that belongs to a segment. No decoded path holds a NUL otherwise.
pub const SLASH_IN_SEGMENT: u8 = 0;

/// What a decoded path needs to know beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// A segment but the last was empty (`//`).
    pub empty_segment: bool,
    /// A segment `.` or `..` was resolved.
    pub dot_segment: bool,
    /// A percent-encoded slash: it is part of a name, and no file's name can hold one.
    pub encoded_slash: bool,
    /// A segment begins with a dot, other than a first segment `.well-known` (RFC 8615).
    pub hidden_segment: bool,
    /// How others may read the path.
    pub readings: Readings,
}

/// Ways to read a path in which servers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings(u8);

impl Readings {
    /// RFC 3986: slashes separate, and nothing else does.
    pub const NONE: Self = Self(0);
    /// `%2F` separates segments.
    pub const ENCODED_SLASH: Self = Self(1);
    /// `%5C` separates segments.
    pub const ENCODED_BACKSLASH: Self = Self(2);
    /// `\` separates segments, as in browsers (WHATWG URL, "path state").
    pub const BACKSLASH: Self = Self(4);
    /// `..` removes an empty segment as it does any other, instead of what stands before it.
    pub const EMPTY_SEGMENTS: Self = Self(8);
    /// What follows a `;` in a segment is its parameters and not its name (RFC 2396 §3.3; Java's servlets still do).
    pub const PARAMETERS: Self = Self(16);

    /// Whether all of `other` are among them.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Every combination of them, but none of them at all: up to 31.
    pub fn combinations(self) -> impl Iterator<Item = Self> {
        (1..=self.0).filter(move |&bits| bits & !self.0 == 0).map(Self)
    }
}

/// Decodes `path`, which begins with `/`, into `decoded`. A percent sign that begins no encoding stands for itself.
///
/// # Errors
/// [`Refusal::TargetNul`] for `%00`, [`Refusal::PathAboveRoot`] where `..` leads above the root.
pub fn decode_path(path: &[u8], decoded: &mut Vec<u8>) -> Result<PathFacts, Refusal> {
    let mut facts = PathFacts::default();
    decoded.clear();
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    if let Some(at) = memchr2(b'\\', b';', rest) {
        for (byte, reading) in [(b'\\', Readings::BACKSLASH), (b';', Readings::PARAMETERS)] {
            if memchr(byte, &rest[at..]).is_some() {
                facts.readings = facts.readings.with(reading);
            }
        }
    }
    while let Some(at) = memchr(b'%', rest) {
        decoded.extend_from_slice(&rest[..at]);
        let Some(byte) = decode_byte(&rest[at..]) else {
            decoded.push(b'%');
            rest = &rest[at + 1..];
            continue;
        };
        match byte {
            0 => return Err(Refusal::TargetNul),
            b'/' => {
                facts.encoded_slash = true;
                facts.readings = facts.readings.with(Readings::ENCODED_SLASH);
                decoded.push(SLASH_IN_SEGMENT);
            }
            b'\\' => {
                facts.readings = facts.readings.with(Readings::ENCODED_BACKSLASH);
                decoded.push(b'\\');
            }
            byte => decoded.push(byte),
        }
        rest = &rest[at + 3..];
    }
    decoded.extend_from_slice(rest);
    note_segments(decoded, &mut facts);
    if facts.dot_segment || facts.empty_segment {
        let climbs = facts.dot_segment && decoded.split(|&byte| byte == b'/').any(|segment| segment == b"..");
        if facts.empty_segment && climbs {
            facts.readings = facts.readings.with(Readings::EMPTY_SEGMENTS);
        }
        resolve(decoded, false)?;
        facts.hidden_segment = false;
        note_segments(decoded, &mut facts);
    }
    Ok(facts)
}

/// Decodes `path` into `decoded` as somebody would who reads it in all the ways that `readings` names.
///
/// # Errors
/// As [`decode_path`]: a path may lead above the root in one reading only.
pub fn decode_as(path: &[u8], readings: Readings, decoded: &mut Vec<u8>) -> Result<(), Refusal> {
    decoded.clear();
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    let mut in_parameters = false;
    while let [byte, after @ ..] = rest {
        let encoded = if *byte == b'%' { decode_byte(rest) } else { None };
        rest = if encoded.is_some() { &rest[3..] } else { after };
        let (byte, separates) = match (encoded, *byte) {
            (Some(0), _) => return Err(Refusal::TargetNul),
            (Some(b'/'), _) => (SLASH_IN_SEGMENT, readings.has(Readings::ENCODED_SLASH)),
            (Some(b'\\'), _) => (b'\\', readings.has(Readings::ENCODED_BACKSLASH)),
            (Some(byte), _) => (byte, false),
            (None, b'\\') => (b'\\', readings.has(Readings::BACKSLASH)),
            (None, byte) => (byte, byte == b'/'),
        };
        in_parameters |= byte == b';' && encoded.is_none() && readings.has(Readings::PARAMETERS);
        if separates {
            in_parameters = false;
            decoded.push(b'/');
        } else if !in_parameters {
            decoded.push(byte);
        }
    }
    resolve(decoded, readings.has(Readings::EMPTY_SEGMENTS))
}

/// The byte that the percent-encoding at the beginning of `bytes` stands for, if there is one.
fn decode_byte(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [b'%', high, low, ..] => Some(hex_value(*high)? << 4 | hex_value(*low)?),
        _ => None,
    }
}

/// Looks at the segments of a decoded path.
fn note_segments(decoded: &[u8], facts: &mut PathFacts) {
    let mut segments = decoded.split(|&byte| byte == b'/').peekable();
    let mut first = true;
    while let Some(segment) = segments.next() {
        match segment {
            b"." | b".." => facts.dot_segment = true,
            b".well-known" if first => {}
            [b'.', ..] => facts.hidden_segment = true,
            [] => facts.empty_segment |= segments.peek().is_some(),
            _ => {}
        }
        first = false;
    }
}

/// Removes dot segments (RFC 3986 §5.2.4) and empty ones from a decoded path. Unless `keeps_empty`, the empty ones go first, so
/// that `..` does not remove one of them.
fn resolve(decoded: &mut Vec<u8>, keeps_empty: bool) -> Result<(), Refusal> {
    // What is written is empty, or ends with a slash, up to the last segment.
    let (mut read, mut written) = (0, 0);
    loop {
        let end = memchr(b'/', &decoded[read..]).map_or(decoded.len(), |at| read + at);
        let is_last = end == decoded.len();
        match &decoded[read..end] {
            b"." => {}
            b".." => {
                let kept = decoded[..written].strip_suffix(b"/").ok_or(Refusal::PathAboveRoot)?;
                written = kept.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
            }
            [] if is_last || !keeps_empty => {}
            _ => {
                decoded.copy_within(read..end, written);
                written += end - read;
                if !is_last {
                    decoded[written] = b'/';
                    written += 1;
                }
            }
        }
        if is_last {
            break;
        }
        read = end + 1;
    }
    decoded.truncate(written);
    if keeps_empty {
        decoded.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
        if decoded.first() == Some(&b'/') {
            decoded.remove(0);
        }
    }
    Ok(())
}

/// `path` without dot segments and empty ones, still encoded: what [`decode_path`] makes of it stands there byte for byte, each
/// maybe encoded. A path that [`decode_path`] refuses comes back without what leads above the root.
pub fn normalize_path(path: &[u8]) -> Cow<'_, [u8]> {
    let segments = || path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/');
    let is_plain = |segment: &[u8]| !segment.is_empty() && count_dots(segment).is_none();
    let mut all = segments().peekable();
    let mut plain = path.starts_with(b"/");
    while let Some(segment) = all.next() {
        plain &= is_plain(segment) || (segment.is_empty() && all.peek().is_none());
    }
    if plain {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut is_folder = true;
    for segment in segments() {
        is_folder = !is_plain(segment);
        match count_dots(segment) {
            Some(2) => drop(kept.pop()),
            Some(_) => {}
            None if segment.is_empty() => {}
            None => kept.push(segment),
        }
    }
    let mut normal = Vec::with_capacity(path.len() + 1);
    for segment in &kept {
        normal.push(b'/');
        normal.extend_from_slice(segment);
    }
    if is_folder {
        normal.push(b'/');
    }
    Cow::Owned(normal)
}

/// How many dots `segment` consists of, encoded or not, if it is one or two and nothing else.
fn count_dots(mut segment: &[u8]) -> Option<usize> {
    let mut dots = 0;
    while !segment.is_empty() {
        segment = match segment {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return None,
        };
        dots += 1;
    }
    (1..=2).contains(&dots).then_some(dots)
}

/// Where in `raw`, a path with its first slash as [`normalize_path`] gives it, the byte stands that is at `decoded` in the path
/// decoded without that slash.
pub fn raw_offset(raw: &[u8], decoded: usize) -> usize {
    let mut at = 1.min(raw.len());
    for _ in 0..decoded {
        at += if raw.get(at..).and_then(decode_byte).is_some() { 3 } else { 1 };
    }
    at.min(raw.len())
}

/// Appends `path` as the path of a Location. Browsers take two slashes at its beginning, or what they think are slashes, for
/// another site's name (WHATWG URL, "special authority slashes state"), so there is one.
pub fn append_local(path: &[u8], out: &mut Vec<u8>) {
    let lead = path.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    out.push(b'/');
    out.extend_from_slice(&path[lead..]);
}

/// `reference`, made of what a client may send in a target, as the value of a Location: what RFC 3986 does not allow in a URI is
/// percent-encoded. Encodings that are there stay, and so do `#`, `[` and `]`.
pub fn encode_location(reference: &[u8]) -> String {
    let mut encoded = String::with_capacity(reference.len());
    for &byte in reference {
        if is(byte, PATH) || matches!(byte, b'?' | b'%' | b'#' | b'[' | b']') {
            encoded.push(char::from(byte));
        } else {
            push_encoded(&mut encoded, byte);
        }
    }
    encoded
}

/// Appends `byte` percent-encoded (RFC 3986 §2.1).
pub fn push_encoded(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests;
