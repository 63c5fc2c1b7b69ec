//! Byte ranges (RFC 9110 §14): their selection, and the part heads of multipart/byteranges content (§14.6).

use crate::token::{parse_decimal, trim};

/// Maximum parts of one response, after nearby ranges have been joined.
pub const PARTS_MAX: usize = 16;

/// Maximum ranges of one field that are evaluated, before nearby ranges are joined.
const RANGES_MAX: usize = 64;

/// Maximum gap between ranges that are joined, in bytes: the head of a part costs about as much (RFC 9110 §15.3.7.2).
const GAP_BYTES_MAX: u64 = 80;

/// Maximum ranges that overlap an earlier range. More indicate a broken or malicious client (RFC 9110 §14.2).
const OVERLAPS_MAX: u32 = 2;

/// A range of bytes of a representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte, inclusive.
    pub last: u64,
}

impl ByteRange {
    /// Returns the length in bytes, which is at least 1.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub const fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Up to [`PARTS_MAX`] parts in the order requested. No two parts are near enough to be joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    parts: [ByteRange; PARTS_MAX],
    count: usize,
}

impl Parts {
    /// Returns the parts in the order requested.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.parts[..self.count]
    }

    /// Adds `part`, joined with all parts near it, at the position of the first of those parts. Returns false if there
    /// is no room.
    fn add(&mut self, mut part: ByteRange) -> bool {
        let mut place = None;
        let mut at = 0;
        while at < self.count {
            let other = self.parts[at];
            if !are_near(part, other) {
                at += 1;
                continue;
            }
            part = ByteRange { first: part.first.min(other.first), last: part.last.max(other.last) };
            self.parts.copy_within(at + 1..self.count, at);
            self.count -= 1;
            place = Some(place.map_or(at, |place: usize| place.min(at)));
            // The part has grown, so it may now be near an earlier part.
            at = 0;
        }
        if self.count == PARTS_MAX {
            return false;
        }
        let place = place.unwrap_or(self.count);
        self.parts.copy_within(place..self.count, place + 1);
        self.parts[place] = part;
        self.count += 1;
        true
    }
}

const fn are_near(left: ByteRange, right: ByteRange) -> bool {
    let reach = GAP_BYTES_MAX + 1;
    left.first <= right.last.saturating_add(reach) && right.first <= left.last.saturating_add(reach)
}

/// The reason to serve the whole representation despite a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unranged {
    /// The unit is unknown or the syntax invalid.
    Malformed,
    /// There are more than 64 ranges or more than [`PARTS_MAX`] parts.
    TooMany,
    /// More than two ranges overlap an earlier range.
    Overlapping,
    /// The parts would not be smaller than the whole representation.
    NotSmaller,
}

/// How to respond to a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack for one decision
pub enum RangesDecision {
    /// Respond 200 with the whole representation.
    Whole(Unranged),
    /// Respond 206 with one part and Content-Range.
    One(ByteRange),
    /// Respond 206 with several parts as multipart/byteranges.
    Many(Parts),
    /// Respond 416: the field is valid, but all ranges are out of bounds.
    Unsatisfiable,
}

/// Evaluates `value`, the value of a Range field, for a representation of `length` bytes. Drops ranges that are out of
/// bounds if at least one range is within bounds. Keeps the parts in the order requested (RFC 9110 §15.3.7.2), which
/// the client may have chosen deliberately. A server may always ignore Range (§14.2); this function ignores abusive
/// ranges.
pub fn decide_ranges(value: &[u8], length: u64) -> RangesDecision {
    use RangesDecision::{Many, One, Unsatisfiable, Whole};
    let Some(equals) = value.iter().position(|&byte| byte == b'=') else { return Whole(Unranged::Malformed) };
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    // List elements may have surrounding white space, but the whole list may not.
    if !unit.eq_ignore_ascii_case(b"bytes") || trim(set).len() != set.len() {
        return Whole(Unranged::Malformed);
    }
    let (mut parts, mut ranges, mut inside) = (Parts::default(), 0, [ByteRange::default(); RANGES_MAX]);
    let (mut satisfiable, mut overlaps) = (0, 0);
    let mut too_many = false;
    for element in set.split(|&byte| byte == b',').map(trim) {
        if element.is_empty() {
            continue;
        }
        ranges += 1;
        let part = match parse_spec(element, length) {
            Spec::Malformed => return Whole(Unranged::Malformed),
            Spec::Outside => continue,
            Spec::Part { first, last } => ByteRange { first, last },
        };
        if ranges > RANGES_MAX || too_many {
            // Parse the rest anyway, so that malformed input is always classified as malformed.
            too_many = true;
            continue;
        }
        let seen = &inside[..satisfiable];
        overlaps += u32::from(seen.iter().any(|other| part.first <= other.last && other.first <= part.last));
        inside[satisfiable] = part;
        satisfiable += 1;
        too_many = !parts.add(part);
    }
    match parts.as_slice() {
        _ if ranges == 0 => Whole(Unranged::Malformed),
        _ if too_many => Whole(Unranged::TooMany),
        _ if overlaps > OVERLAPS_MAX => Whole(Unranged::Overlapping),
        [] => Unsatisfiable,
        [part] => One(*part),
        several => {
            let heads = several.len() as u64 * GAP_BYTES_MAX;
            let sum = several.iter().fold(heads, |sum, part| sum.saturating_add(part.len()));
            if sum >= length { Whole(Unranged::NotSmaller) } else { Many(parts) }
        }
    }
}

/// One range of a range set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spec {
    /// The range violates the grammar, or ends before it begins.
    Malformed,
    /// The range is entirely out of bounds.
    Outside,
    /// Offsets of the first and last byte, both inclusive and within bounds.
    Part { first: u64, last: u64 },
}

/// Parses `first-`, `first-last` or `-suffix`, without white space, for a representation of `length` bytes.
fn parse_spec(spec: &[u8], length: u64) -> Spec {
    let Some(dash) = spec.iter().position(|&byte| byte == b'-') else { return Spec::Malformed };
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return parse_suffix(last, length);
    }
    // A number too large for 64 bits is valid and lies beyond any end.
    let (Some(first), Some(last)) = (parse_position(first), parse_last(last)) else { return Spec::Malformed };
    if last < first {
        Spec::Malformed
    } else if first >= length {
        Spec::Outside
    } else {
        Spec::Part { first, last: last.min(length - 1) }
    }
}

/// Parses the digits of `-n`: the last n bytes. Zero bytes, or any number of bytes of an empty representation, are
/// unsatisfiable (RFC 9110 §14.1.2).
fn parse_suffix(digits: &[u8], length: u64) -> Spec {
    match parse_position(digits) {
        None => Spec::Malformed,
        Some(0) => Spec::Outside,
        Some(_) if length == 0 => Spec::Outside,
        Some(suffix) => Spec::Part { first: length.saturating_sub(suffix), last: length - 1 },
    }
}

fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(parse_decimal(digits).unwrap_or(u64::MAX))
}

fn parse_last(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() { Some(u64::MAX) } else { parse_position(digits) }
}

/// Creates a boundary of 32 characters from `seed`, which identifies this version of the representation, and `counter`,
/// which identifies this response. The boundary is unpredictable without both. The content is not searched for the
/// boundary, because the probability that it occurs there is that of guessing 128 bits.
pub fn make_boundary(seed: &[u8], counter: u64) -> String {
    let hash = |basis: u64| {
        let bytes = seed.iter().chain(&[0]).copied().chain(counter.to_le_bytes());
        let mixed = bytes.fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        // FNV leaves the last bytes in the low half; the shift and the multiplication spread them.
        (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142))
}

/// Formats the head of a part of a representation of `length` bytes, including the preceding delimiter. `fields` are
/// whole lines that describe the representation, Content-Type first (RFC 9110 §15.3.7.2). `first` is true for the first
/// part.
pub fn format_part_head(boundary: &str, fields: &str, part: ByteRange, length: u64, first: bool) -> String {
    let line_end = if first { "" } else { "\r\n" };
    format!("{line_end}--{boundary}\r\n{fields}Content-Range: bytes {}-{}/{length}\r\n\r\n", part.first, part.last)
}

/// Formats the closing delimiter after the last part (RFC 2046 §5.1.1).
pub fn format_parts_end(boundary: &str) -> String {
    format!("\r\n--{boundary}--\r\n")
}

#[cfg(test)]
mod tests;
