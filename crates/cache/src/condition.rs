//! The client's own conditions and ranges, decided on what is stored (RFC 9111 §4.3.2, RFC 9110 §13, §14).

use crate::request::CacheRequest;
use crate::stored::{Extent, Flags, Stored};
use flatout_http::date::parse_date;
use flatout_http::etag::{ETag, list_matches};
use flatout_http::ranges::{Part, Parts, RangesDecision, decide_ranges};

/// What of a stored answer the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack for one decision
pub enum Answer {
    /// All of it, with its own status.
    Whole,
    /// 304 with its fields, without content.
    NotModified,
    /// One part: 206 with Content-Range.
    Part(Part),
    /// Several parts: 206 as multipart/byteranges.
    Parts(Parts),
    /// 416 with `Content-Range: bytes */total`.
    Unsatisfiable,
    /// What is asked for is not held: forward the request, Range included.
    NotHeld,
}

/// Decides what of `stored` the client gets. `content_bytes`: bytes of the stored content, when all of it is stored and
/// its length is known; of a stored part, its extent tells.
///
/// If-Match and If-Unmodified-Since are no cache's to decide (RFC 9111 §4.3.2):
/// [`decide_stored`](crate::decision::decide_stored) forwards requests with them.
pub fn decide_conditions(
    request: &CacheRequest<'_>,
    stored: &Stored,
    content_bytes: Option<u64>,
    now_s: i64,
) -> Answer {
    // RFC 9110 §13.2.1: conditions count for what would be 2xx without them.
    if (200..300).contains(&stored.status) && is_not_modified(request, stored) {
        return Answer::NotModified;
    }
    let whole = if stored.extent == Extent::Whole { Answer::Whole } else { Answer::NotHeld };
    // RFC 9110 §14.2: ranges count for GET, and for what would be 200.
    if request.method != "GET" || !matches!(stored.status, 200 | 206) {
        return whole;
    }
    let mut ranges = request.fields.all("range");
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return whole };
    if !if_range_holds(request, stored, now_s) {
        return whole;
    }
    match stored.extent {
        Extent::Whole => match content_bytes {
            Some(length) => decide_whole(range, length),
            None => Answer::Whole,
        },
        Extent::Part { first, last, total } => decide_part(range, first, last, total),
    }
}

/// Appends the lines of a 304 for `stored`: without those that describe content that is not sent (RFC 9110 §15.4.5).
pub fn write_not_modified_lines(stored: &Stored, output: &mut Vec<u8>) {
    const OF_THE_CONTENT: [&str; 7] = [
        "content-digest",
        "content-encoding",
        "content-language",
        "content-md5",
        "content-range",
        "content-type",
        "repr-digest",
    ];
    for line in stored.lines.split_inclusive(|&byte| byte == b'\n') {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        if !OF_THE_CONTENT.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes())) {
            output.extend_from_slice(line);
        }
    }
}

fn decide_whole(range: &[u8], length: u64) -> Answer {
    match decide_ranges(range, length) {
        RangesDecision::Whole(_) => Answer::Whole,
        RangesDecision::One(part) => Answer::Part(part),
        RangesDecision::Many(parts) => Answer::Parts(parts),
        RangesDecision::Unsatisfiable => Answer::Unsatisfiable,
    }
}

/// A stored part answers what lies within it (RFC 9111 §3.3).
fn decide_part(range: &[u8], first: u64, last: u64, total: Option<u64>) -> Answer {
    let holds = |part: &Part| part.first >= first && part.last <= last;
    // Where the total is not known, a range that reaches to the end reaches beyond what is held.
    match decide_ranges(range, total.unwrap_or(u64::MAX)) {
        RangesDecision::One(part) if holds(&part) => Answer::Part(part),
        RangesDecision::Many(parts) if parts.as_slice().iter().all(holds) => Answer::Parts(parts),
        RangesDecision::Unsatisfiable if total.is_some() => Answer::Unsatisfiable,
        _ => Answer::NotHeld,
    }
}

/// RFC 9111 §4.3.2: If-None-Match, or If-Modified-Since in its absence.
fn is_not_modified(request: &CacheRequest<'_>, stored: &Stored) -> bool {
    let mut lines = request.fields.all("if-none-match").peekable();
    if lines.peek().is_some() {
        let tag = stored.etag.as_deref().and_then(ETag::parse);
        return lines
            .any(|line| line == b"*" || tag.is_some_and(|tag| list_matches(line, |other| other.matches_weakly(&tag))));
    }
    // Without Last-Modified, Date stands in for it.
    let modified_s = stored.last_modified_s.unwrap_or(stored.date_s);
    request.field("if-modified-since").and_then(parse_date).is_some_and(|since_s| modified_s <= since_s)
}

/// RFC 9110 §13.1.5: a strong tag that is the same, or the very date of Last-Modified when that is strong.
fn if_range_holds(request: &CacheRequest<'_>, stored: &Stored, now_s: i64) -> bool {
    let Some(value) = request.field("if-range") else { return true };
    if let Some(tag) = ETag::parse(value) {
        return stored.etag.as_deref().and_then(ETag::parse).is_some_and(|own| own.matches_strongly(&tag));
    }
    let date = parse_date(value);
    stored.flags.any(Flags::STRONG_DATE)
        && date.is_some_and(|date_s| Some(date_s) == stored.last_modified_s && date_s < now_s)
}

#[cfg(test)]
mod tests;
