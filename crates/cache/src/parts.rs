//! Stored parts of a representation: which of the requested bytes they cover, and how to combine them with a new part
//! (RFC 9111 §3.3, §3.4; RFC 9110 §15.3.7.3).
//!
//! Parts with the same strong validator and complete length are treated as the whole representation with some content
//! missing. Freshness, conditions and ranges are evaluated for the whole representation, with the metadata of the
//! newest part.
//!
//! These functions do not touch content: they return which ranges of which parts the store must copy and join.

use crate::lines::with_fields;
use crate::stored::{Extent, Flags, Stored};
use crate::validate::Conditions;
use flatout_http::date::format_date;
use flatout_http::etag::ETag;
use flatout_http::lines::{each_line, write_line};
use flatout_http::ranges::ByteRange;
use flatout_http::token::trim;

/// Maximum number of parts per variant: enough for a download of 4 GiB in parts of 8 MiB.
pub const PARTS_MAX: usize = 512;

/// Maximum size in bytes of a part that is created by joining adjacent or overlapping parts. Joining keeps small parts
/// from exhausting [`PARTS_MAX`].
pub const JOINED_BYTES_MAX: u64 = 64 * 1024;

/// Maximum number of missing ranges requested for one response. If there are more, the remaining ones are merged, and
/// the stored content between them is requested again.
pub const MISSING_MAX: usize = 16;

/// Returns the byte range of a stored part, or `None` if the whole representation is stored.
pub const fn part_of(stored: &Stored) -> Option<ByteRange> {
    match stored.extent {
        Extent::Whole => None,
        Extent::Part { first, last, .. } => Some(ByteRange { first, last }),
    }
}

/// Returns the metadata of the whole representation to which the part `stored` belongs, and its length in bytes.
/// Returns `None` if `stored` is not a part or cannot be combined because it has no strong validator, an unknown
/// complete length, or may not be reused.
pub fn whole_of(stored: &Stored) -> Option<(Stored, u64)> {
    let Extent::Part { total: Some(total), .. } = stored.extent else { return None };
    if !stored.has_strong_validator() || !stored.is_reusable() {
        return None;
    }
    Some((become_whole(stored.clone()), total))
}

/// Returns the metadata of the whole representation, combined from the stored `old` and the new part `new`: the
/// metadata of `new`, and the descriptive fields that only `old` has (RFC 9110 §15.3.7.3, RFC 9111 §3.4).
pub fn combine(old: &Stored, new: &Stored) -> Stored {
    let mut whole = new.clone();
    keep_descriptions(old, &mut whole);
    become_whole(whole)
}

fn become_whole(mut stored: Stored) -> Stored {
    (stored.status, stored.extent) = (200, Extent::Whole);
    stored.settle();
    stored
}

/// Returns whether content of `old` may be served with the metadata of `new`: both have the same strong validator (RFC
/// 9110 §15.3.7.3), length, variant and content coding, and `old` may be shared with every request that may share
/// `new`.
pub fn are_combinable<'a>(old: &'a Stored, new: &'a Stored) -> bool {
    const SHARING: u16 = Flags::SHARED | Flags::AUTHORIZED;
    let tag = |stored: &'a Stored| stored.etag.as_deref().and_then(ETag::parse).map(|tag| (tag.weak, tag.opaque));
    let same_validator = match (tag(old), tag(new)) {
        (Some((false, one)), Some((false, other))) => one == other,
        (None, None) => {
            old.flags.any(Flags::STRONG_DATE)
                && new.flags.any(Flags::STRONG_DATE)
                && old.last_modified_s == new.last_modified_s
        }
        _ => false,
    };
    let same_length = match (old.extent, new.extent) {
        (Extent::Part { total: Some(one), .. }, Extent::Part { total: Some(other), .. }) => one == other,
        (Extent::Whole, Extent::Part { .. }) => old.status == 200,
        _ => false,
    };
    let codings = |stored: &'a Stored| {
        let is_coding = |name: &[u8]| name.eq_ignore_ascii_case(b"content-encoding");
        each_line(&stored.lines)
            .filter(move |(name, _)| is_coding(name))
            .map(|(name, line)| trim(&line[name.len() + 1..]))
    };
    same_validator
        && same_length
        && old.vary == new.vary
        && old.variant_key == new.variant_key
        && new.flags.0 & SHARING & !old.flags.0 == 0
        && codings(old).eq(codings(new))
}

/// A contiguous range of the requested content, either stored or missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// The range is stored.
    Held {
        /// Index of the part that contains the range.
        index: usize,
        /// The bytes of the range, as offsets in the representation.
        part: ByteRange,
    },
    /// The range is missing.
    Missing(ByteRange),
}

/// Splits `wanted` into the ranges contained in `parts` and those that are missing.
pub fn cover(parts: &[ByteRange], wanted: ByteRange) -> Vec<Stretch> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_unstable_by_key(|&index| parts[index].first);
    let (mut stretches, mut at) = (Vec::new(), wanted.first);
    let mut next = order.iter().peekable();
    while at <= wanted.last {
        // Of all parts that contain this byte, choose the one that extends furthest.
        let mut furthest: Option<usize> = None;
        while let Some(&&index) = next.peek().filter(|&&&index| parts[index].first <= at) {
            if furthest.is_none_or(|other| parts[index].last > parts[other].last) {
                furthest = Some(index);
            }
            next.next();
        }
        let found = furthest.filter(|&index| parts[index].last >= at);
        let last = match (found, next.peek()) {
            (Some(index), _) => parts[index].last,
            (None, Some(&&index)) => parts[index].first - 1,
            (None, None) => wanted.last,
        };
        let part = ByteRange { first: at, last: last.min(wanted.last) };
        stretches.push(found.map_or(Stretch::Missing(part), |index| Stretch::Held { index, part }));
        at = part.last.saturating_add(1);
    }
    let is_missing = |stretch: &Stretch| matches!(stretch, Stretch::Missing(_));
    if stretches.iter().filter(|stretch| is_missing(stretch)).count() > MISSING_MAX {
        join_missing(&mut stretches);
    }
    stretches
}

/// Merges all ranges from the [`MISSING_MAX`]th missing range to the last into one missing range.
fn join_missing(stretches: &mut Vec<Stretch>) {
    let missing = |(at, stretch): (usize, &Stretch)| match stretch {
        Stretch::Missing(part) => Some((at, *part)),
        Stretch::Held { .. } => None,
    };
    let begin = stretches.iter().enumerate().filter_map(missing).nth(MISSING_MAX - 1);
    let end = stretches.iter().enumerate().filter_map(missing).next_back();
    if let (Some((begin, first)), Some((end, last))) = (begin, end) {
        let joined = Stretch::Missing(ByteRange { first: first.first, last: last.last });
        stretches.splice(begin..=end, [joined]);
    }
}

/// Builds If-Range, with which the origin sends the whole representation if it has changed (RFC 9110 §13.1.5). Empty if
/// `stored` has no strong validator.
pub fn make_if_range(stored: &Stored) -> Conditions {
    let mut lines = Vec::new();
    match (&stored.etag, stored.last_modified_s) {
        (Some(etag), _) if stored.flags.any(Flags::STRONG_ETAG) => write_line("If-Range", etag, &mut lines),
        (None, Some(last_modified_s)) if stored.flags.any(Flags::STRONG_DATE) => {
            write_line("If-Range", &format_date(last_modified_s), &mut lines);
        }
        _ => {}
    }
    Conditions(lines)
}

/// A stored response of the same variant as a new response.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// Metadata of the stored response.
    pub stored: &'a Stored,
    /// True if the content is in memory, so that it can be joined.
    pub is_inline: bool,
}

/// A range of joined content, and the response that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedPiece {
    /// Index among the held responses, or `None` for the new response.
    pub from: Option<usize>,
    /// The bytes of the range, as offsets in the representation.
    pub part: ByteRange,
}

/// Source of the content to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacedContent {
    /// The content of the new response.
    New,
    /// The content of the held response with this index, which includes all of the new response's content.
    Held(usize),
    /// These pieces, concatenated.
    Joined(Vec<JoinedPiece>),
}

/// How to store a new response alongside the stored responses of its variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// Metadata to store. If no byte is missing, its extent is `Whole` and its status 200.
    pub stored: Stored,
    /// The source of the bytes to store.
    pub content: PlacedContent,
    /// Indices of the held responses to remove.
    pub superseded: Vec<usize>,
}

/// Decides how to store `new` alongside `held`, the stored responses of the same variant, newest first. Only parts of
/// the same representation are stored together, at most [`PARTS_MAX`]. `is_inline` is true if the content of `new` is
/// in memory.
pub fn decide_placing(held: &[Held<'_>], new: Stored, is_inline: bool) -> Placing {
    let mut placing = Placing { stored: new, content: PlacedContent::New, superseded: Vec::new() };
    let Some(new_part) = part_of(&placing.stored) else {
        // The store replaces a whole response of the same variant anyway.
        placing.superseded = (0..held.len()).filter(|&index| part_of(held[index].stored).is_some()).collect();
        return placing;
    };
    let mut others = Vec::new();
    for (index, other) in held.iter().enumerate() {
        if are_combinable(other.stored, &placing.stored) {
            others.push(index);
        } else {
            placing.superseded.push(index);
        }
    }
    if let Some(&index) = others.first() {
        keep_descriptions(held[index].stored, &mut placing.stored);
    }
    let covers = |index: usize| part_of(held[index].stored).is_none_or(|part| contains(part, new_part));
    if let Some(&index) = others.iter().find(|&&index| covers(index)) {
        let of = held[index].stored;
        (placing.stored.status, placing.stored.extent) = (of.status, of.extent);
        placing.content = PlacedContent::Held(index);
    } else {
        join(held, &mut others, new_part, is_inline, &mut placing);
    }
    // Remove the oldest.
    if let Some(gone) = others.get(PARTS_MAX - 1..) {
        let kept = if let PlacedContent::Held(index) = placing.content { Some(index) } else { None };
        placing.superseded.extend(gone.iter().filter(|&&index| Some(index) != kept));
    }
    placing.stored.settle();
    placing
}

const fn contains(outer: ByteRange, inner: ByteRange) -> bool {
    outer.first <= inner.first && inner.last <= outer.last
}

/// Joins the new part with an adjacent or overlapping part on either side if the result is small, and removes the parts
/// that the result covers.
fn join(held: &[Held<'_>], others: &mut Vec<usize>, new_part: ByteRange, is_inline: bool, placing: &mut Placing) {
    let part = |index: usize| part_of(held[index].stored);
    let mut joined = new_part;
    let mut pieces = vec![JoinedPiece { from: None, part: new_part }];
    let is_small = |part: ByteRange| part.len() <= JOINED_BYTES_MAX;
    let before = |&&index: &&usize| {
        part(index).is_some_and(|other| other.first < new_part.first && other.last.saturating_add(1) >= new_part.first)
    };
    let behind = |&&index: &&usize| {
        part(index).is_some_and(|other| other.last > new_part.last && other.first <= new_part.last.saturating_add(1))
    };
    let joinable = |&&index: &&usize| is_inline && held[index].is_inline;
    let left = others.iter().filter(before).find(joinable).copied();
    if let Some((index, other)) = left.and_then(|index| Some((index, part(index)?))) {
        let with = ByteRange { first: other.first, last: joined.last };
        if is_small(with) {
            pieces.insert(
                0,
                JoinedPiece { from: Some(index), part: ByteRange { first: other.first, last: new_part.first - 1 } },
            );
            joined = with;
        }
    }
    let right = others.iter().filter(behind).find(joinable).copied();
    if let Some((index, other)) = right.and_then(|index| Some((index, part(index)?))) {
        let with = ByteRange { first: joined.first, last: other.last };
        if is_small(with) {
            pieces.push(JoinedPiece {
                from: Some(index),
                part: ByteRange { first: new_part.last + 1, last: other.last },
            });
            joined = with;
        }
    }
    if pieces.len() > 1 {
        placing.content = PlacedContent::Joined(pieces);
    }
    let Extent::Part { total, .. } = placing.stored.extent else { return };
    if joined.first == 0 && total == Some(joined.last + 1) {
        (placing.stored.status, placing.stored.extent) = (200, Extent::Whole);
    } else {
        placing.stored.extent = Extent::Part { first: joined.first, last: joined.last, total };
    }
    let is_covered = |index: usize| part(index).is_some_and(|other| contains(joined, other));
    placing.superseded.extend(others.iter().copied().filter(|&index| is_covered(index)));
    others.retain(|&index| !is_covered(index));
}

/// Copies representation metadata that `new` lacks from `old` (RFC 9111 §3.4). A 206 to a request with If-Range may
/// omit this metadata (RFC 9110 §15.3.7).
fn keep_descriptions(old: &Stored, new: &mut Stored) {
    const DESCRIPTIONS: [&str; 5] =
        ["content-type", "content-language", "content-disposition", "content-location", "last-modified"];
    let mut lines = Vec::new();
    let _ = with_fields(&new.lines, |own| {
        with_fields(&old.lines, |fields| {
            for name in DESCRIPTIONS.iter().filter(|name| own.first(name).is_none()) {
                fields.all(name).for_each(|value| write_line(name, value, &mut lines));
            }
        })
    });
    if !lines.is_empty() && new.lines.len() + lines.len() <= crate::lines::LINES_BYTES_MAX {
        new.last_modified_s = new.last_modified_s.or(old.last_modified_s);
        new.lines = [&new.lines[..], &lines].concat().into();
    }
}

/// Returns the metadata to store for a response that was truncated after `bytes` bytes of content (RFC 9111 §3.3).
/// `length` is the complete length in bytes, if known. Returns `None` if the stored content would be useless because it
/// is empty or because the rest cannot be requested by range.
pub fn cut_short(stored: &Stored, length: Option<u64>, bytes: u64) -> Option<Stored> {
    let (first, total) = match stored.extent {
        Extent::Whole => (0, length?),
        Extent::Part { first, total, .. } => (first, total?),
    };
    let last = first.checked_add(bytes.checked_sub(1)?)?;
    let is_part = matches!(stored.status, 200 | 206) && last < total.saturating_sub(1);
    if !is_part {
        return None;
    }
    let mut cut = stored.clone();
    (cut.status, cut.extent) = (206, Extent::Part { first, last, total: Some(total) });
    cut.settle();
    whole_of(&cut).is_some().then_some(cut)
}

#[cfg(test)]
mod tests;
