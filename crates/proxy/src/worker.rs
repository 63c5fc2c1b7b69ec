//! Entry points for one worker's requests.

use crate::accelerator::Accelerator;
use crate::compose;
use crate::direct::{self, Aim, DirectRequest, Plain};
use crate::events::{NotKeptCounts, UnstoredResponse};
use crate::exchange::UpstreamRequest;
use crate::fetch::FetchConditions;
use crate::forward::{Strip, effective_host};
use crate::group::hash_request;
use crate::lookup;
use crate::meta::{Meta, StoredResponse};
use crate::note::IDENTIFIER;
use crate::outcome::ForwardOutcome;
use crate::pass;
use crate::query::{Query, begin_key, locator};
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use crate::store::{ObjectKey, Store};
use crate::worker_cache::WorkerCache;
use flatout_cache::cookie::names_visitor;
use flatout_cache::decision::{Intake, decide_request};
use flatout_cache::key::{write_key, write_query};
use flatout_cache::reason::{Lookup, NoStore};
use flatout_cache::request::CacheRequest;
use flatout_cache::search::{NoVarySearch, write_path_key, write_search_key};
use flatout_cache::stored::{Flags, Stored};
use flatout_cache::vary::write_variant_key;
use flatout_net::clock::Now;
use flatout_net::handler::Request;
use flatout_net::origin::{OriginClient, OriginCounts};
use flatout_net::owned::OwnedRequest;
use flatout_net::response::Response;
use flatout_net::routed::{Handling, Refusal, RoutedRequest};
use flatout_net::shared::SharedBytes;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Per-worker part of the accelerator.
pub struct ProxyWorker {
    accelerator: Arc<Accelerator>,
    worker_cache: RefCell<WorkerCache>,
    clients: RefCell<Vec<(u64, OriginClient)>>,
    counts: Arc<OriginCounts>,
    unstored: Arc<NotKeptCounts>,
    /// Buffer for the key of the current request.
    key: RefCell<Vec<u8>>,
    /// Buffer for the field lines of the current request.
    lines: RefCell<Vec<u8>>,
    /// Buffer for a response, reusable once no other reference exists.
    room: RefCell<Rc<Vec<u8>>>,
}

impl ProxyWorker {
    /// Creates a worker's part of `accelerator`.
    pub fn new(accelerator: &Arc<Accelerator>) -> Rc<Self> {
        Rc::new(Self {
            accelerator: Arc::clone(accelerator),
            worker_cache: RefCell::default(),
            clients: RefCell::default(),
            counts: accelerator.add_counts(),
            unstored: accelerator.add_not_kept_counts(),
            key: RefCell::default(),
            lines: RefCell::default(),
            room: RefCell::default(),
        })
    }

    /// The state shared by all workers.
    pub(crate) fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    /// The same, for tasks that outlive a request.
    pub(crate) fn shared(&self) -> Arc<Accelerator> {
        Arc::clone(&self.accelerator)
    }

    /// The store, if there is one.
    pub(crate) fn store(&self) -> Option<&Arc<Store<Meta>>> {
        self.accelerator.store()
    }

    /// Records that a response to `query` was not stored.
    pub(crate) fn note_not_kept(&self, query: &Query, reason: NoStore, status: u16) {
        self.unstored.add(reason);
        // Results of other methods do not apply to the key.
        if query.ask.request.method() == "GET" {
            let last = UnstoredResponse { reason, status, unix_s: Now::read().unix_s };
            self.accelerator.unstored.note(query.key.hash(), last);
        }
    }

    /// This worker's connections to the origins of `step`.
    pub(crate) fn client(&self, step: &ProxyStep) -> OriginClient {
        let mut clients = self.clients.borrow_mut();
        if let Some((_, client)) = clients.iter().find(|(id, _)| *id == step.id) {
            return client.clone();
        }
        let budget = Arc::clone(self.accelerator.budget());
        let counts = Arc::clone(&self.counts);
        let client = OriginClient::within_budget(step.client_settings(), step.tls.clone(), counts, budget);
        clients.push((step.id, client.clone()));
        client
    }

    /// Releases memory: drops prebuilt responses that the store no longer holds, and lets the store evict.
    pub(crate) fn make_room(&self) {
        if let Ok(mut worker_cache) = self.worker_cache.try_borrow_mut() {
            worker_cache.sweep_many();
        }
        if let Some(store) = self.store() {
            store.make_room();
        }
    }

    /// Sets the proxies in force: starts their health checks and drops connections of others. Call it within the
    /// runtime.
    pub fn watch(self: &Rc<Self>, steps: &[Arc<ProxyStep>]) {
        self.clients.borrow_mut().retain(|(id, _)| steps.iter().any(|step| step.id == *id));
        self.worker_cache.borrow_mut().clear();
        self.accelerator.set_steps(steps);
        for step in steps {
            crate::check::watch(self, step);
        }
    }

    /// Prebuilds heads of `object` for later requests.
    pub(crate) fn make_ready(&self, query: &Query, object: &Arc<StoredResponse>) {
        if let Some(ready) = lookup::ready_of(query, object) {
            self.worker_cache.borrow_mut().insert(query.key.hash(), query.key.as_bytes(), Rc::new(ready));
        }
    }

    /// Key of `query` for stored responses with `search`.
    pub(crate) fn search_key(&self, query: &Query, search: &NoVarySearch) -> ObjectKey {
        let mut key = Vec::new();
        begin_key(&query.step.realm, &mut key);
        query.with(|request| write_search_key(request, search, &query.cache.rules, &mut key));
        let hash = self.store().map_or(0, |store| store.hash(&key));
        ObjectKey::new(&key, locator(&key), hash)
    }

    /// Appends the key to look up for `request`.
    pub(crate) fn write_lookup_key(
        &self,
        step: &ProxyStep,
        cache: &CacheStep,
        request: &CacheRequest<'_>,
        key: &mut Vec<u8>,
    ) {
        begin_key(&step.realm, key);
        let search = self.accelerator.search(|| {
            let mut path_key = Vec::new();
            begin_key(&step.realm, &mut path_key);
            write_path_key(request, &mut path_key);
            path_key
        });
        match &search {
            None => write_key(request, &cache.rules, key),
            Some(search) => write_search_key(request, search, &cache.rules, key),
        }
    }

    /// Handles `routed`.
    pub fn handle(
        self: &Rc<Self>,
        step: &Arc<ProxyStep>,
        cache: Option<&Arc<CacheStep>>,
        routed: &RoutedRequest<'_>,
    ) -> Handling {
        match cache.filter(|_| self.store().is_some()) {
            None => self.pass(step, routed),
            Some(cache) => self.look_up(step, cache, routed),
        }
    }

    /// Calls `write` with an empty buffer for field lines.
    pub(crate) fn with_lines<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut lines = self.lines.borrow_mut();
        lines.clear();
        write(&mut lines)
    }

    /// Output of `write` in a buffer that is reused once this is dropped.
    pub(crate) fn write_answer(&self, write: impl FnOnce(&mut Vec<u8>)) -> SharedBytes {
        let mut room = self.room.borrow_mut();
        if Rc::get_mut(&mut room).is_none() {
            *room = Rc::default();
        }
        if let Some(room) = Rc::get_mut(&mut room) {
            room.clear();
            write(room);
        }
        SharedBytes::from_shared(Rc::clone(&room))
    }

    fn pass(self: &Rc<Self>, step: &Arc<ProxyStep>, routed: &RoutedRequest<'_>) -> Handling {
        let ask = make_ask(step, None, routed.request, (routed.path, routed.query));
        let changes = Rc::clone(&routed.policy.fields);
        let step = Arc::clone(step);
        if let Some(sent) = direct::send(self, &step, &ask, routed, (Strip::default(), &[])) {
            let aim = Aim::Plain(Box::new(Plain { step, ask, changes }));
            return Handling::later(DirectRequest::new(self, aim, sent));
        }
        self.later(move |worker| pass::plain(worker, step, ask, changes), false)
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

    fn look_up(self: &Rc<Self>, step: &Arc<ProxyStep>, cache: &Arc<CacheStep>, routed: &RoutedRequest<'_>) -> Handling {
        let request = routed.request;
        let client = request.client.map(|client| client.ip());
        let Some(authority) = effective_host(request.head) else { return self.pass(step, routed) };
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
        self.write_lookup_key(step, cache, &cache_request, &mut key);
        let Some(store) = self.store() else { return self.pass(step, routed) };
        let hash = store.hash(&key);
        if intake == Intake::LookUp
            && let Some(response) = self.answer_ready(&cache_request, cache, (hash, &key), routed, shows_status)
        {
            return response.into();
        }
        let names_visitor = names_visitor(&cache_request, &cache.rules.cookies);
        let alone = (intake == Intake::LookUp && !cache.esi)
            .then(|| lookup::asks_alone(store, &cache_request, names_visitor, (hash, &key), &cache.rules, routed.now))
            .flatten();
        let ask = make_ask(step, Some(cache), request, (routed.path, routed.query));
        let query = Query {
            ask,
            step: Arc::clone(step),
            cache: Arc::clone(cache),
            key: ObjectKey::new(&key, locator(&key), hash),
            changes: Rc::clone(&routed.policy.fields),
            changes_id: routed.policy.id,
            shows_status,
            names_visitor,
            vary: RefCell::default(),
            template: RefCell::default(),
            range_fetch: RefCell::default(),
        };
        drop(key);
        if purges {
            return self.later(move |worker| pass::purge(worker, query), shows_status);
        }
        let query = Rc::new(query);
        if let Some(reason) = alone {
            return self.ask_alone(query, routed, reason);
        }
        match intake {
            Intake::LookUp => {
                if let Some(response) = lookup::answer_at_once(self, &query, routed.now) {
                    return response.into();
                }
                if cache.esi {
                    return self.later(move |worker| compose::serve(worker, query, intake), shows_status);
                }
                self.later(move |worker| lookup::serve(worker, query), shows_status)
            }
            _ if cache.esi => self.later(move |worker| compose::serve(worker, query, intake), shows_status),
            Intake::Bypass(reason) | Intake::Unsafe(reason) => self
                .later(move |worker| async move { pass::forward(&worker, &query, reason, None).await }, shows_status),
        }
    }

    /// Forwards the request for this client only.
    fn ask_alone(self: &Rc<Self>, query: Rc<Query>, routed: &RoutedRequest<'_>, reason: Lookup) -> Handling {
        let manner = (Strip::CONDITIONS, query.cache.capability());
        if let Some(sent) = direct::send(self, &query.step, &query.ask, routed, manner) {
            return Handling::later(DirectRequest::new(self, Aim::Alone { query, reason }, sent));
        }
        let shows_status = query.shows_status;
        let ask = move |worker| async move {
            lookup::fetch_alone(&worker, &query, FetchConditions::default(), None, reason).await
        };
        self.later(ask, shows_status)
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
            ready.changes_id == routed.policy.id
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

/// Copies the data of the upstream request.
pub(crate) fn make_ask(
    step: &ProxyStep,
    cache: Option<&CacheStep>,
    request: &Request<'_>,
    (path, query): (&[u8], Option<&[u8]>),
) -> UpstreamRequest {
    let mut target = Vec::with_capacity(path.len() + query.map_or(0, <[u8]>::len) + 1);
    target.extend_from_slice(path);
    let path_bytes = target.len();
    match (query, cache) {
        (None, _) => {}
        (Some(query), None) => {
            target.push(b'?');
            target.extend_from_slice(query);
        }
        // Parameters excluded from the key are removed from the request.
        (query, Some(cache)) => {
            target.push(b'?');
            if !write_query(query, &cache.rules.query, &mut target) {
                target.truncate(path_bytes);
            }
        }
    }
    let upgrade = crate::forward::upgrade::asks(request.head, &step.settings);
    UpstreamRequest {
        balance_hash: hash_request(step.group.balance(), request),
        request: OwnedRequest::new(request),
        target: target.into(),
        path_bytes,
        upgrade: upgrade.map(Into::into),
        begun: Cell::new(None),
    }
}

/// Adds Cache-Status with the reason.
pub(crate) fn with_status(refusal: Refusal) -> Refusal {
    let is_only_if_cached = refusal.status == 504 && refusal.outcome == Lookup::OnlyIfCached.into();
    let fwd = if is_only_if_cached { "" } else { "; fwd=miss" };
    let status = format!("{IDENTIFIER}{fwd}; detail={}", refusal.outcome.name());
    refusal.with("Cache-Status", status)
}

impl fmt::Debug for ProxyWorker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProxyWorker").field("accelerator", &self.accelerator).finish_non_exhaustive()
    }
}
