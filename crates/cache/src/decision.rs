//! What to do with a request, with and without a stored answer for it.

use crate::reason::Lookup;
use crate::request::CacheRequest;
use crate::rules::Rules;
use crate::stored::Stored;
use crate::validate::Conditions;

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
    let _ = (request, rules);
    unimplemented!()
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
    let _ = (request, stored, rules, now_s);
    unimplemented!()
}

/// Decides what is done when nothing is stored. `reason` says what was not found: [`Lookup::MissCold`],
/// [`Lookup::MissVary`] and so on. The answer is [`Verdict::Forward`] or [`Verdict::Unsatisfiable`].
pub fn decide_miss(request: &CacheRequest<'_>, reason: Lookup, rules: &Rules) -> Verdict {
    let _ = (request, reason, rules);
    unimplemented!()
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
/// [`Verdict::ServeStale`], or the failure, as [`Verdict::Forward`].
pub fn decide_failure(
    request: &CacheRequest<'_>,
    stored: &Stored,
    failure: Failure,
    rules: &Rules,
    now_s: i64,
) -> Verdict {
    let _ = (request, stored, failure, rules, now_s);
    unimplemented!()
}
