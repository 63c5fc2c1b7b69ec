//! Validation of a stored response at the origin, and its effects (RFC 9111 §4.3).

use crate::lines::{Dropped, with_fields};
use crate::reason::{Lookup, NoStore};
use crate::request::CacheRequest;
use crate::rules::{Rules, SetCookie};
use crate::storable::{OriginResponse, StoredInput, describe, refuse_directives, refuse_personal};
use crate::stored::{Extent, Stored};
use crate::targeted::choose_directives;
use flatout_http::date::{format_date, parse_date};
use flatout_http::etag::ETag;
use flatout_http::head::Fields;
use flatout_http::lines::write_line;
use flatout_http::token::parse_decimal;

/// Field lines to add to an upstream request, each `Name: value` and CR LF. They replace the client's If-None-Match,
/// If-Modified-Since, If-Range and Range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(pub Vec<u8>);

/// Builds the conditions that validate `stored` (RFC 9111 §4.3.1). Returns `None` if the response has no validator or
/// its status cannot be confirmed by a 304.
pub fn make_conditions(stored: &Stored) -> Option<Conditions> {
    if !stored.has_validator() {
        return None;
    }
    let mut lines = Vec::new();
    if let Some(etag) = &stored.etag {
        write_line("If-None-Match", etag, &mut lines);
    }
    if let Some(last_modified_s) = stored.last_modified_s {
        write_line("If-Modified-Since", &format_date(last_modified_s), &mut lines);
    }
    Some(Conditions(lines))
}

/// Effect of a 304 on the stored response that was validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshening {
    /// The stored response is still valid. Replace its metadata with this.
    Fresh(Box<Stored>),
    /// The stored response is valid for this client but may no longer be stored. Serve it with this metadata, and drop
    /// it.
    FreshOnce(Box<Stored>, NoStore),
    /// The 304 applies to a different response. Drop the stored response, and repeat the request without conditions.
    Mismatch(Lookup),
}

/// Updates `stored` from a 304 (RFC 9111 §4.3.4, §3.2). `request` is the client's request, and `stored` is the stored
/// response that it selects.
///
/// Each upstream request carries the validators of one stored response, so its 304 cannot apply to a different
/// response. A 304 with a different ETag contradicts itself, but servers that compress send such responses (they add a
/// suffix to the tag or weaken it). The stored ETag is retained, so that the next validation checks the stored content.
/// Only a different Last-Modified, if it was the only validator sent, is considered a mismatch.
pub fn freshen(
    request: &CacheRequest<'_>,
    stored: &Stored,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Freshening {
    let last_modified_s = response.fields.first("last-modified").and_then(parse_date);
    let differs = stored.etag.is_none() && last_modified_s.is_some() && last_modified_s != stored.last_modified_s;
    if differs {
        return Freshening::Mismatch(Lookup::ValidatorMismatch);
    }
    match update(request, stored, response, rules) {
        Ok((stored, None)) => Freshening::Fresh(Box::new(stored)),
        Ok((stored, Some(reason))) => Freshening::FreshOnce(Box::new(stored), reason),
        Err(reason) => {
            // The new fields forbid storing the response. The client still receives the stored response, which is
            // valid.
            Freshening::FreshOnce(Box::new(stored.clone()), reason)
        }
    }
}

/// Returns the stored response updated with the fields of `response`, and the reason if it may no longer be stored.
/// Returns an error if the update is impossible.
fn update(
    request: &CacheRequest<'_>,
    stored: &Stored,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Result<(Stored, Option<NoStore>), NoStore> {
    let lines =
        with_fields(&stored.lines, |old| merge_lines(old, stored, response, rules)).ok_or(NoStore::FieldsTooLarge)?;
    let chosen = with_fields(&lines, |fields| choose_directives(fields, rules)).ok_or(NoStore::FieldsTooLarge)?;
    let reason = if rules.enabled {
        refuse_directives(request.field("authorization").is_some(), stored.status, &response.fields, &chosen, rules)
            .err()
    } else {
        Some(NoStore::Off)
    };
    let source = StoredInput { response, status: stored.status, extent: stored.extent, lines };
    let updated = describe(request, &source, &chosen, rules)?;
    let reason = reason.or_else(|| refuse_personal(request, &updated, rules).err());
    Ok((updated, reason))
}

/// Merges the stored field lines with those of a new response. New fields replace stored fields of the same name (RFC
/// 9111 §3.2).
fn merge_lines(old: &Fields<'_>, stored: &Stored, response: &OriginResponse<'_>, rules: &Rules) -> Vec<u8> {
    let new = &response.fields;
    // Fields named by the stored directives are not stored from a 304 either.
    let mut named = choose_directives(new, rules).directives.named;
    named.extend(choose_directives(old, rules).directives.named);
    let dropped = Dropped::new(*new, &named, true, rules.set_cookie == SetCookie::Strip);
    let new_date = new.first("date").and_then(parse_date).is_some();
    let kept_tag = stored.etag.is_some();
    let stays = |name: &str| {
        let is = |other: &&str| name.eq_ignore_ascii_case(other);
        OF_THE_CONTENT.iter().any(is) || (kept_tag && is(&"etag")) || (!new_date && is(&"date"))
    };
    let updates = |name: &str| !dropped.contains(name) && !stays(name);
    let replaced = |name: &str| {
        (name.eq_ignore_ascii_case("date") && !new_date)
            || (updates(name) && new.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)))
    };
    let mut lines = Vec::new();
    if !new_date {
        // RFC 9110 §6.6.1: time of receipt.
        write_line("Date", &format_date(response.response_time_s), &mut lines);
    }
    for (name, value) in old.iter().filter(|(name, _)| !replaced(name)) {
        write_line(name, value, &mut lines);
    }
    for (name, value) in new.iter().filter(|(name, _)| updates(name)) {
        write_line(name, value, &mut lines);
    }
    lines
}

/// Fields that describe the stored content and are therefore not updated (RFC 9111 §3.2). In a 304, they describe the
/// content that the origin would send now, possibly with a different coding.
const OF_THE_CONTENT: [&str; 5] = ["content-encoding", "content-range", "content-md5", "content-digest", "repr-digest"];

/// Effect of a response to HEAD on the stored response to GET (RFC 9111 §4.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// Replace the metadata of the stored response with this.
    Update(Box<Stored>),
    /// Drop the stored response: the representation has changed or may no longer be stored.
    Drop,
    /// No effect.
    Nothing,
}

/// Decides the effect of `response` to a HEAD on `stored`, whose content has `content_bytes` bytes.
///
/// A response without a validator proves nothing about the content, even if the length is the same. RFC 9111 §4.3.5
/// permits freshening the stored response in this case, but that would be a guess.
pub fn decide_head(
    request: &CacheRequest<'_>,
    stored: &Stored,
    content_bytes: u64,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> HeadEffect {
    match response.status {
        200 if stored.status == 200 => {}
        // A resource that is missing for HEAD is missing for GET too.
        404 | 410 if stored.status != response.status => return HeadEffect::Drop,
        _ => return HeadEffect::Nothing,
    }
    let fields = &response.fields;
    let etag = fields.first("etag");
    let last_modified = fields.first("last-modified");
    let length = fields.first("content-length").and_then(parse_decimal);
    let total = match stored.extent {
        Extent::Whole => Some(content_bytes),
        Extent::Part { total, .. } => total,
    };
    let same_tag = |value| match (stored.etag.as_deref().and_then(ETag::parse), ETag::parse(value)) {
        (Some(one), Some(other)) => one.matches_weakly(&other),
        _ => false,
    };
    let same = etag.is_none_or(same_tag)
        && last_modified.is_none_or(|value| parse_date(value) == stored.last_modified_s)
        && length.is_none_or(|length| total == Some(length));
    if !same {
        return HeadEffect::Drop;
    }
    if etag.is_none() && last_modified.is_none() {
        return HeadEffect::Nothing;
    }
    match update(request, stored, response, rules) {
        Ok((stored, None)) => HeadEffect::Update(Box::new(stored)),
        _ => HeadEffect::Drop,
    }
}

#[cfg(test)]
mod tests;
