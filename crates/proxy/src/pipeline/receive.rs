//! The first step of a request: it bypasses the cache, is served from prebuilt responses, or goes on.

use super::direct::{self, Aim, DirectRequest, Plain};
use super::{Step, fetch_alone, hit, pass, purge, run};
use crate::compose;
use crate::exchange::UpstreamRequest;
use crate::forward::Strip;
use crate::note::IDENTIFIER;
use crate::outcome::ForwardOutcome;
use crate::query::Query;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use crate::worker::ProxyWorker;
use flatout_cache::cookie::names_visitor;
use flatout_cache::decision::{Intake, decide_request};
use flatout_cache::reason::Lookup;
use flatout_cache::request::CacheRequest;
use flatout_cache::stored::{Flags, Stored};
use flatout_cache::vary::write_variant_key;
use flatout_handler::response::Response;
use flatout_handler::routed::{Handling, Refusal, RoutedRequest};
use flatout_store::ObjectKey;
use flatout_store::key::locator;
use std::rc::Rc;
use std::sync::Arc;

impl ProxyWorker {
    /// Handles `routed`.
    pub fn handle(
        self: &Rc<Self>,
        step: &Arc<ProxyStep>,
        cache: Option<&Arc<CacheStep>>,
        routed: &RoutedRequest<'_>,
    ) -> Handling {
        match cache.filter(|_| self.store().is_some()) {
            None => self.pass(step, routed),
            Some(cache) => self.receive(step, cache, routed),
        }
    }

    fn pass(self: &Rc<Self>, step: &Arc<ProxyStep>, routed: &RoutedRequest<'_>) -> Handling {
        let ask = UpstreamRequest::new(step, None, routed.request, (routed.path, routed.query));
        let policy = Rc::clone(routed.policy);
        let step = Arc::clone(step);
        if let Some(sent) = direct::send(self, &step, &ask, routed, (Strip::default(), &[])) {
            let aim = Aim::Plain(Box::new(Plain { step, ask, policy }));
            return Handling::later(DirectRequest::new(self, aim, sent));
        }
        self.later(move |worker| pass::plain(worker, step, ask, policy), false)
    }

    /// Calls `make` in place, so that its future is not moved.
    fn later<F: Future<Output = Result<Response, Refusal>>>(
        self: &Rc<Self>,
        make: impl FnOnce(Rc<Self>) -> F + 'static,
        shows_status: bool,
    ) -> Handling {
        let worker = Rc::clone(self);
        Handling::later(async move {
            let made = make(worker).await;
            if shows_status { made.map_err(with_status) } else { made }
        })
    }

    fn receive(self: &Rc<Self>, step: &Arc<ProxyStep>, cache: &Arc<CacheStep>, routed: &RoutedRequest<'_>) -> Handling {
        let request = routed.request;
        let client = request.client.map(|client| client.ip());
        let Some(authority) = request.head.effective_host() else { return self.pass(step, routed) };
        let forwarding = step.forwarding(client);
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
        self.accelerator().write_lookup_key(step, cache, &cache_request, &mut key);
        let Some(store) = self.store() else { return self.pass(step, routed) };
        let hash = store.hash(&key);
        if intake == Intake::LookUp
            && let Some(response) = self.answer_ready(&cache_request, cache, (hash, &key), routed, shows_status)
        {
            return response.into();
        }
        let names_visitor = names_visitor(&cache_request, &cache.rules.cookies);
        let alone = (intake == Intake::LookUp && !cache.esi)
            .then(|| {
                fetch_alone::asks_alone(store, &cache_request, names_visitor, (hash, &key), &cache.rules, routed.now)
            })
            .flatten();
        let ask = UpstreamRequest::new(step, Some(cache), request, (routed.path, routed.query));
        let object_key = ObjectKey::new(&key, locator(&key), hash);
        let mut query = Query::new(ask, step, cache, object_key, routed.policy);
        (query.shows_status, query.names_visitor) = (shows_status, names_visitor);
        drop(key);
        let query = Rc::new(query);
        if purges {
            return self.later(move |worker| purge::purge(worker, query), shows_status);
        }
        if let Some(reason) = alone {
            return self.ask_alone(query, routed, reason);
        }
        if intake == Intake::LookUp
            && let Some(response) = hit::answer_at_once(self, &query, routed.now)
        {
            return response.into();
        }
        if query.cache.esi {
            return self.later(move |worker| compose::serve(worker, query, intake), shows_status);
        }
        self.later(move |worker| run(worker, query, intake.into()), shows_status)
    }

    /// Forwards the request for this client only.
    fn ask_alone(self: &Rc<Self>, query: Rc<Query>, routed: &RoutedRequest<'_>, reason: Lookup) -> Handling {
        let manner = (Strip::CONDITIONS, query.cache.capability());
        if let Some(sent) = direct::send(self, &query.step, &query.ask, routed, manner) {
            return Handling::later(DirectRequest::new(self, Aim::Alone { query, reason }, sent));
        }
        let shows_status = query.shows_status;
        self.later(move |worker| run(worker, query, Step::fetch_alone(reason)), shows_status)
    }

    /// Prebuilt response for a plain request.
    #[inline]
    fn answer_ready(
        &self,
        request: &CacheRequest<'_>,
        cache: &CacheStep,
        (hash, key): (u64, &[u8]),
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

/// Adds Cache-Status with the reason.
pub(super) fn with_status(refusal: Refusal) -> Refusal {
    let is_only_if_cached = refusal.status == 504 && refusal.outcome == Lookup::OnlyIfCached.into();
    let fwd = if is_only_if_cached { "" } else { "; fwd=miss" };
    let status = format!("{IDENTIFIER}{fwd}; detail={}", refusal.outcome.name());
    refusal.with("Cache-Status", status)
}
