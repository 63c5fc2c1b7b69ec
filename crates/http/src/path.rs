//! Canonical form of a target's path, for matching rules and finding files.
//!
//! The canonical form is percent-decoded once and has no `.` and `..`, no empty segments and no leading slash. An
//! encoded slash is part of its segment and is represented by [`SLASH_IN_SEGMENT`]. Other servers interpret some paths
//! differently: they treat `%2F` or `\` as a separator, or drop the text after a `;`. [`Readings`] lists these
//! interpretations, and [`decode_as`] returns the form under each of them, so that callers can refuse a path if the
//! interpretations lead to different rules.

use crate::percent::{self, decode_first};
use crate::refusal::Refusal;
use crate::token::{PATH, is};
use memchr::{memchr, memchr2};
use std::borrow::Cow;
use std::ops::Range;

/// Represents a slash within a segment of a decoded path. Decoded paths contain no other NUL.
pub const SLASH_IN_SEGMENT: u8 = 0;

/// Properties of a decoded path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFacts {
    /// The path has an empty segment other than the last (`//`).
    pub empty_segment: bool,
    /// A `.` or `..` segment was resolved.
    pub dot_segment: bool,
    /// The path has a percent-encoded slash. It is part of a segment, so no file name can match that segment.
    pub encoded_slash: bool,
    /// A segment begins with a dot. An initial `.well-known` (RFC 8615) does not count.
    pub hidden_segment: bool,
    /// Interpretations under which this path may have a different canonical form.
    pub readings: Readings,
}

/// A set of path interpretations in which servers differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings(u8);

impl Readings {
    /// The empty set: RFC 3986, in which only `/` separates segments.
    pub const NONE: Self = Self(0);
    /// `%2F` separates segments.
    pub const ENCODED_SLASH: Self = Self(1);
    /// `%5C` separates segments.
    pub const ENCODED_BACKSLASH: Self = Self(2);
    /// `\` separates segments, as in browsers (WHATWG URL, "path state").
    pub const BACKSLASH: Self = Self(4);
    /// `..` removes a preceding empty segment, as it would any other, instead of the last non-empty segment.
    pub const EMPTY_SEGMENTS: Self = Self(8);
    /// Text after a `;` in a segment is parameters, not part of the name (RFC 2396 §3.3; still the case in Java
    /// servlets).
    pub const PARAMETERS: Self = Self(16);

    /// Returns whether this set contains all of `other`.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set without the elements of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns all non-empty subsets; at most 31.
    pub fn combinations(self) -> impl Iterator<Item = Self> {
        (1..=self.0).filter(move |&bits| bits & !self.0 == 0).map(Self)
    }
}

/// Decodes `path`, which begins with `/`, into `decoded`. Invalid percent-encodings remain unchanged.
///
/// # Errors
/// [`Refusal::TargetNul`] for `%00`, [`Refusal::PathAboveRoot`] if `..` leads above the root.
pub fn decode_path(path: &[u8], decoded: &mut Vec<u8>) -> Result<PathFacts, Refusal> {
    decoded.clear();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    if is_ordinary(path) {
        decoded.extend_from_slice(path);
        return Ok(PathFacts::default());
    }
    decode_unusual(path, decoded)
}

/// Decodes any path, given without its leading slash, as in [`decode_path`].
fn decode_unusual(mut rest: &[u8], decoded: &mut Vec<u8>) -> Result<PathFacts, Refusal> {
    let mut facts = PathFacts::default();
    if let Some(at) = memchr2(b'\\', b';', rest) {
        for (byte, reading) in [(b'\\', Readings::BACKSLASH), (b';', Readings::PARAMETERS)] {
            if memchr(byte, &rest[at..]).is_some() {
                facts.readings = facts.readings.with(reading);
            }
        }
    }
    while let Some(at) = memchr(b'%', rest) {
        decoded.extend_from_slice(&rest[..at]);
        let Some(byte) = decode_first(&rest[at..]) else {
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
    // Another reading may have a `..` and an empty segment where this one has neither.
    if !facts.readings.is_empty() && decoded.windows(2).any(|pair| pair == b"..") {
        facts.readings = facts.readings.with(Readings::EMPTY_SEGMENTS);
    }
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

/// Returns whether a path, given without its leading slash, is its own decoded form and has no special properties. This
/// holds for most paths.
fn is_ordinary(path: &[u8]) -> bool {
    let mut previous = b'/';
    path.iter().all(|&byte| {
        let begins_segment = std::mem::replace(&mut previous, byte) == b'/';
        !(matches!(byte, b'%' | b'\\' | b';') || begins_segment && matches!(byte, b'/' | b'.'))
    })
}

/// Decodes `path` into `decoded` under all interpretations in `readings`.
///
/// # Errors
/// As in [`decode_path`]. A path may lead above the root under one interpretation only.
pub fn decode_as(path: &[u8], readings: Readings, decoded: &mut Vec<u8>) -> Result<(), Refusal> {
    decoded.clear();
    let mut rest = path.strip_prefix(b"/").unwrap_or(path);
    let mut in_parameters = false;
    while let [byte, after @ ..] = rest {
        let encoded = if *byte == b'%' { decode_first(rest) } else { None };
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

/// Records the properties of the segments of a decoded path.
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

/// Removes dot segments (RFC 3986 §5.2.4) and empty segments from a decoded path. If `keeps_empty`, removes empty
/// segments last, so that a `..` can remove an empty segment; otherwise removes them first.
fn resolve(decoded: &mut Vec<u8>, keeps_empty: bool) -> Result<(), Refusal> {
    // The part written so far is empty or ends with a slash.
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

/// Removes dot segments and empty segments from `path` without decoding it. The result corresponds byte for byte to the
/// output of [`decode_path`], except that a byte may be percent-encoded. If [`decode_path`] refuses the path, segments
/// above the root are dropped.
pub fn normalize_path(path: &[u8]) -> Cow<'_, [u8]> {
    remove_segments(path, false)
}

/// Removes dot segments from `path` like [`normalize_path`], but keeps empty segments. A `..` removes the last segment
/// that is not empty, and the empty segments after it.
pub fn resolve_dots(path: &[u8]) -> Cow<'_, [u8]> {
    remove_segments(path, true)
}

fn remove_segments(path: &[u8], keeps_empty: bool) -> Cow<'_, [u8]> {
    let segments = || path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/').peekable();
    let mut all = segments();
    let mut plain = path.starts_with(b"/");
    while let Some(segment) = all.next() {
        let is_last = all.peek().is_none();
        plain &= if segment.is_empty() { keeps_empty || is_last } else { count_dots(segment).is_none() };
    }
    if plain {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut is_folder = true;
    let mut all = segments();
    while let Some(segment) = all.next() {
        let (dots, is_last) = (count_dots(segment), all.peek().is_none());
        is_folder = segment.is_empty() || dots.is_some();
        match dots {
            Some(2) => while kept.pop().is_some_and(<[u8]>::is_empty) {},
            Some(_) => {}
            None if segment.is_empty() && (is_last || !keeps_empty) => {}
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

/// Returns the number of dots, encoded or not, if `segment` consists only of one or two dots.
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

/// Returns the bytes of `path`, with its leading slash, that correspond to the range `part` of its decoded form, as they
/// were sent: with their encodings, and with the empty and dot segments in between and next to them. Decoded, they are
/// the part again if it begins at a segment, because no dot segment among them leads out of it.
pub fn raw_part<'a>(path: &'a [u8], part: &Range<usize>) -> &'a [u8] {
    let range = match normalize_path(path) {
        Cow::Borrowed(_) => raw_offset(path, part.start)..raw_offset(path, part.end),
        Cow::Owned(_) => raw_range(path, part),
    };
    path.get(range).unwrap_or_default()
}

/// Returns the range of [`raw_part`] in any path. Where empty or dot segments precede a position, it is the first that
/// corresponds to the position in the decoded form.
fn raw_range(path: &[u8], part: &Range<usize>) -> Range<usize> {
    let mut kept: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for segment in path.split(|&byte| byte == b'/') {
        let end = start + segment.len();
        match count_dots(segment) {
            Some(2) => drop(kept.pop()),
            Some(_) => {}
            None if segment.is_empty() => {}
            None => kept.push(start..end),
        }
        start = end + 1;
    }
    let locate = |mut decoded: usize| {
        let mut after_slash = 1;
        for segment in &kept {
            if decoded == 0 {
                break;
            }
            let mut at = segment.start;
            while decoded > 0 && at < segment.end {
                at += raw_length(&path[at..]);
                decoded -= 1;
            }
            if decoded == 0 {
                return at;
            }
            decoded -= 1;
            after_slash = segment.end + 1;
        }
        after_slash.min(path.len())
    };
    let (start, end) = (locate(part.start), locate(part.end));
    // A part that includes the slash after the last segment includes all that follows.
    let is_last = kept.last().is_none_or(|last| end > last.end);
    start..if is_last { path.len() } else { end }
}

/// Returns the offset in `raw` that corresponds to the offset `decoded` in the decoded path. `raw` has no empty or dot
/// segments, but a leading slash, which the decoded path has not.
fn raw_offset(raw: &[u8], decoded: usize) -> usize {
    let mut at = 1.min(raw.len());
    for _ in 0..decoded {
        at += raw_length(raw.get(at..).unwrap_or_default());
    }
    at.min(raw.len())
}

/// Returns the length of the first byte of `raw`, which may be percent-encoded.
const fn raw_length(raw: &[u8]) -> usize {
    if decode_first(raw).is_some() { 3 } else { 1 }
}

/// Appends `path` to `out` as the path of a Location, with exactly one leading slash. Browsers interpret two slashes,
/// or backslashes in their place, as the start of another host (WHATWG URL, "special authority slashes state").
pub fn append_local(path: &[u8], out: &mut Vec<u8>) {
    let lead = path.iter().take_while(|byte| matches!(byte, b'/' | b'\\')).count();
    out.push(b'/');
    out.extend_from_slice(&path[lead..]);
}

/// Encodes `reference`, whose characters are all valid in a request target, as the value of a Location. Percent-encodes
/// characters that RFC 3986 forbids in a URI, but leaves existing encodings, `#`, `[` and `]` unchanged.
pub fn encode_location(reference: &[u8]) -> String {
    percent::encode(reference, |byte| is(byte, PATH) || matches!(byte, b'?' | b'%' | b'#' | b'[' | b']'))
}

#[cfg(test)]
mod tests;
