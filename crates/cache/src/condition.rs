//! Evaluation of client conditions and ranges against a stored response (RFC 9111 §4.3.2, RFC 9110 §13, §14).

use crate::request::CacheRequest;
use crate::stored::{Extent, Flags, Stored};
use flatout_http::date::parse_date;
use flatout_http::etag::{ETag, list_matches};
use flatout_http::ranges::{ByteRange, Parts, RangesDecision, decide_ranges};

/// Form in which to send a stored response, given the request's conditions and ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack for one decision
pub enum SelectedForm {
    /// The whole response with its stored status.
    Whole,
    /// A 304 with the stored fields and no content.
    NotModified,
    /// A single part: a 206 with Content-Range.
    Part(ByteRange),
    /// Several parts: a 206 as multipart/byteranges.
    Parts(Parts),
    /// A 416 with `Content-Range: bytes */total`.
    Unsatisfiable,
    /// None: the requested range is not stored, so the request must be forwarded, including Range.
    NotHeld,
}

/// Selects the form in which to send `stored`. `content_bytes` is the length of the stored content in bytes, if the
/// content is complete and its length is known. The length of a stored part comes from its extent.
///
/// If-Match and If-Unmodified-Since are not evaluated, as RFC 9111 §4.3.2 requires of caches:
/// [`decide_stored`](crate::decision::decide_stored) forwards requests that contain them.
pub fn decide_conditions(
    request: &CacheRequest<'_>,
    stored: &Stored,
    content_bytes: Option<u64>,
    now_s: i64,
) -> SelectedForm {
    // RFC 9110 §13.2.1: conditions apply only if the response would be 2xx without them.
    if (200..300).contains(&stored.status) && is_not_modified(request, stored) {
        return SelectedForm::NotModified;
    }
    let whole = if stored.extent == Extent::Whole { SelectedForm::Whole } else { SelectedForm::NotHeld };
    // RFC 9110 §14.2: ranges apply to GET, if the response would be 200.
    if request.method != "GET" || !matches!(stored.status, 200 | 206) {
        return whole;
    }
    let mut ranges = request.fields.all("range");
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return whole };
    let is_offered = !stored.flags.any(Flags::NO_RANGES) || request.field("if-range").is_some();
    if !is_offered || !if_range_holds(request, stored, now_s) {
        return whole;
    }
    match stored.extent {
        Extent::Whole => match content_bytes {
            Some(length) => decide_whole(range, length),
            None => SelectedForm::Whole,
        },
        Extent::Part { first, last, total } => decide_part(range, first, last, total),
    }
}

/// Appends the field lines of a 304 for `stored`, omitting fields that describe the content (RFC 9110 §15.4.5).
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

fn decide_whole(range: &[u8], length: u64) -> SelectedForm {
    match decide_ranges(range, length) {
        RangesDecision::Whole(_) => SelectedForm::Whole,
        RangesDecision::One(part) => SelectedForm::Part(part),
        RangesDecision::Many(parts) => SelectedForm::Parts(parts),
        RangesDecision::Unsatisfiable => SelectedForm::Unsatisfiable,
    }
}

/// Selects the form for a stored part, which can satisfy only ranges within it (RFC 9111 §3.3).
fn decide_part(range: &[u8], first: u64, last: u64, total: Option<u64>) -> SelectedForm {
    let holds = |part: &ByteRange| part.first >= first && part.last <= last;
    // If the total is unknown, a range that extends to the end of the representation is not covered by the stored part.
    match decide_ranges(range, total.unwrap_or(u64::MAX)) {
        RangesDecision::One(part) if holds(&part) => SelectedForm::Part(part),
        RangesDecision::Many(parts) if parts.as_slice().iter().all(holds) => SelectedForm::Parts(parts),
        RangesDecision::Unsatisfiable if total.is_some() => SelectedForm::Unsatisfiable,
        _ => SelectedForm::NotHeld,
    }
}

/// Evaluates If-None-Match, or If-Modified-Since in its absence (RFC 9111 §4.3.2). Returns true if the response is a
/// 304.
fn is_not_modified(request: &CacheRequest<'_>, stored: &Stored) -> bool {
    let mut lines = request.fields.all("if-none-match").peekable();
    if lines.peek().is_some() {
        let tag = stored.etag.as_deref().and_then(ETag::parse);
        return lines
            .any(|line| line == b"*" || tag.is_some_and(|tag| list_matches(line, |other| other.matches_weakly(&tag))));
    }
    // Without Last-Modified, Date takes its place.
    let modified_s = stored.last_modified_s.unwrap_or(stored.date_s);
    request.field("if-modified-since").and_then(parse_date).is_some_and(|since_s| modified_s <= since_s)
}

/// Evaluates If-Range (RFC 9110 §13.1.5). Returns true if it is absent, if its entity tag matches strongly, or if its
/// date equals a strong Last-Modified.
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
