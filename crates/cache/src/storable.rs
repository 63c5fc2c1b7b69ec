//! Storage decision (RFC 9111 §3).

use crate::age::{initial_age_s, parse_age};
use crate::cookie::{bypasses, names_visitor};
use crate::directive::{ResponseDirectives, Seconds, parse_request_directives};
use crate::freshness::{Lifetime, LifetimeSource, decide_lifetime, is_heuristically_cacheable};
use crate::invalidate::names_target;
use crate::lines::{Dropped, LINES_BYTES_MAX};
use crate::partial::decide_extent;
use crate::reason::NoStore;
use crate::request::CacheRequest;
use crate::rules::{Rules, SetCookie};
use crate::search::parse_search;
use crate::stored::{Extent, Flags, Stored};
use crate::tags::{parse_groups, parse_tags};
use crate::targeted::{Chosen, choose_directives};
use crate::vary::{
    VARIANT_KEY_BYTES_MAX, Vary, apply_coding, apply_cookie_rules, apply_trust, names_unkeyed, parse_vary,
    write_variant_key,
};
use flatout_http::date::{format_date, parse_date};
use flatout_http::etag::ETag;
use flatout_http::head::Fields;
use flatout_http::lines::write_line;
use flatout_http::media::is_event_stream;

/// Head of an origin's response.
#[derive(Clone, Copy, Debug)]
pub struct OriginResponse<'a> {
    /// The status, 200 or more.
    pub status: u16,
    /// All field lines, without trailers.
    pub fields: Fields<'a>,
    /// Time when the request was sent, in seconds since 1970.
    pub request_time_s: i64,
    /// Time when the response head arrived, in seconds since 1970.
    pub response_time_s: i64,
    /// How the content is framed.
    pub ending: Ending,
    /// True if the cache itself requested the range, to complete stored parts.
    pub is_stretch: bool,
}

/// How the content of a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The content has this length in bytes, according to Content-Length.
    Length(u64),
    /// The content is framed by the chunked transfer coding or by HTTP/2 frames.
    Framed,
    /// The content ends when the origin closes the connection (RFC 9112 §6.3).
    Close,
}

/// The decision to store a response or not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Storing {
    /// Store the response when its content has been received in full, provided that its length is within the size limit
    /// and matches [`Stored::content_bytes`].
    Store(Box<Stored>),
    /// Do not store the response.
    No(NoStore),
    /// Do not store the response, and mark the key as hit-for-miss for this many seconds, so that requests do not wait
    /// for one another without success.
    Remember(NoStore, u32),
}

/// Decides whether to store `response` to `request`, and with which metadata.
///
/// Besides GET, only POST can yield [`Storing::Store`], if its response states that it equals a response to GET (RFC
/// 9110 §9.3.3). The response is then stored under the key of the GET request.
pub fn decide_response(request: &CacheRequest<'_>, response: &OriginResponse<'_>, rules: &Rules) -> Storing {
    let facts = RequestFacts::new(request, rules);
    match assess(request, facts, response, rules) {
        Ok(stored) => Storing::Store(Box::new(stored)),
        Err(reason) => facts.refuse(reason, response.status, rules),
    }
}

/// Makes the same decision from `facts` alone. Returns `None` if the response may be storable, in which case
/// [`decide_response`] must decide with the whole request.
pub fn decide_by_facts(facts: RequestFacts, response: &OriginResponse<'_>, rules: &Rules) -> Option<Storing> {
    let refused = assess_directives(facts, response, rules).err()?;
    Some(facts.refuse(refused, response.status, rules))
}

/// Properties of a request that suffice to reject most responses that cannot be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestFacts {
    /// The reason not to store any response to this request.
    refusal: Option<NoStore>,
    is_get: bool,
    is_authorized: bool,
}

impl RequestFacts {
    /// Extracts the facts of `request`.
    pub fn new(request: &CacheRequest<'_>, rules: &Rules) -> Self {
        Self {
            refusal: refuse_request(request, rules).err(),
            is_get: request.method == "GET",
            is_authorized: request.field("authorization").is_some(),
        }
    }

    /// Returns the decision not to store a response with `status` for `reason`.
    fn refuse(self, reason: NoStore, status: u16, rules: &Rules) -> Storing {
        // A response to a different method or to a request with Authorization says nothing about other responses.
        let of_all = self.is_get && !self.is_authorized;
        if rules.hit_for_miss_s > 0 && of_all && is_remembered(reason, status) {
            Storing::Remember(reason, rules.hit_for_miss_s)
        } else {
            Storing::No(reason)
        }
    }
}

/// Returns the directives of a response, or the reason if the directives, the status or the `facts` of the request
/// forbid storing it.
fn assess_directives(facts: RequestFacts, response: &OriginResponse<'_>, rules: &Rules) -> Result<Chosen, NoStore> {
    if let Some(reason) = facts.refusal {
        return Err(reason);
    }
    if response.status == 304 {
        return Err(NoStore::NotModifiedUnasked);
    }
    let chosen = choose_directives(&response.fields, rules);
    refuse_directives(facts.is_authorized, response.status, &response.fields, &chosen, rules)?;
    Ok(chosen)
}

fn assess(
    request: &CacheRequest<'_>,
    facts: RequestFacts,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Result<Stored, NoStore> {
    let chosen = assess_directives(facts, response, rules)?;
    if request.method == "POST" && !is_what_get_gives(request, response, &chosen) {
        return Err(NoStore::MethodNotCacheable);
    }
    if response.fields.all("content-type").any(is_event_stream) {
        return Err(NoStore::EventStream);
    }
    let extent = decide_extent(request, response, rules)?;
    let is_large = |bytes: u64| bytes > rules.object_bytes_max;
    match response.ending {
        _ if matches!(extent, Extent::Part { total: Some(total), .. } if is_large(total)) => {
            return Err(NoStore::TooLarge);
        }
        Ending::Length(bytes) if is_large(bytes) => return Err(NoStore::TooLarge),
        Ending::Close if !rules.close_delimited => return Err(NoStore::CloseDelimited),
        _ => {}
    }
    // A 206 with all bytes equals a 200.
    let status = if response.status == 206 && extent == Extent::Whole { 200 } else { response.status };
    let partial = response.status == 206;
    let lines = collect_lines(&response.fields, &chosen.directives, partial, rules, response.response_time_s);
    let stored = describe(request, &StoredInput { response, status, extent, lines }, &chosen, rules)?;
    refuse_useless(&stored)?;
    refuse_personal(request, &stored, rules)?;
    Ok(stored)
}

/// Refuses to store a response that does not explicitly allow sharing, if the request identifies its visitor. Such a
/// response may be personal, and neither a default nor a heuristic lifetime makes it shareable.
pub(crate) fn refuse_personal(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules) -> Result<(), NoStore> {
    if stored.flags.any(Flags::SHARED) {
        return Ok(());
    }
    // RFC 9111 §3.5 accepts `must-revalidate` alone for a request with Authorization, but it is not a lifetime.
    if request.field("authorization").is_some() {
        return Err(NoStore::Authorization);
    }
    if names_visitor(request, &rules.cookies) {
        return Err(NoStore::Cookie);
    }
    Ok(())
}

/// Refuses to store any response to `request` if the request itself forbids it.
fn refuse_request(request: &CacheRequest<'_>, rules: &Rules) -> Result<(), NoStore> {
    if !rules.enabled {
        return Err(NoStore::Off);
    }
    match request.method {
        "GET" if request.has_content => return Err(NoStore::RequestContent),
        "GET" | "POST" => {}
        "HEAD" => return Err(NoStore::HeadOnly),
        _ => return Err(NoStore::MethodNotCacheable),
    }
    if bypasses(request, &rules.cookies) {
        return Err(NoStore::Bypassed);
    }
    if rules.request_directives && parse_request_directives(&request.fields).no_store {
        return Err(NoStore::RequestNoStore);
    }
    Ok(())
}

/// Refuses to store a response if its directives, status or fields forbid it (RFC 9111 §3).
pub(crate) fn refuse_directives(
    is_authorized: bool,
    status: u16,
    fields: &Fields<'_>,
    chosen: &Chosen,
    rules: &Rules,
) -> Result<(), NoStore> {
    let directives = &chosen.directives;
    if is_of_request(status) {
        return Err(NoStore::StatusOfRequest);
    }
    // RFC 9111 §5.2.2.3: with a status that the cache understands, must-understand overrides no-store.
    if directives.must_understand && !is_understood(status) {
        return Err(NoStore::StatusNotUnderstood);
    }
    if directives.no_store && !directives.must_understand {
        return Err(NoStore::NoStoreDirective);
    }
    if directives.private {
        return Err(NoStore::Private);
    }
    if is_authorized && !allows_authorized(directives) {
        return Err(NoStore::Authorization);
    }
    // `no-cache="Set-Cookie"` withholds the cookie from others, but the content may be as personal. Only an origin that
    // also says that the response is for all gets it shared.
    let is_for_all = directives.public || directives.s_maxage != Seconds::Absent;
    let is_withheld = is_for_all && directives.named.iter().any(|name| **name == *b"set-cookie");
    let sets_cookie = fields.first("set-cookie").is_some() && !is_withheld;
    if sets_cookie && rules.set_cookie == SetCookie::Refuse {
        return Err(NoStore::SetCookie);
    }
    Ok(())
}

/// Returns whether a response to a request with Authorization may be stored (RFC 9111 §3.5).
fn allows_authorized(directives: &ResponseDirectives) -> bool {
    directives.public || directives.must_revalidate || directives.s_maxage != Seconds::Absent
}

/// Returns whether a response to POST states that it equals a response to GET (RFC 9110 §9.3.3): it has an explicit
/// lifetime, and its Content-Location is the target.
fn is_what_get_gives(request: &CacheRequest<'_>, response: &OriginResponse<'_>, chosen: &Chosen) -> bool {
    let explicit = chosen.directives.s_maxage != Seconds::Absent
        || chosen.directives.max_age != Seconds::Absent
        || (chosen.field.is_none() && response.fields.first("expires").is_some());
    let location = response.fields.first("content-location");
    response.status == 200 && explicit && location.is_some_and(|location| names_target(request, location))
}

/// Refuses to store a response that could never be reused.
fn refuse_useless(stored: &Stored) -> Result<(), NoStore> {
    let stale_s = stored.stale_while_revalidate_s.max(stored.stale_if_error_s);
    let fresh = stored.lifetime_s > stored.initial_age_s && !stored.flags.any(Flags::NO_CACHE);
    if fresh || stale_s > 0 || stored.has_validator() {
        return Ok(());
    }
    Err(match stored.lifetime_source {
        LifetimeSource::Invalid => NoStore::MaxAgeInvalid,
        LifetimeSource::ExpiresInvalid => NoStore::ExpiresInvalid,
        source if stored.lifetime_s > 0 || source.is_explicit() => NoStore::AlreadyStale,
        _ => NoStore::NoFreshness,
    })
}

/// Input for the metadata of a stored response.
pub(crate) struct StoredInput<'a> {
    /// The origin's response, which may be a 304 or a response to HEAD. Provides the times and Age.
    pub(crate) response: &'a OriginResponse<'a>,
    /// The status to serve.
    pub(crate) status: u16,
    /// Which bytes are stored.
    pub(crate) extent: Extent,
    /// The field lines to serve.
    pub(crate) lines: Vec<u8>,
}

/// Creates metadata from the field lines to serve and `chosen`, the response's directives.
pub(crate) fn describe(
    request: &CacheRequest<'_>,
    source: &StoredInput<'_>,
    chosen: &Chosen,
    rules: &Rules,
) -> Result<Stored, NoStore> {
    if source.lines.len() > LINES_BYTES_MAX {
        return Err(NoStore::FieldsTooLarge);
    }
    crate::lines::with_fields(&source.lines, |fields| describe_fields(request, source, fields, chosen, rules))
        .unwrap_or(Err(NoStore::FieldsTooLarge))
}

fn describe_fields(
    request: &CacheRequest<'_>,
    source: &StoredInput<'_>,
    fields: &Fields<'_>,
    chosen: &Chosen,
    rules: &Rules,
) -> Result<Stored, NoStore> {
    let OriginResponse { request_time_s, response_time_s, .. } = *source.response;
    let directives = &chosen.directives;
    let vary = match parse_vary(fields) {
        Vary::Names(names) => apply_trust(apply_cookie_rules(apply_coding(names, fields), &rules.cookies), request),
        Vary::Star => return Err(NoStore::VaryStar),
        Vary::Invalid => return Err(NoStore::VaryInvalid),
    };
    if names_unkeyed(&vary, request) {
        return Err(NoStore::VaryForwarded);
    }
    let mut variant_key = Vec::new();
    write_variant_key(&vary, request, &mut variant_key);
    if variant_key.len() > VARIANT_KEY_BYTES_MAX {
        return Err(NoStore::FieldsTooLarge);
    }
    let date_s = fields.first("date").and_then(parse_date).unwrap_or(response_time_s);
    let lifetime = decide_lifetime(source.status, fields, chosen, date_s, rules);
    // RFC 9111 §3: requires an explicit lifetime, `public`, or a status that permits a heuristic one.
    if !lifetime.source.is_explicit() && !directives.public && !is_heuristically_cacheable(source.status) {
        return Err(NoStore::StatusNotCacheable);
    }
    let age_field_s = parse_age(&source.response.fields).unwrap_or(0);
    let initial_age_s = initial_age_s(age_field_s, date_s, request_time_s, response_time_s);
    let etag = fields.first("etag").and_then(|value| ETag::parse(value).map(|tag| (value, tag)));
    let last_modified_s = fields.first("last-modified").and_then(parse_date);
    let (stale_while_revalidate_s, stale_if_error_s) = stale_windows(directives, lifetime, rules);
    // `max-age=0` and invalid lifetimes do not offer the response to anybody, and `private="X-Name"` not all of it.
    let is_offered = (lifetime.seconds > 0 || stale_while_revalidate_s > 0) && directives.named.is_empty();
    let is_shared = directives.public || lifetime.source.is_explicit() && is_offered;
    let mut stored = Stored {
        status: source.status,
        request_time_s,
        response_time_s,
        date_s,
        age_field_s,
        initial_age_s,
        lifetime_s: lifetime.seconds,
        lifetime_source: lifetime.source,
        fresh_until_s: i64::MIN,
        stale_while_revalidate_s,
        stale_if_error_s,
        flags: flags(fields, directives, is_shared, etag.map(|(_, tag)| tag), last_modified_s, date_s),
        etag: etag.map(|(value, _)| value.into()),
        last_modified_s,
        vary,
        variant_key: variant_key.into(),
        search: if rules.no_vary_search { parse_search(fields) } else { None },
        tags: parse_tags(fields, &rules.tag_fields).ok_or(NoStore::TagsTooMany)?,
        groups: parse_groups(fields, "cache-groups"),
        extent: source.extent,
        lines: source.lines.as_slice().into(),
    };
    if source.extent == Extent::Whole && !offers_ranges(fields) {
        stored.flags.0 |= Flags::NO_RANGES;
    }
    stored.settle();
    Ok(stored)
}

/// Returns the maximum staleness of a response served during revalidation, and of a response served in place of an
/// error, in seconds.
///
/// s-maxage implies proxy-revalidate (RFC 9111 §5.2.2.10), which the configured defaults do not override. Directives in
/// the same response override it, since the extensions of RFC 5861 modify s-maxage (RFC 9111 §5.2.3); otherwise
/// `s-maxage=60, stale-while-revalidate=600` would be meaningless.
///
/// The configured defaults extend a lifetime, so they apply only if there is one, and not to an error whose lifetime is
/// limited. A response that was never fresh, such as a page with only an ETag, is not shared until the origin has
/// validated it. `stale-while-revalidate` alone is not a lifetime either.
fn stale_windows(directives: &ResponseDirectives, lifetime: Lifetime, rules: &Rules) -> (u32, u32) {
    if directives.no_cache || directives.must_revalidate || directives.proxy_revalidate {
        return (0, 0);
    }
    let is_prolonged = directives.s_maxage == Seconds::Absent
        && (directives.public || lifetime.seconds > 0)
        && lifetime.source != LifetimeSource::ErrorLimit;
    let window = |said: Seconds, default_s| match said {
        Seconds::Valid(seconds) => seconds,
        Seconds::Absent if is_prolonged => default_s,
        Seconds::Absent | Seconds::Invalid => 0,
    };
    let stale_while_revalidate =
        if lifetime.source == LifetimeSource::None { Seconds::Invalid } else { directives.stale_while_revalidate };
    (
        window(stale_while_revalidate, rules.stale_while_revalidate_s),
        window(directives.stale_if_error, rules.stale_if_error_s),
    )
}

fn flags(
    fields: &Fields<'_>,
    directives: &ResponseDirectives,
    is_shared: bool,
    etag: Option<ETag<'_>>,
    last_modified_s: Option<i64>,
    date_s: i64,
) -> Flags {
    let must_revalidate =
        directives.must_revalidate || directives.proxy_revalidate || directives.s_maxage != Seconds::Absent;
    let esi = fields.all("surrogate-control").any(|value| value.windows(7).any(|window| window == b"ESI/1.0"));
    let mut bits = 0;
    for (set, bit) in [
        (directives.no_cache, Flags::NO_CACHE),
        (must_revalidate, Flags::MUST_REVALIDATE),
        (allows_authorized(directives), Flags::AUTHORIZED),
        (directives.immutable, Flags::IMMUTABLE),
        (directives.no_transform, Flags::NO_TRANSFORM),
        (etag.is_some_and(|tag| !tag.weak), Flags::STRONG_ETAG),
        // RFC 9110 §8.8.2.2: at least a second before the response's Date.
        (last_modified_s.is_some_and(|last_modified_s| last_modified_s < date_s), Flags::STRONG_DATE),
        (esi, Flags::ESI),
        (is_shared, Flags::SHARED),
    ] {
        bits |= if set { bit } else { 0 };
    }
    Flags(bits)
}

/// Returns whether ranges of a whole response with `fields` may be served to clients that send Range without If-Range.
///
/// Clients decode by Content-Encoding, and cannot decode a part of an encoding. An origin that says nothing would
/// probably respond with the whole encoding, or with a part of the plain form.
fn offers_ranges(fields: &Fields<'_>) -> bool {
    let names = |field, wanted: &dyn Fn(&[u8]) -> bool| {
        fields.all(field).flat_map(|line| line.split(|&byte| byte == b',')).any(|member| wanted(member.trim_ascii()))
    };
    names("accept-ranges", &|unit| unit.eq_ignore_ascii_case(b"bytes"))
        || !names("accept-ranges", &|unit| unit.eq_ignore_ascii_case(b"none"))
            && !names("content-encoding", &|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

/// Collects the field lines of a response to store, including Date (RFC 9110 §6.6.1).
pub(crate) fn collect_lines(
    fields: &Fields<'_>,
    directives: &ResponseDirectives,
    partial: bool,
    rules: &Rules,
    response_time_s: i64,
) -> Vec<u8> {
    let dropped = Dropped::new(*fields, &directives.named, partial, rules.set_cookie == SetCookie::Strip);
    let dated = fields.first("date").and_then(parse_date).is_some() && !dropped.contains("date");
    let mut lines = Vec::new();
    if !dated {
        write_line("Date", &format_date(response_time_s), &mut lines);
    }
    for (name, value) in fields.iter() {
        if !dropped.contains(name) && (dated || !name.eq_ignore_ascii_case("date")) {
            write_line(name, value, &mut lines);
        }
    }
    lines
}

/// Returns whether the cache knows the caching requirements of this status (RFC 9111 §5.2.2.3). It knows the statuses
/// of RFC 9110 and RFC 6585.
const fn is_understood(status: u16) -> bool {
    matches!(status, 200..=206 | 300..=305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 428 | 429 | 431 | 500..=505 | 511)
}

/// Returns whether a status applies only to a single request because of its syntax, preferences, credentials,
/// conditions, range, size, connection or rate. If such a response were stored, one client could hide a page from all
/// others, because some origins send the same lifetime with every response.
const fn is_of_request(status: u16) -> bool {
    matches!(
        status,
        100..=199
            | 400
            | 401..=403
            | 406..=408
            | 411..=413
            | 415..=417
            | 421
            | 422
            | 425
            | 426
            | 428
            | 429
            | 431
            | 505
            | 511
    )
}

/// Returns whether later responses for the key will probably not be stored either.
const fn is_remembered(reason: NoStore, status: u16) -> bool {
    match reason {
        NoStore::NoStoreDirective
        | NoStore::Private
        | NoStore::SetCookie
        | NoStore::VaryStar
        | NoStore::VaryInvalid
        | NoStore::VaryForwarded
        | NoStore::NoFreshness
        | NoStore::AlreadyStale
        | NoStore::MaxAgeInvalid
        | NoStore::ExpiresInvalid
        | NoStore::Cookie
        | NoStore::EventStream
        | NoStore::TooLarge
        | NoStore::CloseDelimited
        | NoStore::TagsTooMany
        | NoStore::FieldsTooLarge
        | NoStore::StatusNotUnderstood
        | NoStore::StatusNotCacheable => status < 500,
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
