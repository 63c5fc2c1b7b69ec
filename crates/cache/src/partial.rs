//! Parts of a representation: which 206 may be kept, and how parts are joined (RFC 9111 §3.3, §3.4; RFC 9110 §14.4,
//! §15.3.7).

use crate::lines::with_fields;
use crate::lines::write_line;
use crate::reason::NoStore;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::storable::{Ending, OriginResponse};
use crate::stored::{Extent, Flags, Stored};
use crate::validate::Conditions;
use flatout_http::date::format_date;
use flatout_http::etag::ETag;
use flatout_http::token::parse_decimal;

/// Reads a Content-Range of the unit bytes with a range: `first`, `last`, and the total when it is not `*`. `None` for
/// anything else and for what RFC 9110 §14.4 calls invalid.
pub fn parse_content_range(value: &[u8]) -> Option<Extent> {
    let (unit, range) = value.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes ") {
        return None;
    }
    let slash = range.iter().position(|&byte| byte == b'/')?;
    let dash = range[..slash].iter().position(|&byte| byte == b'-')?;
    let (first, last) = (parse_decimal(&range[..dash])?, parse_decimal(&range[dash + 1..slash])?);
    let total = match &range[slash + 1..] {
        b"*" => None,
        digits => Some(parse_decimal(digits)?),
    };
    // The end of 64 bits is left out so that lengths of parts fit in them.
    let valid = first <= last && last < u64::MAX && total.is_none_or(|total| last < total);
    valid.then_some(Extent::Part { first, last, total })
}

/// Which bytes an answer has. A 206 has to have one range and as many bytes as that says; one with all bytes is whole.
pub(crate) fn decide_extent(
    request: &CacheRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Result<Extent, NoStore> {
    if response.status != 206 {
        return Ok(Extent::Whole);
    }
    let mut ranges = response.fields.all("content-range");
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Err(NoStore::PartUnusable) };
    let Some(Extent::Part { first, mut last, mut total }) = parse_content_range(range) else {
        return Err(NoStore::PartUnusable);
    };
    // A 206 nobody asked for may be anything; and only a length known beforehand can be compared.
    if request.method != "GET" || request.field("range").is_none() {
        return Err(NoStore::PartUnusable);
    }
    let bytes = last - first + 1;
    match response.ending {
        Ending::Close => return Err(NoStore::PartUnusable),
        Ending::Length(length) if length != bytes => {
            if !rules.uneven_parts || length == 0 || length > bytes {
                return Err(NoStore::PartUnusable);
            }
            // What came begins where it says; where it was to reach the end, its end is the end.
            if total == Some(last + 1) {
                total = Some(first + length);
            }
            last = first + length - 1;
        }
        Ending::Length(_) | Ending::Framed => {}
    }
    Ok(if first == 0 && total == Some(last + 1) { Extent::Whole } else { Extent::Part { first, last, total } })
}

/// What becomes of a part that has come when another one is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joining {
    /// They are of one representation, and touch or overlap: this metadata, and the content is the first one's followed
    /// by what of the second one lies beyond.
    Joined {
        /// The metadata of both; its extent is `Whole`, with status 200, when nothing is missing any more.
        stored: Box<Stored>,
        /// Whether the old content comes first.
        old_first: bool,
        /// Bytes of the second content, at its beginning, that are left out since the first has them.
        overlap_bytes: u64,
    },
    /// They lie apart, or are not known to be of one representation: keep the new one alone.
    Replace,
    /// The old one has all that the new one has: keep the old one with the new one's metadata.
    Contained(Box<Stored>),
}

/// Decides how the part `new`, which has just come, joins the part or whole `old`. Only parts with one strong validator
/// are joined (RFC 9111 §3.4).
pub fn decide_joining(old: &Stored, new: &Stored) -> Joining {
    let Extent::Part { first: new_first, last: new_last, total: new_total } = new.extent else {
        return Joining::Replace;
    };
    if !are_of_one_representation(old, new) {
        return Joining::Replace;
    }
    let (old_first, old_last, old_total) = match old.extent {
        Extent::Whole => return Joining::Contained(Box::new(with_content_of(old, new))),
        Extent::Part { first, last, total } => (first, last, total),
    };
    if old_total.is_some() && new_total.is_some() && old_total != new_total {
        return Joining::Replace;
    }
    if old_first <= new_first && new_last <= old_last {
        return Joining::Contained(Box::new(with_content_of(old, new)));
    }
    let apart = new_first > old_last + 1 || old_first > new_last + 1;
    // The new one has all that the old one has.
    let covered = new_first <= old_first && old_last <= new_last;
    if apart || covered {
        return Joining::Replace;
    }
    let is_old_first = old_first < new_first;
    let overlap_bytes = if is_old_first { old_last + 1 - new_first } else { new_last + 1 - old_first };
    let (first, last) = (old_first.min(new_first), old_last.max(new_last));
    let total = new_total.or(old_total);
    let mut stored = new.clone();
    if first == 0 && total == Some(last + 1) {
        stored.status = 200;
        stored.extent = Extent::Whole;
    } else {
        stored.extent = Extent::Part { first, last, total };
    }
    stored.settle();
    Joining::Joined { stored: Box::new(stored), old_first: is_old_first, overlap_bytes }
}

/// The metadata of `new` for the content of `old`.
fn with_content_of(old: &Stored, new: &Stored) -> Stored {
    let mut stored = new.clone();
    (stored.status, stored.extent) = (old.status, old.extent);
    stored.settle();
    stored
}

/// RFC 9110 §15.3.7.3: the same strong validator; and then also the same coding, without which bytes of one could
/// follow those of another.
fn are_of_one_representation(old: &Stored, new: &Stored) -> bool {
    let tag = |stored: &Stored| stored.etag.as_deref().and_then(ETag::parse).map(|tag| (tag.weak, tag.opaque.to_vec()));
    let same_validator = match (tag(old), tag(new)) {
        (Some((false, one)), Some((false, other))) => one == other,
        (None, None) => {
            old.flags.any(Flags::STRONG_DATE)
                && new.flags.any(Flags::STRONG_DATE)
                && old.last_modified_s == new.last_modified_s
        }
        _ => false,
    };
    let coding = |stored: &Stored| {
        with_fields(&stored.lines, |fields| fields.all("content-encoding").map(<[u8]>::to_vec).collect::<Vec<_>>())
    };
    same_validator && old.variant_key == new.variant_key && coding(old) == coding(new)
}

/// The lines that ask the origin for what is missing of a stored part: Range and If-Range. `None` when it has no strong
/// validator, or when what is missing is not one range.
pub fn make_completion(stored: &Stored) -> Option<Conditions> {
    let Extent::Part { first, last, total } = stored.extent else { return None };
    let range = if first == 0 {
        format!("bytes={}-", last + 1)
    } else if total == Some(last + 1) {
        format!("bytes=0-{}", first - 1)
    } else {
        return None;
    };
    let mut lines = Vec::new();
    write_line("Range", range.as_bytes(), &mut lines);
    match (&stored.etag, stored.last_modified_s) {
        (Some(etag), _) if stored.flags.any(Flags::STRONG_ETAG) => write_line("If-Range", etag, &mut lines),
        (None, Some(last_modified_s)) if stored.flags.any(Flags::STRONG_DATE) => {
            write_line("If-Range", &format_date(last_modified_s), &mut lines);
        }
        _ => return None,
    }
    Some(Conditions(lines))
}

#[cfg(test)]
mod tests;
