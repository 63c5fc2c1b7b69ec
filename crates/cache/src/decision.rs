//! How to handle a request, with and without a stored response.

use crate::condition::{SelectedForm, decide_conditions};
use crate::cookie::{bypasses, names_visitor};
use crate::directive::RequestDirectives;
use crate::freshness::LifetimeSource;
use crate::invalidate::is_safe;
use crate::parts::{Stretch, cover, make_if_range};
use crate::reason::Lookup;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::stored::{Extent, Flags, Stored};
use crate::validate::{Conditions, make_conditions};
use flatout_http::media::is_event_stream;
use flatout_http::ranges::ByteRange;

/// How to handle a request before lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Look up a stored response.
    LookUp,
    /// Forward the request. Do not store the response or invalidate anything.
    Bypass(Lookup),
    /// Forward the request. [`decide_invalidation`](crate::invalidate::decide_invalidation) and
    /// [`decide_response`](crate::storable::decide_response) decide what the response invalidates and whether it is
    /// stored.
    Unsafe(Lookup),
}

/// Classifies `request`. The caller handles PURGE, which is not an HTTP method, beforehand.
pub fn decide_request(request: &CacheRequest<'_>, rules: &Rules) -> Intake {
    if !request.is_get_or_head() {
        // Even if caching is off, responses stored by other caches may now be outdated.
        return if is_safe(request.method) {
            Intake::Bypass(Lookup::BypassMethod)
        } else {
            Intake::Unsafe(Lookup::UnsafeMethod)
        };
    }
    if !rules.enabled {
        return Intake::Bypass(Lookup::BypassOff);
    }
    if request.has_content {
        return Intake::Bypass(Lookup::BypassContent);
    }
    if bypasses(request, &rules.cookies) {
        return Intake::Bypass(Lookup::BypassCookie);
    }
    if overrides_target(request) {
        return Intake::Bypass(Lookup::BypassOverride);
    }
    if request.is_plain() {
        return Intake::LookUp;
    }
    // Upgrade to HTTP/2 is obsolete (RFC 9113 §3.1), and a client that offers `h2c` also accepts HTTP/1.1.
    if request.field("upgrade").is_some_and(|protocol| !protocol.eq_ignore_ascii_case(b"h2c")) {
        return Intake::Bypass(Lookup::BypassUpgrade);
    }
    if overrides_method(request) {
        return Intake::Bypass(Lookup::BypassOverride);
    }
    // A request with only-if-cached is not forwarded, so there is no response to store.
    let directives = advice(request, rules);
    if directives.no_store && !directives.only_if_cached {
        return Intake::Bypass(Lookup::BypassNoStore);
    }
    Intake::LookUp
}

/// Returns whether the request has a field with which some frameworks override the method. The response must then not
/// be stored as a response to GET.
fn overrides_method(request: &CacheRequest<'_>) -> bool {
    ["x-http-method-override", "x-http-method", "x-method-override"].iter().any(|name| request.field(name).is_some())
}

/// Returns whether the origin receives, from a trusted proxy, a field with which some frameworks override the target. The
/// response must then not be stored under the target of the request line.
fn overrides_target(request: &CacheRequest<'_>) -> bool {
    let forwarding = request.forwarding;
    forwarding.has_trusted() && request.fields.iter().any(|(name, _)| forwarding.overrides_target(name))
}

/// How to handle a request after lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve the stored response, which is fresh.
    Serve {
        /// Value of Age.
        age_s: u32,
        /// The reason for serving the stored response, for Cache-Status.
        reason: Lookup,
    },
    /// Serve the stored response although it is stale, or although the request demands validation.
    ServeStale {
        /// Value of Age.
        age_s: u32,
        /// The reason for serving it, for Cache-Status.
        reason: Lookup,
        /// True to revalidate the stored response in the background.
        revalidate: bool,
    },
    /// Validate the stored response at the origin. The upstream request omits the client's conditions and Range; these
    /// are evaluated against the response stored after the validation.
    Validate {
        /// Fields to add to the upstream request.
        conditions: Conditions,
        /// The reason for validating the stored response, for Cache-Status.
        reason: Lookup,
    },
    /// Fetch the missing ranges of a partially stored representation. The upstream requests omit the client's
    /// conditions and Range.
    Complete {
        /// The stored and missing ranges of the requested content, in order.
        stretches: Vec<Stretch>,
        /// Fields to add to the upstream requests besides Range: If-Range if the client requested the whole
        /// representation.
        conditions: Conditions,
        /// The reason for which the stored parts do not suffice, for Cache-Status.
        reason: Lookup,
    },
    /// Forward the request as if nothing were stored.
    Forward {
        /// The reason for forwarding the request, for Cache-Status.
        reason: Lookup,
    },
    /// Respond with 504: the client accepts only a stored response, and none is usable (RFC 9111 §5.2.1.7).
    Unsatisfiable {
        /// The reason for the 504, for Cache-Status.
        reason: Lookup,
    },
}

/// Decides how to handle `request`, given `stored`, which has the same key and variant.
pub fn decide_stored(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules, now_s: i64) -> Verdict {
    let directives = advice(request, rules);
    let verdict = decide_reuse(request, stored, &directives, rules, now_s);
    match verdict {
        // RFC 9111 §5.2.1.7. A precondition that only the origin can evaluate also results in a 504.
        Verdict::Validate { .. } | Verdict::Forward { .. } if directives.only_if_cached => {
            Verdict::Unsatisfiable { reason: Lookup::OnlyIfCached }
        }
        verdict => verdict,
    }
}

/// Decides how to handle `request`, given the stored `parts` of a representation. `whole` and `total` come from
/// [`whole_of`](crate::parts::whole_of) for the newest part.
///
/// Missing ranges are requested even if the parts are stale: a 206 with the same strong validator confirms them.
pub fn decide_parts(
    request: &CacheRequest<'_>,
    (whole, total): (&Stored, u64),
    parts: &[ByteRange],
    rules: &Rules,
    now_s: i64,
) -> Verdict {
    let verdict = decide_stored(request, whole, rules, now_s);
    if !matches!(verdict, Verdict::Serve { .. } | Verdict::ServeStale { .. } | Verdict::Validate { .. }) {
        return verdict;
    }
    let reason = Lookup::MissPart;
    let missing = |stretches: &[Stretch]| stretches.iter().any(|stretch| matches!(stretch, Stretch::Missing(_)));
    let (wanted, is_whole) = match decide_conditions(request, whole, Some(total), now_s) {
        SelectedForm::NotModified | SelectedForm::Unsatisfiable => return verdict,
        SelectedForm::Parts(wanted) if wanted.as_slice().iter().all(|part| !missing(&cover(parts, *part))) => {
            return verdict;
        }
        SelectedForm::NotHeld | SelectedForm::Parts(_) => return decide_miss(request, reason, rules),
        SelectedForm::Whole => (ByteRange { first: 0, last: total.saturating_sub(1) }, true),
        SelectedForm::Part(part) => (part, false),
    };
    let stretches = cover(parts, wanted);
    if !missing(&stretches) {
        return verdict;
    }
    let is_held = stretches.iter().any(|stretch| matches!(stretch, Stretch::Held { .. }));
    if !is_held || advice(request, rules).only_if_cached {
        // No requested byte is stored, or the request must not be forwarded.
        return decide_miss(request, reason, rules);
    }
    // If the representation has changed, If-Range makes the origin send all of the new version. That is useful only to
    // a client that requested the whole representation.
    let conditions = if is_whole { make_if_range(whole) } else { Conditions::default() };
    Verdict::Complete { stretches, conditions, reason }
}

/// Decides how to handle a request for which no stored response exists. `reason` is the kind of miss, such as
/// [`Lookup::MissCold`] or [`Lookup::MissVary`]. Returns [`Verdict::Forward`] or [`Verdict::Unsatisfiable`].
pub fn decide_miss(request: &CacheRequest<'_>, reason: Lookup, rules: &Rules) -> Verdict {
    if advice(request, rules).only_if_cached {
        Verdict::Unsatisfiable { reason: Lookup::OnlyIfCached }
    } else {
        Verdict::Forward { reason }
    }
}

/// Returns the directives of `request`, or none if the rules ignore request directives.
fn advice(request: &CacheRequest<'_>, rules: &Rules) -> RequestDirectives {
    if rules.request_directives { request.directives() } else { RequestDirectives::default() }
}

/// Returns whether `stored`, which was fetched for another request with the same variant, may satisfy `request` without
/// validation (RFC 9111 §4). If not, `request` must neither wait for that fetch nor receive its response.
pub fn may_share(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules, now_s: i64) -> bool {
    matches!(decide_stored(request, stored, rules, now_s), Verdict::Serve { .. })
}

/// Returns whether `request` may wait for a fetch that another request started: only if it will probably be able to use
/// the response. `is_known` is true if a response for the same key has been stored before; `names_visitor` is the
/// result of [`names_visitor`].
///
/// Three kinds of request do not wait. A request with `no-cache`, `no-store` or `max-age=0` cannot use a response that
/// was requested before it arrived. A subscriber to an event stream would miss the first events. A request with a
/// cookie or Authorization usually gets a personal response, unless a response for the key has been stored before.
pub fn may_wait(request: &CacheRequest<'_>, is_known: bool, names_visitor: bool, rules: &Rules) -> bool {
    if !request.is_plain() {
        let directives = advice(request, rules);
        let wants_newer = directives.no_cache || directives.no_store || directives.max_age_s == Some(0);
        if wants_newer || request.field("authorization").is_some() && !is_known {
            return false;
        }
    }
    let mut accepted = request.fields.all("accept").flat_map(|line| line.split(|&byte| byte == b','));
    !accepted.any(is_event_stream) && (is_known || !names_visitor)
}

/// Returns the reason not to serve `stored` to a request that identifies its visitor, if there is one.
fn refuse_visitor(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules) -> Option<Lookup> {
    // RFC 9111 §3.5 forbids storing the response to a request with Authorization unless the response allows it. An A
    // request with Authorization does not use a response stored for others either: the origin may respond differently
    // to it.
    let is_for_authorized = stored.flags.any(Flags::AUTHORIZED) && stored.flags.any(Flags::SHARED);
    if !is_for_authorized && request.field("authorization").is_some() {
        return Some(Lookup::RequestAuthorized);
    }
    if !stored.flags.any(Flags::SHARED) && names_visitor(request, &rules.cookies) {
        return Some(Lookup::RequestCookie);
    }
    None
}

fn decide_reuse(
    request: &CacheRequest<'_>,
    stored: &Stored,
    directives: &RequestDirectives,
    rules: &Rules,
    now_s: i64,
) -> Verdict {
    // RFC 9111 §4.3.2: a cache does not evaluate these two fields.
    if request.field("if-match").is_some() || request.field("if-unmodified-since").is_some() {
        return Verdict::Forward { reason: Lookup::RequestPrecondition };
    }
    if let Some(reason) = refuse_visitor(request, stored, rules) {
        return Verdict::Forward { reason };
    }
    if let Some(verdict) = decide_part(request, stored, now_s) {
        return verdict;
    }
    let age_s = stored.current_age_s(now_s);
    match refuse_reuse(stored, directives, age_s) {
        None => Verdict::Serve { age_s, reason: Lookup::HitFresh },
        Some(Lookup::StaleExpired) => {
            let stale_s = age_s - stored.lifetime_s;
            let accepts_stale =
                stored.lifetime_s > 0 && directives.max_stale_s.is_some_and(|max_stale_s| stale_s <= max_stale_s);
            if !allows_age(directives, age_s) {
                ask_origin(stored, Lookup::StaleExpired)
            } else if stale_s < stored.stale_while_revalidate_s {
                Verdict::ServeStale { age_s, reason: Lookup::HitWhileRevalidate, revalidate: true }
            } else if accepts_stale && !stored.flags.any(Flags::MUST_REVALIDATE) {
                Verdict::ServeStale { age_s, reason: Lookup::HitMaxStale, revalidate: false }
            } else {
                ask_origin(stored, Lookup::StaleExpired)
            }
        }
        Some(reason) => ask_origin(stored, reason),
    }
}

fn ask_origin(stored: &Stored, reason: Lookup) -> Verdict {
    let is_invalid = matches!(stored.lifetime_source, LifetimeSource::Invalid | LifetimeSource::ExpiresInvalid);
    let reason = if is_invalid && reason == Lookup::StaleExpired { Lookup::StoredLifetimeInvalid } else { reason };
    match make_conditions(stored) {
        Some(conditions) => Verdict::Validate { conditions, reason },
        None => Verdict::Forward { reason },
    }
}

/// Returns the reason not to serve `stored` at the age `age_s` without validation, if there is one (RFC 9111 §4).
fn refuse_reuse(stored: &Stored, directives: &RequestDirectives, age_s: u32) -> Option<Lookup> {
    if stored.flags.any(Flags::NO_CACHE) {
        return Some(Lookup::StoredNoCache);
    }
    if directives.no_cache {
        return Some(Lookup::RequestNoCache);
    }
    if age_s >= stored.lifetime_s {
        return Some(Lookup::StaleExpired);
    }
    // RFC 8246 §2: an immutable response needs no validation on reload while it is fresh.
    if !stored.flags.any(Flags::IMMUTABLE) && directives.max_age_s.is_some_and(|max_age_s| !is_within(age_s, max_age_s))
    {
        return Some(Lookup::RequestMaxAge);
    }
    if directives.min_fresh_s.is_some_and(|min_fresh_s| stored.lifetime_s - age_s < min_fresh_s) {
        return Some(Lookup::RequestMinFresh);
    }
    None
}

/// Returns whether `age_s` is within a request's max-age (RFC 9111 §5.2.1.1). A max-age of 0 always requires
/// validation: ages are whole seconds, so an age of 0 may be almost a second.
const fn is_within(age_s: u32, max_age_s: u32) -> bool {
    age_s <= max_age_s && max_age_s > 0
}

/// Returns whether a request's min-fresh and max-age permit a stale response of this age. Any min-fresh forbids it.
fn allows_age(directives: &RequestDirectives, age_s: u32) -> bool {
    directives.min_fresh_s.is_none() && directives.max_age_s.is_none_or(|max_age_s| is_within(age_s, max_age_s))
}

/// Forwards a request that the stored part `stored` does not cover. Returns `None` if the part covers the requested
/// range, or if `stored` is a whole response.
fn decide_part(request: &CacheRequest<'_>, stored: &Stored, now_s: i64) -> Option<Verdict> {
    if stored.extent == Extent::Whole {
        return None;
    }
    let forward = Some(Verdict::Forward { reason: Lookup::MissPart });
    if request.method != "GET" {
        return forward;
    }
    if request.field("range").is_some() {
        return match decide_conditions(request, stored, None, now_s) {
            SelectedForm::NotHeld => forward,
            _ => None,
        };
    }
    forward
}

/// Kind of origin failure, as stale-if-error distinguishes them (RFC 5861 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginFailureKind {
    /// No usable response: no connection, no response head in time, or an invalid head.
    Unreachable,
    /// A response with this status, 500 to 599.
    Status(u16),
}

/// Decides what to serve after an origin failure: the stored response, fresh or stale ([`Verdict::ServeStale`]), or the
/// failure ([`Verdict::Forward`]) (RFC 5861 §4, RFC 9111 §4.2.4).
pub fn decide_failure(
    request: &CacheRequest<'_>,
    stored: &Stored,
    failure: OriginFailureKind,
    rules: &Rules,
    now_s: i64,
) -> Verdict {
    let pass = Verdict::Forward { reason: Lookup::ErrorPassed };
    let reason = match failure {
        OriginFailureKind::Unreachable => Lookup::HitIfUnreachable,
        // Listed in RFC 5861 §4.
        OriginFailureKind::Status(500 | 502 | 503 | 504) => Lookup::HitIfError,
        OriginFailureKind::Status(_) => return pass,
    };
    let directives = advice(request, rules);
    let blocked = request.field("if-match").is_some()
        || request.field("if-unmodified-since").is_some()
        || refuse_visitor(request, stored, rules).is_some();
    let part = stored.extent != Extent::Whole
        && (request.method != "GET"
            || matches!(decide_conditions(request, stored, None, now_s), SelectedForm::NotHeld));
    if blocked || part || stored.flags.any(Flags::NO_CACHE) {
        return pass;
    }
    // A request's stale-if-error may extend a lifetime. A response without a lifetime, or with `max-age=0`, was never
    // meant to be shared.
    let may_prolong = !stored.flags.any(Flags::MUST_REVALIDATE) && stored.lifetime_s > 0;
    let asked_s = directives.stale_if_error_s.filter(|_| may_prolong).unwrap_or(0);
    let window_s = stored.stale_if_error_s.max(asked_s);
    let age_s = stored.current_age_s(now_s);
    let allowed = if age_s < stored.lifetime_s {
        // The stored response is fresh, but the request demanded validation.
        true
    } else {
        age_s - stored.lifetime_s < window_s
    };
    if allowed { Verdict::ServeStale { age_s, reason, revalidate: false } } else { pass }
}

#[cfg(test)]
mod tests;
