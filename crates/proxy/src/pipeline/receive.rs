//! Receipt of a request, which is forwarded without a cache, served from memory, or passed to the steps.

use super::direct::{Aim, ForwardedRequest};
use super::{fetch_alone, hit, purge, run};
use crate::compose;
use crate::exchange::UpstreamRequest;
use crate::forward::Strip;
use crate::note::IDENTIFIER;
use crate::outcome::ForwardOutcome;
use crate::query::Query;
use crate::rules::CacheStep;
use crate::searches::{SearchRule, is_allowed};
use crate::step::ProxyStep;
use crate::sticky::Affinity;
use crate::worker::ProxyWorker;
use flatout_cache::cookie::names_visitor;
use flatout_cache::decision::{Intake, decide_request};
use flatout_cache::reason::Lookup;
use flatout_cache::request::CacheRequest;
use flatout_cache::storable::RequestFacts;
use flatout_cache::stored::{Flags, Stored};
use flatout_cache::vary::write_variant_key;
use flatout_handler::response::Response;
use flatout_handler::routed::{Handling, Refusal, RoutedRequest};
use flatout_store::ObjectKey;
use flatout_store::key::locator;
use std::rc::Rc;
use std::sync::Arc;

impl ProxyWorker {
    /// Handles a request routed to the `proxy` step `step`, with its `cache` step if there is one.
    pub fn handle(
        self: &Rc<Self>,
        step: &Arc<ProxyStep>,
        cache: Option<&Arc<CacheStep>>,
        routed: &RoutedRequest<'_>,
    ) -> Handling {
        let handle = |routed: &RoutedRequest<'_>, affinity| match cache.filter(|_| self.store().is_some()) {
            None => self.pass(step, routed, affinity),
            Some(cache) => self.receive(step, cache, routed, affinity),
        };
        match &step.sticky {
            // The cookie is removed before the cache and the origin see the request.
            Some(sticky) => sticky.take(routed, |routed, affinity| handle(routed, Some(affinity))),
            None => handle(routed, None),
        }
    }

    fn pass(
        self: &Rc<Self>,
        step: &Arc<ProxyStep>,
        routed: &RoutedRequest<'_>,
        affinity: Option<Affinity>,
    ) -> Handling {
        let (request, path_and_query) = (routed.request, (routed.path, routed.query));
        let client = step.original_client(request.head.fields, request.sender());
        let ask = Box::new(UpstreamRequest::new(step, None, request, path_and_query, (client, affinity)));
        let aim = Aim::Plain { step: Arc::clone(step), ask, policy: Rc::clone(routed.policy) };
        ForwardedRequest::begin(self, aim, routed, (Strip::default(), &[]))
    }

    /// Handles `query` with the future that `make` returns. `make` is called within the outer future, so that its
    /// future is not moved.
    fn later<F: Future<Output = Result<Response, Refusal>>>(
        self: &Rc<Self>,
        query: Rc<Query>,
        make: impl FnOnce(Rc<Self>, Rc<Query>) -> F + 'static,
    ) -> Handling {
        let worker = Rc::clone(self);
        Handling::later(async move {
            let made = make(worker, Rc::clone(&query)).await;
            made.map_err(|refusal| with_status(refusal, &query))
        })
    }

    fn receive(
        self: &Rc<Self>,
        step: &Arc<ProxyStep>,
        cache: &Arc<CacheStep>,
        routed: &RoutedRequest<'_>,
        affinity: Option<Affinity>,
    ) -> Handling {
        let request = routed.request;
        let peer = request.sender();
        let client = step.original_client(request.head.fields, peer);
        let Some(authority) = request.head.host else { return self.pass(step, routed, affinity) };
        let forwarding = step.forwarding(peer);
        let cache_request = CacheRequest {
            method: request.head.method.as_str(),
            secure: request.secure,
            authority,
            path: routed.path,
            query: routed.query,
            fields: request.head.fields,
            has_content: request.offers.has_content(),
            forwarding: &forwarding,
        };
        let purges = cache_request.method == "PURGE";
        if purges && !cache.allows_purge(client) {
            return Refusal::from(ForwardOutcome::PurgeDenied).into();
        }
        let intake = decide_request(&cache_request, &cache.rules);
        let shows_status = cache.shows_status(client);
        let mut key = self.key.borrow_mut();
        key.clear();
        let search = self.accelerator().write_lookup_key(step, cache, &cache_request, &mut key);
        let Some(store) = self.store() else { return self.pass(step, routed, affinity) };
        let hash = store.hash(&key);
        if intake == Intake::LookUp
            && let Some(response) =
                self.answer_ready(&cache_request, cache, (hash, &key, search.as_deref()), routed, shows_status)
        {
            return response.into();
        }
        let names_visitor = names_visitor(&cache_request, &cache.rules.cookies);
        let alone = (intake == Intake::LookUp && !cache.esi)
            .then(|| {
                fetch_alone::asks_alone(store, &cache_request, names_visitor, (hash, &key), &cache.rules, routed.now)
            })
            .flatten();
        let ask = UpstreamRequest::new(step, Some(cache), request, (routed.path, routed.query), (client, affinity));
        let object_key = ObjectKey::new(&key, locator(&key), hash);
        let mut query = Query::new(ask, step, cache, (object_key, search), routed.policy);
        (query.shows_status, query.names_visitor) = (shows_status, names_visitor);
        drop(key);
        let query = Rc::new(query);
        if purges {
            return self.later(query, purge::purge);
        }
        if let Some(reason) = alone {
            let manner = (Strip::CONDITIONS, cache.capability());
            let facts = RequestFacts::new(&cache_request, &cache.rules);
            return ForwardedRequest::begin(self, Aim::Alone { query, reason, facts }, routed, manner);
        }
        if intake == Intake::LookUp
            && let Some(response) = hit::answer_at_once(self, &query, routed.now)
        {
            return response.into();
        }
        if query.cache.esi {
            return self.later(query, move |worker, query| compose::serve(worker, query, intake));
        }
        self.later(query, move |worker, query| run(worker, query, intake.into()))
    }

    /// Returns the prebuilt response for a plain request, if there is one.
    #[inline]
    fn answer_ready(
        &self,
        request: &CacheRequest<'_>,
        cache: &CacheStep,
        (hash, key, rule): (u64, &[u8], Option<&SearchRule>),
        routed: &RoutedRequest<'_>,
        shows_status: bool,
    ) -> Option<Response> {
        let epoch = self.store()?.epoch();
        let mut worker_cache = self.worker_cache.borrow_mut();
        let known = worker_cache.get(hash, key, epoch);
        if known.is_empty() || !request.is_plain() {
            return None;
        }
        let now_s = routed.now.unix_s;
        let ready = known.iter().find(|ready| {
            let stored = &ready.object.meta().stored;
            ready.policy_id == routed.policy.id
                && ready.object.is_current()
                && is_allowed(rule, stored)
                && stored.is_fresh_for_plain_request(now_s)
                && !(cache.esi && stored.flags.any(Flags::ESI))
                && (stored.flags.any(Flags::SHARED) || !names_visitor(request, &cache.rules.cookies))
                && (stored.vary.is_empty() || is_variant(stored, request))
        })?;
        ready.object.touch();
        Some(ready.answer(now_s, shows_status))
    }
}

fn is_variant(stored: &Stored, request: &CacheRequest<'_>) -> bool {
    let mut variant = Vec::with_capacity(64);
    write_variant_key(&stored.vary, request, &mut variant);
    *stored.variant_key == *variant
}

/// Adds Cache-Status with the reason for the refusal and, if the request was forwarded, the reason for forwarding.
pub(super) fn with_status(refusal: Refusal, query: &Query) -> Refusal {
    if !query.shows_status {
        return refusal;
    }
    let fwd = query.forwarded.get().and_then(Lookup::fwd);
    let fwd = fwd.map_or_else(String::new, |fwd| format!("; fwd={}", fwd.token()));
    let status = format!("{IDENTIFIER}{fwd}; detail={}", refusal.outcome.name());
    refusal.with("Cache-Status", status)
}
