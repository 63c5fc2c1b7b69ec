//! Byte ranges of 206 responses that can be stored (RFC 9111 §3.3; RFC 9110 §14.4, §15.3.7). [`parts`](crate::parts)
//! combines several of them.

use crate::reason::NoStore;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::storable::{Ending, OriginResponse};
use crate::stored::Extent;
use flatout_http::token::parse_decimal;

/// Parses a Content-Range whose unit is bytes. Returns `None` if the unit is different, if the range is unsatisfied
/// (`*/total`), or if the value is invalid (RFC 9110 §14.4).
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
    // The highest value is excluded, so that the length of a part fits in 64 bits.
    let valid = first <= last && last < u64::MAX && total.is_none_or(|total| last < total);
    valid.then_some(Extent::Part { first, last, total })
}

/// Determines the extent of a response. A 206 must have a single range and content of that length; if it contains all
/// bytes, its extent is whole.
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
    // An unsolicited 206 has undefined content, and only a length known in advance can be checked.
    if request.method != "GET" || (request.field("range").is_none() && !response.is_stretch) {
        return Err(NoStore::PartUnusable);
    }
    let bytes = last - first + 1;
    match response.ending {
        Ending::Close => return Err(NoStore::PartUnusable),
        Ending::Length(length) if length != bytes => {
            if !rules.mismatched_ranges || length == 0 || length > bytes {
                return Err(NoStore::PartUnusable);
            }
            // If Content-Range extends to the end of the representation, the content received ends there too.
            if total == Some(last + 1) {
                total = Some(first + length);
            }
            last = first + length - 1;
        }
        Ending::Length(_) | Ending::Framed => {}
    }
    Ok(if first == 0 && total == Some(last + 1) { Extent::Whole } else { Extent::Part { first, last, total } })
}

#[cfg(test)]
mod tests;
