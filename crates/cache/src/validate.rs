//! Asking the origin whether what is stored still holds, and what its answer changes (RFC 9111 §4.3).

use crate::lines::{Dropped, with_fields, write_line};
use crate::reason::{Lookup, NoStore};
use crate::request::CacheRequest;
use crate::rules::{Rules, SetCookie};
use crate::storable::{OriginResponse, Source, describe, refuse_directives, refuse_personal};
use crate::stored::{Extent, Stored};
use crate::targeted::choose_directives;
use flatout_http::date::{format_date, parse_date};
use flatout_http::etag::ETag;
use flatout_http::head::Fields;
use flatout_http::token::parse_decimal;

/// Field lines to add to a request to the origin, each `Name: value` and CR LF, in place of the client's own
/// If-None-Match, If-Modified-Since, If-Range and Range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(pub Vec<u8>);

/// The client's fields that a request leaves out which validates what is stored, or completes a part.
pub const REPLACED_FIELDS: [&str; 4] = ["if-none-match", "if-modified-since", "if-range", "range"];

/// The client's fields that a forwarded request leaves out whose answer may be kept: a 304 to it would be of use to
/// this client alone, and the whole answer is of use to all. They are decided on that answer. Range stays.
pub const DECIDED_FIELDS: [&str; 2] = ["if-none-match", "if-modified-since"];

/// The conditions that ask whether `stored` still holds (RFC 9111 §4.3.1). `None` when it has no validator, or a
/// status of which 304 cannot speak.
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

/// What a 304 does to the stored answer that was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshening {
    /// It holds; this is its metadata now. The content stays.
    Fresh(Box<Stored>),
    /// It holds for this client, but may not be kept any longer: serve it with this metadata, and drop it.
    FreshOnce(Box<Stored>, NoStore),
    /// The 304 speaks of something else: drop what is stored, and ask again without conditions.
    Mismatch(Lookup),
}

/// Updates `stored` from a 304 (RFC 9111 §4.3.4, §3.2). `request` is the client's, whose variant `stored` is.
///
/// Each request to the origin carries the validators of one stored answer only, so its 304 can speak of no other. A 304
/// whose ETag is another one contradicts itself; servers that compress send such (they add to the tag or weaken it).
/// The stored tag stays then, so that the next question is about what is stored and any doubt ends there. Only a
/// Last-Modified that differs where nothing else was asked about cannot be meant so.
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
            // Its fields are such that nothing with them is kept; the client still gets what it had, for it holds.
            Freshening::FreshOnce(Box::new(stored.clone()), reason)
        }
    }
}

/// The stored answer with the fields of `response`, and why it may not be kept any longer.
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
        refuse_directives(request, stored.status, &response.fields, &chosen, rules).err()
    } else {
        Some(NoStore::Off)
    };
    let source = Source { response, status: stored.status, extent: stored.extent, lines };
    let updated = describe(request, &source, &chosen, rules)?;
    let reason = reason.or_else(|| refuse_personal(request, &updated, rules).err());
    Ok((updated, reason))
}

/// The stored lines, each field that the new answer has replaced by it (RFC 9111 §3.2).
fn merge_lines(old: &Fields<'_>, stored: &Stored, response: &OriginResponse<'_>, rules: &Rules) -> Vec<u8> {
    let new = &response.fields;
    // What the stored directives name is kept no more when it comes in a 304.
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
        // RFC 9110 §6.6.1: the time at which it came.
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

/// Fields of the content itself, which stays (RFC 9111 §3.2): a 304's would describe what the origin would send now,
/// perhaps coded otherwise.
const OF_THE_CONTENT: [&str; 5] = ["content-encoding", "content-range", "content-md5", "content-digest", "repr-digest"];

/// What an answer to HEAD does to the stored answer to GET (RFC 9111 §4.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// This is its metadata now.
    Update(Box<Stored>),
    /// The representation is another one now, or may not be kept any longer: drop it.
    Drop,
    /// None.
    Nothing,
}

/// Decides what `response` to a HEAD does to `stored`, whose content has `content_bytes` bytes.
///
/// An answer without validator and length says nothing of the content: RFC 9111 §4.3.5 would have it make the content
/// fresh; that would be a guess.
pub fn decide_head(
    request: &CacheRequest<'_>,
    stored: &Stored,
    content_bytes: u64,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> HeadEffect {
    match response.status {
        200 if stored.status == 200 => {}
        // What is gone for HEAD is gone for GET.
        404 | 410 if stored.status != response.status => return HeadEffect::Drop,
        _ => return HeadEffect::Nothing,
    }
    let fields = &response.fields;
    let etag = fields.first("etag");
    let last_modified = fields.first("last-modified");
    let length = fields.first("content-length").and_then(parse_decimal);
    if etag.is_none() && last_modified.is_none() && length.is_none() {
        return HeadEffect::Nothing;
    }
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
    match update(request, stored, response, rules) {
        Ok((stored, None)) => HeadEffect::Update(Box::new(stored)),
        _ => HeadEffect::Drop,
    }
}

#[cfg(test)]
mod tests;
