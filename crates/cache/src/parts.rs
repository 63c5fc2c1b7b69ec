//! Several stored parts of one representation: coverage of a request, and combination with a new part (RFC 9111 §3.3,
//! §3.4; RFC 9110 §15.3.7.3).
//!
//! Parts with the same strong validator and complete length are treated as the whole representation with some content
//! missing. Freshness, conditions and ranges are evaluated for that whole, with the metadata of the newest part.
//!
//! These functions handle no content; they return which parts the store must cut and join.

use crate::lines::{with_fields, write_line};
use crate::stored::{Extent, Flags, Stored};
use crate::validate::Conditions;
use flatout_http::date::format_date;
use flatout_http::etag::ETag;
use flatout_http::lines::each_line;
use flatout_http::ranges::ByteRange;
use flatout_http::token::trim;

/// Maximum parts per key: enough for a download of 4 GiB in parts of 8 MiB.
pub const PARTS_MAX: usize = 512;

/// Maximum size in bytes up to which adjacent or overlapping parts are joined, so that small parts do not exhaust
/// [`PARTS_MAX`].
pub const JOINED_BYTES_MAX: u64 = 64 * 1024;

/// Maximum missing ranges requested for one response. Beyond that, the stored content between them is requested again.
pub const MISSING_MAX: usize = 16;

/// Byte range of a stored part; `None` if the whole is stored.
pub const fn part_of(stored: &Stored) -> Option<ByteRange> {
    match stored.extent {
        Extent::Whole => None,
        Extent::Part { first, last, .. } => Some(ByteRange { first, last }),
    }
}

/// Returns the whole representation to which the part `stored` belongs, and its length in bytes. `None`: `stored` is
/// not a part, or cannot be combined: it has no strong validator, no known length, or may not be reused.
pub fn whole_of(stored: &Stored) -> Option<(Stored, u64)> {
    let Extent::Part { total: Some(total), .. } = stored.extent else { return None };
    if !stored.has_strong_validator() || !stored.is_reusable() {
        return None;
    }
    let mut whole = stored.clone();
    (whole.status, whole.extent) = (200, Extent::Whole);
    whole.settle();
    Some((whole, total))
}

/// Returns whether content of `old` may be served with the metadata of `new`: both have the same strong validator (RFC
/// 9110 §15.3.7.3) and coding, and `old` may be shared with every request that may share `new`.
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

/// A consecutive range of the requested content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stretch {
    /// It is stored.
    Held {
        /// Index of its part.
        index: usize,
        /// Its bytes.
        part: ByteRange,
    },
    /// It is missing.
    Missing(ByteRange),
}

/// Splits `wanted` into the ranges that `parts` hold and those that are missing.
pub fn cover(parts: &[ByteRange], wanted: ByteRange) -> Vec<Stretch> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_unstable_by_key(|&index| parts[index].first);
    let (mut stretches, mut at) = (Vec::new(), wanted.first);
    let mut next = order.iter().peekable();
    while at <= wanted.last {
        // Of all parts with this byte, choose the one that extends furthest.
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

/// Merges all ranges from the [`MISSING_MAX`]th missing one to the last.
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

/// If-Range: turns a range request into one for the whole if the representation has changed (RFC 9110 §13.1.5).
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
    /// Its metadata.
    pub stored: &'a Stored,
    /// True if its content is in memory as bytes, so that it can be joined.
    pub is_inline: bool,
}

/// Source of one range of joined content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedPiece {
    /// Index among the held responses; `None`: the new response.
    pub from: Option<usize>,
    /// Bytes of the representation.
    pub part: ByteRange,
}

/// Content to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacedContent {
    /// The content of the new response.
    New,
    /// The content of this held response, which includes all of the new one.
    Held(usize),
    /// These pieces in sequence.
    Joined(Vec<JoinedPiece>),
}

/// Placement of a new response among the stored ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placing {
    /// Metadata to store; its extent is `Whole`, with status 200, once nothing is missing.
    pub stored: Stored,
    /// Its content.
    pub content: PlacedContent,
    /// Indices of the held responses to remove.
    pub superseded: Vec<usize>,
}

/// Decides how to store `new` beside `held`, the stored responses of the same variant, newest first. Only parts of one
/// representation coexist, at most [`PARTS_MAX`].
pub fn decide_placing(held: &[Held<'_>], new: Stored, is_inline: bool) -> Placing {
    let mut placing = Placing { stored: new, content: PlacedContent::New, superseded: Vec::new() };
    let Some(new_part) = part_of(&placing.stored) else {
        // A response under the same name is replaced anyway.
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

/// Joins the new part with adjacent ones if all are small, and removes the parts it covers.
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

/// A 206 to a request with If-Range may omit representation metadata (RFC 9110 §15.3.7): that of the other parts is
/// retained (RFC 9111 §3.4).
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

/// Metadata for a response cut short after `bytes` bytes of content (RFC 9111 §3.3). `None` if it is useless: there
/// was no content, or the rest could not be requested by range.
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
