//! Waiting for a shared fetch, and use of its result.

use super::deliver::stored::{ResponseContent, answer_from};
use super::fetch::FetchResult;
use super::fetch_alone::respond_unstored;
use super::fetch_shared::SharedFetch;
use super::lookup::LookupResult;
use super::{LOOKUPS_MAX, Next, Pipeline, StaleChance, Step};
use crate::fill::{FetchState, FillHead, Interest, Use};
use crate::note::Note;
use crate::parts::{PartSet, Stitching, Supply};
use crate::query::Query;
use crate::worker::ProxyWorker;
use flatout_cache::decision::{OriginFailureKind, Verdict, decide_failure, may_share};
use flatout_cache::stored::Extent;
use flatout_cache::vary::matches_variant;
use flatout_handler::response::Response;
use flatout_handler::routed::Refusal;
use flatout_os::clock::Now;
use flatout_store::Purged;
use flatout_upstream::origin::OriginFailure;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::rc::Rc;

impl Pipeline {
    /// Step Wait: responds from the result of a shared fetch, or continues with another lookup if this request cannot
    /// use it.
    pub(super) async fn wait(&mut self, fetch: SharedFetch) -> Next {
        let SharedFetch { found, key, stretch, interest, note, own, had_kept } = fetch;
        // If the task has ended without sending a result, the fill reports that.
        if let Some(own) = own
            && let Ok(FetchResult::Own(answered, why)) = own.await
        {
            return ControlFlow::Break(respond_unstored(&self.query, *answered, why, note, had_kept));
        }
        // The next lookup then finds that a stale response may be served.
        let may_leave = note.collapsed && self.stale == StaleChance::Leave && self.has_substitute(&found);
        let standing = poll_fn(|context| interest.poll_standing(may_leave, context)).await;
        if matches!(standing, FetchState::Asking) {
            self.stale = StaleChance::Left;
        }
        if note.collapsed && is_purged(&self.worker, &self.query, &standing) {
            // The upstream request was sent before the purge, but this request may have arrived after it.
            self.worker.accelerator().fills.close(&key, &interest);
            return ControlFlow::Continue(Step::Lookup);
        }
        let result = match (standing, found.set(), stretch) {
            (FetchState::Streaming(head), Some(set), Some((missing, conditions)))
                if set.supplies(&head.meta.stored, missing) =>
            {
                let (worker, query) = (Rc::clone(&self.worker), Rc::clone(&self.query));
                let supply = Supply { worker, query, conditions, first: (missing, head, interest) };
                let response = respond_with_parts(set, supply, note);
                if response.is_none() {
                    self.ask_for_whole();
                }
                response.map(Ok)
            }
            (standing, ..) => self.use_fetched(&found, standing, note, interest),
        };
        result.map_or(ControlFlow::Continue(Step::Lookup), ControlFlow::Break)
    }

    /// Builds the response from the result of a fetch. Returns `None` if another lookup is required.
    fn use_fetched(
        &mut self,
        found: &LookupResult,
        standing: FetchState,
        note: Note,
        interest: Interest,
    ) -> Option<Result<Response, Refusal>> {
        let query = &self.query;
        // RFC 9111 §4: a response fetched for another request is usable only if it may be reused without validation.
        // All requests that cannot use the response continue concurrently.
        let is_anothers = note.collapsed && !is_for(query, &standing);
        match standing {
            // One of the requests that waited fetches again, and the others wait for it. If that fails too, they fail.
            FetchState::Failed(refused) if note.collapsed && !self.retried && may_concern_request(&refused) => {
                self.retried = true;
            }
            FetchState::Failed(refused) if !is_anothers => return Some(Err(refused)),
            FetchState::Asking if !is_anothers => {}
            // The validation has freshened all parts. The next lookup determines which ranges are missing.
            FetchState::Use(_, Use::Validated)
                if !is_anothers && found.set().is_some() && self.lookups < LOOKUPS_MAX =>
            {
                self.validated = Some(note.of_use(Use::Validated));
            }
            FetchState::Use(object, how) if !is_anothers => {
                let content = found.set().and_then(|_| found.content());
                let content = content.unwrap_or(ResponseContent::Kept(object));
                let response = answer_from(query, content, &note.of_use(how), Now::read().unix_s);
                if let Some(response) = response {
                    return Some(Ok(response));
                }
                self.ask_for_whole();
            }
            // The range is too far into a large response to wait for.
            FetchState::Streaming(head) if !is_anothers && note.collapsed && !is_range_near(query, &head) => {
                self.ask_for_whole();
            }
            FetchState::Streaming(head) if !is_anothers => {
                if !query.with(|request| matches_variant(request, &head.meta.stored)) {
                    // The response is a different variant, but now the names in Vary are known.
                    query.vary.replace(Some(head.meta.stored.vary.clone()));
                    return None;
                }
                let (note, storage) = (note.of_fill(&head), head.storage.logged.clone());
                let response = answer_from(query, ResponseContent::Coming(head, interest), &note, Now::read().unix_s);
                if let Some(mut response) = response {
                    response.logged.cache = Some(storage);
                    return Some(Ok(response));
                }
                self.ask_for_whole();
            }
            _ => {
                self.alone = true;
                self.released = Some(note.reason);
            }
        }
        None
    }
}

/// Returns whether the fields of the request may have caused the failure, so that the same request with other fields may
/// succeed: the origin received it, and closed the connection or sent a malformed head.
fn may_concern_request(refused: &Refusal) -> bool {
    use OriginFailure::{ClosedBeforeHead, CutHead, H2Failed, HeadMalformed, HeadTooLarge, Reset};
    [ClosedBeforeHead, CutHead, H2Failed, HeadMalformed, HeadTooLarge, Reset]
        .iter()
        .any(|failure| failure.name() == refused.outcome.name())
}

/// Builds a response from stored parts and a fetch of the missing ranges. Returns `None` if the fetch was started by
/// another request and must not be shared (RFC 9111 §4), or if some content is unavailable.
fn respond_with_parts(set: &Rc<PartSet>, supply: Supply, note: Note) -> Option<Response> {
    let head = &supply.first.1;
    let stored = &head.meta.stored;
    if note.collapsed && !(stored.is_reusable() && !head.is_too_large_to_share() && supply.query.has_search_of(stored))
    {
        return None;
    }
    let (note, storage) = (note.of_fill(head), head.storage.logged.clone());
    let query = Rc::clone(&supply.query);
    let set = Rc::new(set.described_by(&supply.first.1.meta.stored));
    let content = ResponseContent::Parts(Stitching { set, supply: Some(supply) });
    let mut response = answer_from(&query, content, &note, Now::read().unix_s)?;
    response.logged.cache = Some(storage);
    Some(response)
}

/// Returns whether `query`, which waited for another request's fetch, may use the result.
fn is_for(query: &Query, standing: &FetchState) -> bool {
    let (rules, now_s) = (&query.cache.rules, Now::read().unix_s);
    let shares = |stored| query.has_search_of(stored) && query.with(|request| may_share(request, stored, rules, now_s));
    match standing {
        // A different variant cannot be used, but reveals the names in Vary.
        FetchState::Streaming(head) => {
            let stored = &head.meta.stored;
            !head.is_too_large_to_share() && shares(stored)
                || (stored.is_reusable() && query.with(|request| !matches_variant(request, stored)))
        }
        // The 304 may have brought a Vary by which the requests that waited differ.
        FetchState::Use(object, Use::Validated) => {
            let stored = &object.meta().stored;
            shares(stored) && query.with(|request| matches_variant(request, stored))
        }
        FetchState::Use(_, Use::ValidatedOnce) => false,
        FetchState::Use(object, Use::InsteadOfError) => {
            let stored = &object.meta().stored;
            let verdict =
                query.with(|request| decide_failure(request, stored, OriginFailureKind::Unreachable, rules, now_s));
            query.has_search_of(stored) && matches!(verdict, Verdict::ServeStale { .. })
        }
        FetchState::Asking | FetchState::Released | FetchState::Failed(_) => true,
    }
}

/// Returns whether a range request should wait for its range in a whole response that is being fetched from the
/// beginning: only if the response is small.
fn is_range_near(query: &Query, head: &FillHead) -> bool {
    let is_whole = head.meta.stored.extent == Extent::Whole;
    let is_small = head.length.is_some_and(|length| length <= query.cache.range_fetch_bytes_max);
    !is_whole || is_small || query.with(|request| request.field("range").is_none())
}

/// Returns whether a purge applies to the response of a shared fetch.
fn is_purged(worker: &ProxyWorker, query: &Query, standing: &FetchState) -> bool {
    let Some(store) = worker.store() else { return false };
    let purged = match standing {
        FetchState::Streaming(head) => store.check_coming(&query.key, &head.meta, head.generation),
        FetchState::Use(object, _) => store.check(object),
        FetchState::Asking | FetchState::Released | FetchState::Failed(_) => Purged::No,
    };
    purged != Purged::No
}

#[cfg(test)]
mod tests {
    use super::may_concern_request;
    use crate::outcome::{ForwardOutcome, origin_failed};
    use flatout_handler::routed::Refusal;
    use flatout_upstream::origin::OriginFailure;

    #[test]
    fn an_origin_that_is_down_is_not_asked_again() {
        for failure in [
            OriginFailure::Refused,
            OriginFailure::Unresolved,
            OriginFailure::ConnectTimeout,
            OriginFailure::TlsFailed,
            OriginFailure::HeadTimeout,
            OriginFailure::H2NoStream,
        ] {
            assert!(!may_concern_request(&origin_failed(failure)), "{failure:?}");
        }
        assert!(!may_concern_request(&Refusal::from(ForwardOutcome::NoHealthyOrigin)));
        for failure in [OriginFailure::ClosedBeforeHead, OriginFailure::Reset, OriginFailure::CutHead] {
            assert!(may_concern_request(&origin_failed(failure)), "{failure:?}");
        }
    }
}
