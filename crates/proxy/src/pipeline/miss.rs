//! Choice of the upstream request for a miss.

use super::fetch::FetchConditions;
use super::lookup::LookupResult;
use super::{Next, Pipeline, Step};
use crate::forward::count_marks;
use flatout_cache::decision::may_wait;
use flatout_cache::reason::Lookup;
use flatout_cache::validate::Conditions;
use flatout_os::clock::Now;
use std::ops::ControlFlow;

/// The upstream request that a miss requires.
pub(crate) struct Need {
    /// Reason for the request.
    pub(super) reason: Lookup,
    /// Additions to the client's request.
    pub(super) question: FetchConditions,
    /// Conditions for the requests of further missing ranges, if this is a request for a missing range.
    pub(super) completion: Option<Conditions>,
}

impl Need {
    /// Creates a need for the client's own request, without additions.
    pub(super) const fn new(reason: Lookup) -> Self {
        Self { reason, question: FetchConditions::NONE, completion: None }
    }
}

/// Kind of upstream request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upstream {
    /// Forward the request without the cache.
    Pass,
    /// Fetch for this client alone, with this reason in logs.
    Alone(Lookup),
    /// Fetch for all clients that request the same response.
    Shared,
}

/// Properties of a miss that determine the kind of upstream request.
#[derive(Clone, Copy, Debug)]
struct Miss {
    reason: Lookup,
    is_get: bool,
    /// True if the request may wait for a fetch started by another request.
    may_wait: bool,
    /// True if the key is marked as hit-for-miss.
    is_marked: bool,
    /// True if the client's request is sent without additions.
    is_bare: bool,
    /// Reason of an earlier shared fetch of this request whose response could not be shared.
    released: Option<Lookup>,
}

/// Chooses the kind of upstream request for a miss.
fn choose(miss: Miss) -> Upstream {
    if miss.reason == Lookup::RequestPrecondition || !miss.is_get {
        return Upstream::Pass;
    }
    match (miss.may_wait, miss.is_marked) {
        (true, false) => Upstream::Shared,
        (true, true) if miss.is_bare => Upstream::Alone(Lookup::HitForMiss),
        _ => Upstream::Alone(miss.released.unwrap_or(miss.reason)),
    }
}

impl Pipeline {
    /// Step Miss: chooses the upstream request.
    pub(super) fn miss(&self, found: LookupResult, need: Need) -> Next {
        let query = &self.query;
        let reason = need.reason;
        // If the stored response is not for this visitor, it is neither validated nor used after a failure, and the
        // response to this request does not affect it.
        let is_refused = matches!(reason, Lookup::RequestAuthorized | Lookup::RequestCookie);
        let kept = found.object().cloned().filter(|_| !is_refused);
        let is_known = kept.is_some() || reason == Lookup::MissPurged;
        let rules = &query.cache.rules;
        let now_ms = Now::read().monotonic_ms;
        // If the request has come back, the fetch that it would join waits for its response.
        let has_returned =
            || query.ask.request.with(|request| count_marks(request.head.fields, &query.step.loop_mark) > 0);
        let chosen = choose(Miss {
            reason,
            is_get: query.ask.request.method() == "GET",
            may_wait: !self.alone
                && !is_refused
                && !has_returned()
                && query.with(|request| may_wait(request, is_known, query.names_visitor, rules)),
            is_marked: self.worker.store().is_some_and(|store| store.marker(query.marker_hash(), now_ms).is_some()),
            is_bare: need.question.is_none(),
            released: self.released,
        });
        ControlFlow::Continue(match chosen {
            Upstream::Pass => Step::Pass { reason, kept },
            // Do not validate a response that could not be served, or one of several parts, which is not a complete
            // response.
            Upstream::Alone(reason) if self.whole || found.set().is_some() => Step::fetch_alone(reason),
            Upstream::Alone(reason) => Step::FetchAlone { reason, question: need.question, kept },
            Upstream::Shared => Step::FetchShared { found, need, kept },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Miss, Upstream, choose};
    use flatout_cache::reason::Lookup;

    const COLD: Miss = Miss {
        reason: Lookup::MissCold,
        is_get: true,
        may_wait: true,
        is_marked: false,
        is_bare: true,
        released: None,
    };

    #[test]
    fn requests_that_may_wait_share_one_fetch() {
        assert_eq!(choose(COLD), Upstream::Shared);
        assert_eq!(choose(Miss { may_wait: false, ..COLD }), Upstream::Alone(Lookup::MissCold));
    }

    #[test]
    fn a_marked_key_is_fetched_by_each_client_and_says_so() {
        let marked = Miss { is_marked: true, ..COLD };
        assert_eq!(choose(marked), Upstream::Alone(Lookup::HitForMiss));
        let stale = Miss { reason: Lookup::StaleExpired, is_bare: false, ..marked };
        assert_eq!(choose(stale), Upstream::Alone(Lookup::StaleExpired));
        assert_eq!(choose(Miss { may_wait: false, ..marked }), Upstream::Alone(Lookup::MissCold));
    }

    #[test]
    fn after_a_released_fetch_its_reason_is_reported() {
        let released = Miss { may_wait: false, released: Some(Lookup::MissVary), ..COLD };
        assert_eq!(choose(released), Upstream::Alone(Lookup::MissVary));
    }

    #[test]
    fn preconditions_and_other_methods_bypass_the_cache() {
        assert_eq!(choose(Miss { is_get: false, ..COLD }), Upstream::Pass);
        assert_eq!(choose(Miss { reason: Lookup::RequestPrecondition, ..COLD }), Upstream::Pass);
    }
}
