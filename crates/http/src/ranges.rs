//! Multiple byte ranges (RFC 9110 §14): selection, and part heads of multipart/byteranges content (§14.6).

use crate::range::{Spec, parse_spec};
use crate::token::trim;

/// Maximum parts of one response, after joining.
pub const PARTS_MAX: usize = 16;

/// Maximum ranges parsed, before joining.
const RANGES_MAX: usize = 64;

/// Ranges less than this many bytes apart are joined: a part's head costs about as much (RFC 9110 §15.3.7.2).
const GAP_BYTES_MAX: u64 = 80;

/// Maximum overlaps between ranges: more indicate a broken or malicious client (RFC 9110 §14.2).
const OVERLAPS_MAX: u32 = 2;

/// A part of a representation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, inclusive.
    pub last: u64,
}

impl ByteRange {
    /// Length; at least 1.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub const fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

/// Up to [`PARTS_MAX`] parts in the order requested; no two are adjacent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    parts: [ByteRange; PARTS_MAX],
    count: usize,
}

impl Parts {
    /// The parts.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.parts[..self.count]
    }

    /// Adds `part`, joined with all parts near it, in the position of the first of them. Returns false if there is no
    /// room.
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
            // It has grown, so it may now be near an earlier part.
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

/// Reason to serve the whole representation despite a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unranged {
    /// Another unit, or invalid syntax.
    Malformed,
    /// More ranges or parts than the limits.
    TooMany,
    /// More than two ranges overlap.
    Overlapping,
    /// The parts would not be smaller than the whole.
    NotSmaller,
}

/// Decision about a Range field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack for one decision
pub enum RangesDecision {
    /// The whole representation: 200.
    Whole(Unranged),
    /// One part: 206 with Content-Range.
    One(ByteRange),
    /// Several parts: 206 as multipart/byteranges.
    Many(Parts),
    /// Valid, but all ranges are out of bounds: 416.
    Unsatisfiable,
}

/// Evaluates `value`, of a Range field, for a representation of `length` bytes. Drops ranges out of bounds if at least
/// one is within. The parts stay in the order requested (RFC 9110 §15.3.7.2), which the client may have chosen
/// deliberately. A server may always ignore Range (§14.2), and does so for abusive ones.
pub fn decide_ranges(value: &[u8], length: u64) -> RangesDecision {
    use RangesDecision::{Many, One, Unsatisfiable, Whole};
    let Some(equals) = value.iter().position(|&byte| byte == b'=') else { return Whole(Unranged::Malformed) };
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    // List elements may have surrounding white space, but the list may not.
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
            // Still parse the rest, so that malformed input is always classified as malformed.
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

/// Creates a boundary from `seed`, which identifies this version of the representation, and `counter`, which
/// identifies this response: 32 characters, unpredictable without both. It does not check the content for the
/// boundary, whose presence is as likely as guessing 128 bits.
pub fn make_boundary(seed: &[u8], counter: u64) -> String {
    let hash = |basis: u64| {
        let bytes = seed.iter().chain(&[0]).copied().chain(counter.to_le_bytes());
        let mixed = bytes.fold(basis, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        // FNV leaves the last bytes in the low half; a multiplication and a shift spread them.
        (mixed ^ (mixed >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    format!("{:016x}{:016x}", hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142))
}

/// Head of a part of a representation of `length` bytes, including the preceding delimiter. `fields` are whole lines
/// that describe the representation, Content-Type first (RFC 9110 §15.3.7.2). `first`: it is the first part.
pub fn format_part_head(boundary: &str, fields: &str, part: ByteRange, length: u64, first: bool) -> String {
    let line_end = if first { "" } else { "\r\n" };
    format!("{line_end}--{boundary}\r\n{fields}Content-Range: bytes {}-{}/{length}\r\n\r\n", part.first, part.last)
}

/// Closing delimiter after the last part (RFC 2046 §5.1.1).
pub fn format_parts_end(boundary: &str) -> String {
    format!("\r\n--{boundary}--\r\n")
}

#[cfg(test)]
mod tests;
