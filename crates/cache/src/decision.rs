//! What to do with a request, with and without a stored answer for it.

use crate::condition::{Answer, decide_conditions};
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
use flatout_http::ranges::Part;

/// What a request means to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intake {
    /// Look for a stored answer.
    LookUp,
    /// Forward it, keep nothing of the answer, invalidate nothing.
    Bypass(Lookup),
    /// Forward it; what the answer invalidates, and whether it is kept,
    /// [`decide_invalidation`](crate::invalidate::decide_invalidation) and
    /// [`decide_response`](crate::storable::decide_response) tell.
    Unsafe(Lookup),
}

/// Decides what `request` means to the cache. For PURGE, which is not HTTP's, ask elsewhere first.
pub fn decide_request(request: &CacheRequest<'_>, rules: &Rules) -> Intake {
    if !request.is_get_or_head() {
        // Even where the cache is off, what others have stored may be out of date now.
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
    if request.is_plain() {
        return Intake::LookUp;
    }
    // HTTP/2 by upgrade is gone (RFC 9113 §3.1), and what offers it takes the answer in HTTP/1.1 as well.
    if request.field("upgrade").is_some_and(|protocol| !protocol.eq_ignore_ascii_case(b"h2c")) {
        return Intake::Bypass(Lookup::BypassUpgrade);
    }
    if overrides_method(request) {
        return Intake::Bypass(Lookup::BypassMethodOverride);
    }
    // With only-if-cached nothing is forwarded, so there is no answer that could be kept.
    let directives = advice(request, rules);
    if directives.no_store && !directives.only_if_cached {
        return Intake::Bypass(Lookup::BypassNoStore);
    }
    Intake::LookUp
}

/// Whether a field asks for another method than GET, as some frameworks let it: its answer must not be kept for GET.
fn overrides_method(request: &CacheRequest<'_>) -> bool {
    ["x-http-method-override", "x-http-method", "x-method-override"].iter().any(|name| request.field(name).is_some())
}

/// What is answered when a stored answer was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Serve it.
    Serve {
        /// The value of Age.
        age_s: u32,
        /// Why.
        reason: Lookup,
    },
    /// Serve it although it is stale.
    ServeStale {
        /// The value of Age.
        age_s: u32,
        /// Why.
        reason: Lookup,
        /// Whether a new one is to be fetched meanwhile.
        revalidate: bool,
    },
    /// Ask the origin whether it still holds. The client's own conditions and Range are left out of that request; they
    /// are decided on whatever is stored afterwards.
    Validate {
        /// What to add to the request.
        conditions: Conditions,
        /// Why.
        reason: Lookup,
    },
    /// Some of what the request wants is stored in parts: request the missing stretches from the origin. The client's own
    /// conditions and Range are left out of those requests.
    Complete {
        /// All that the request wants, in order.
        stretches: Vec<Stretch>,
        /// What to add to the requests beside their Range: If-Range where the client wants the whole in any case.
        conditions: Conditions,
        /// Why.
        reason: Lookup,
    },
    /// Forward the request as if nothing were stored.
    Forward {
        /// Why.
        reason: Lookup,
    },
    /// 504: the client wants a stored answer only (RFC 9111 §5.2.1.7).
    Unsatisfiable {
        /// Why.
        reason: Lookup,
    },
}

/// Decides what is answered to `request` when `stored` is there, whose key and variant are the request's.
pub fn decide_stored(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules, now_s: i64) -> Verdict {
    let directives = advice(request, rules);
    let verdict = decide_reuse(request, stored, &directives, rules, now_s);
    match verdict {
        // RFC 9111 §5.2.1.7. A precondition that only the origin decides cannot be met either.
        Verdict::Validate { .. } | Verdict::Forward { .. } if directives.only_if_cached => {
            Verdict::Unsatisfiable { reason: Lookup::OnlyIfCached }
        }
        verdict => verdict,
    }
}

/// Decides what is answered to `request` when `parts` of a representation are stored. `whole` and `total` are what
/// [`whole_of`](crate::parts::whole_of) makes of the newest part.
///
/// What is missing is requested even where the parts are stale: a 206 with the same strong validator confirms them.
pub fn decide_parts(
    request: &CacheRequest<'_>,
    (whole, total): (&Stored, u64),
    parts: &[Part],
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
        Answer::NotModified | Answer::Unsatisfiable => return verdict,
        Answer::Parts(wanted) if wanted.as_slice().iter().all(|part| !missing(&cover(parts, *part))) => return verdict,
        Answer::NotHeld | Answer::Parts(_) => return decide_miss(request, reason, rules),
        Answer::Whole => (Part { first: 0, last: total.saturating_sub(1) }, true),
        Answer::Part(part) => (part, false),
    };
    let stretches = cover(parts, wanted);
    if !missing(&stretches) {
        return verdict;
    }
    let is_held = stretches.iter().any(|stretch| matches!(stretch, Stretch::Held { .. }));
    if !is_held || advice(request, rules).only_if_cached {
        // Nothing of it is stored: the client's own request is as good as any.
        return decide_miss(request, reason, rules);
    }
    // A range must not make the origin send the whole of another version; a client that wants the whole gets that.
    let conditions = if is_whole { make_if_range(whole) } else { Conditions::default() };
    Verdict::Complete { stretches, conditions, reason }
}

/// Decides what is done when nothing is stored. `reason` says what was not found: [`Lookup::MissCold`],
/// [`Lookup::MissVary`] and so on. The answer is [`Verdict::Forward`] or [`Verdict::Unsatisfiable`].
pub fn decide_miss(request: &CacheRequest<'_>, reason: Lookup, rules: &Rules) -> Verdict {
    if advice(request, rules).only_if_cached {
        Verdict::Unsatisfiable { reason: Lookup::OnlyIfCached }
    } else {
        Verdict::Forward { reason }
    }
}

/// The request's directives, as far as the rules let them count.
fn advice(request: &CacheRequest<'_>, rules: &Rules) -> RequestDirectives {
    if rules.request_directives { request.directives() } else { RequestDirectives::default() }
}

/// Whether `stored`, which was fetched for another request and is for the variant of `request`, may answer `request`
/// without validation (RFC 9111 §4). Otherwise `request` must not wait for it, nor get it.
pub fn may_share(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules, now_s: i64) -> bool {
    matches!(decide_stored(request, stored, rules, now_s), Verdict::Serve { .. })
}

/// Reports whether `request` may wait for a fetch that another request started. It may when it is likely to receive that
/// response. `is_known`: a response for the same key has been stored before. `names_visitor`: what
/// [`names_visitor`] says of it.
///
/// Three kinds of request do not wait. One with `no-cache` or `max-age=0` cannot use a response requested before it arrived.
/// A subscriber to an event stream would miss the first events. A request with a cookie usually gets a response of its own,
/// unless a stored response has shown otherwise.
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

/// Why the visitor that `request` names may not have `stored`, which does not say that it is for everybody.
fn refuse_visitor(request: &CacheRequest<'_>, stored: &Stored, rules: &Rules) -> Option<Lookup> {
    // RFC 9111 §3.5 forbids to store the response to a request with Authorization, unless the response says so. What
    // was stored for others is not theirs either: an origin that knows who asks may well answer otherwise.
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
    // RFC 9111 §4.3.2: these two are no cache's to decide.
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
            let accepts_stale = stored.lifetime_source != LifetimeSource::None
                && directives.max_stale_s.is_some_and(|max_stale_s| stale_s <= max_stale_s);
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

/// What stands against serving `stored` at `age_s` without a question (RFC 9111 §4).
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
    // RFC 8246 §2: what never changes while it is fresh need not be asked for when a page is reloaded.
    if !stored.flags.any(Flags::IMMUTABLE) && directives.max_age_s.is_some_and(|max_age_s| !is_within(age_s, max_age_s))
    {
        return Some(Lookup::RequestMaxAge);
    }
    if directives.min_fresh_s.is_some_and(|min_fresh_s| stored.lifetime_s - age_s < min_fresh_s) {
        return Some(Lookup::RequestMinFresh);
    }
    None
}

/// Whether an age is within a request's max-age (RFC 9111 §5.2.1.1). 0 asks for a new answer always: in whole seconds
/// an age of 0 may be one of nearly a second.
const fn is_within(age_s: u32, max_age_s: u32) -> bool {
    age_s <= max_age_s && max_age_s > 0
}

/// Whether a request takes an answer of this age that is stale already: one that asks for a lasting or a young one does
/// not.
fn allows_age(directives: &RequestDirectives, age_s: u32) -> bool {
    directives.min_fresh_s.is_none() && directives.max_age_s.is_none_or(|max_age_s| is_within(age_s, max_age_s))
}

/// Decides how to use a single stored part that does not cover the request. `None`: it covers the request, or the whole
/// response is stored.
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
            Answer::NotHeld => forward,
            _ => None,
        };
    }
    forward
}

/// What went wrong with an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No answer: no connection, no head in time, or a head that is none.
    Unreachable,
    /// This status, 500 to 599.
    Status(u16),
}

/// Decides what is answered when an origin failed and `stored` is there, fresh or stale: it, as
/// [`Verdict::ServeStale`], or the failure, as [`Verdict::Forward`] (RFC 5861 §4, RFC 9111 §4.2.4).
pub fn decide_failure(
    request: &CacheRequest<'_>,
    stored: &Stored,
    failure: Failure,
    rules: &Rules,
    now_s: i64,
) -> Verdict {
    let pass = Verdict::Forward { reason: Lookup::ErrorPassed };
    let reason = match failure {
        Failure::Unreachable => Lookup::HitIfUnreachable,
        // RFC 5861 §4 names these.
        Failure::Status(500 | 502 | 503 | 504) => Lookup::HitIfError,
        Failure::Status(_) => return pass,
    };
    let directives = advice(request, rules);
    let blocked = request.field("if-match").is_some()
        || request.field("if-unmodified-since").is_some()
        || refuse_visitor(request, stored, rules).is_some();
    let part = stored.extent != Extent::Whole
        && (request.method != "GET" || matches!(decide_conditions(request, stored, None, now_s), Answer::NotHeld));
    if blocked || part || stored.flags.any(Flags::NO_CACHE) {
        return pass;
    }
    // A request may prolong a lifetime, where there is one; without one, the origin never allowed sharing.
    let may_prolong = !stored.flags.any(Flags::MUST_REVALIDATE) && stored.lifetime_source != LifetimeSource::None;
    let asked_s = directives.stale_if_error_s.filter(|_| may_prolong).unwrap_or(0);
    let window_s = stored.stale_if_error_s.max(asked_s);
    let age_s = stored.current_age_s(now_s);
    let allowed = if age_s < stored.lifetime_s {
        // Fresh, and the request wanted it asked for: it gets what there is.
        true
    } else {
        age_s - stored.lifetime_s < window_s
    };
    if allowed { Verdict::ServeStale { age_s, reason, revalidate: false } } else { pass }
}

#[cfg(test)]
mod tests;
