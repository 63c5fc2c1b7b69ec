//! The request handler of a worker.
//!
//! A reload replaces the configuration between two turns of the event loop. Responses in progress retain the old
//! configuration, so that no response is truncated. The caches of unchanged parts stay valid, because a `files` step
//! with the same folder and settings, and an unchanged policy, keep their numbers. Everything else is dropped together
//! with the last response that uses it.

use crate::credentials::Believed;
use crate::outcome::OUTCOMES;
use crate::policy::Policies;
use crate::spec::{SiteSpec, Spec};
use crate::untrusted_proxy::{UntrustedProxy, UntrustedProxyWatch};
use crate::walk::answer;
use flatout_fastcgi::PhpWorker;
use flatout_handler::response::Response;
use flatout_handler::routed::HeaderPolicy;
use flatout_handler::{Handler, Reply, Request};
use flatout_os::clock::Now;
use flatout_os::random::HashState;
use flatout_overload::ClientCounter;
use flatout_pages::{PageFolder, PagesWorker};
use flatout_proxy::{Accelerator, ProxyWorker};
use flatout_reason::Table;
use flatout_serve::cache::CacheLimits;
use flatout_serve::files::{FileStore, Files, Services};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of prebuilt responses: one for each `respond` and each redirect to a fixed address, per policy.
const ANSWERS_MAX: usize = 4096;

/// Handles requests according to a configuration, which [`Engine::swap`] replaces. There is one per worker.
#[derive(derive_more::Debug)]
#[debug("Engine({:?})", self.live.borrow().spec)]
pub struct Engine {
    live: RefCell<Rc<Live>>,
    store: Rc<FileStore>,
    proxy: Rc<ProxyWorker>,
    pages: Rc<PagesWorker>,
    policy_ids: Rc<Cell<u32>>,
    requests: Option<&'static ClientCounter>,
    untrusted_proxy: UntrustedProxyWatch,
}

/// The configuration in use on a worker, with the worker's state for it.
pub(crate) struct Live {
    pub(crate) spec: Arc<Spec>,
    pub(crate) files: Vec<Rc<Files>>,
    pub(crate) proxy: Rc<ProxyWorker>,
    pub(crate) active: Vec<Rc<PageFolder>>,
    pub(crate) pages: Rc<PagesWorker>,
    pub(crate) php: Rc<PhpWorker>,
    pub(crate) hints: Vec<Rc<Vec<String>>>,
    pub(crate) policies: RefCell<Policies>,
    pub(crate) believed: RefCell<Believed>,
    pub(crate) scratch: RefCell<Scratch>,
    /// Counter of the requests that clients have in progress; `None` if there is no limit.
    pub(crate) requests: Option<&'static ClientCounter>,
    /// Names of the sites for the logs. They belong to one worker, so that their reference counts need not be atomic.
    site_names: Vec<Rc<str>>,
    answers: RefCell<HashMap<(u32, u32), Response, HashState>>,
}

/// Buffers that are reused by successive requests.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) decoded: Vec<u8>,
    pub(crate) pages: Vec<u32>,
}

impl Live {
    /// Returns the name of `site` for the logs.
    pub(crate) fn site_name(&self, site: &SiteSpec) -> Option<Rc<str>> {
        self.site_names.get(site.number as usize).cloned()
    }

    /// Returns the prebuilt response with the number `id` for `policy`, which is created with `build` on first use.
    pub(crate) fn prebuilt(&self, id: u32, policy: &HeaderPolicy, build: impl FnOnce() -> Response) -> Response {
        let key = (id, policy.id);
        if let Some(response) = self.answers.borrow().get(&key) {
            return response.clone();
        }
        let response = build();
        let mut answers = self.answers.borrow_mut();
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(key, response.clone());
        response
    }
}

impl Engine {
    /// Creates a worker's engine for `spec`. `limits` are those of the file cache. `requests` limits the requests that
    /// clients have in progress, and is the same for all workers.
    pub fn new(
        spec: Arc<Spec>,
        services: Arc<Services>,
        limits: CacheLimits,
        requests: &'static ClientCounter,
    ) -> Self {
        let accelerator = Arc::clone(&spec.accelerator);
        Self::beside(spec, services, limits, &accelerator, Some(requests))
    }

    /// Creates an engine for explaining `spec`, which does not use the process's cache store.
    pub(crate) fn apart(spec: Arc<Spec>) -> Self {
        Self::beside(spec, Arc::default(), CacheLimits::DEFAULT, &Arc::default(), None)
    }

    fn beside(
        spec: Arc<Spec>,
        services: Arc<Services>,
        limits: CacheLimits,
        accelerator: &Arc<Accelerator>,
        requests: Option<&'static ClientCounter>,
    ) -> Self {
        let store = FileStore::new(limits, services);
        let proxy = ProxyWorker::new(accelerator);
        let pages = PagesWorker::new(Arc::clone(&spec.pages_shared));
        let policy_ids = Rc::default();
        let live = Live { requests, ..make_live(spec, &store, &proxy, &pages, None, &policy_ids) };
        let untrusted_proxy = UntrustedProxyWatch::new(None);
        Self { live: RefCell::new(Rc::new(live)), store, proxy, pages, policy_ids, requests, untrusted_proxy }
    }

    /// Reports a proxy in front of this server that no setting trusts to `found`.
    #[must_use]
    pub fn reporting_untrusted_proxy(self, found: Arc<UntrustedProxy>) -> Self {
        Self { untrusted_proxy: UntrustedProxyWatch::new(Some(found)), ..self }
    }

    /// Replaces the configuration with `spec`.
    pub fn swap(&self, spec: Arc<Spec>) {
        let next = make_live(spec, &self.store, &self.proxy, &self.pages, Some(&self.live.borrow()), &self.policy_ids);
        // Drop the old configuration after the borrow has ended, since it may hold the last reference to a lot of data.
        let before = self.live.replace(Rc::new(Live { requests: self.requests, ..next }));
        drop(before);
        let live = self.live();
        self.proxy.watch(&live.spec.proxies);
        self.pages.retain(&live.spec.active);
        live.php.retain();
        let steps: HashSet<u32> = live.spec.files.iter().map(|files| files.id).collect();
        let policies: HashSet<u32> = live.policies.borrow().bequeath().iter().map(|policy| policy.id).collect();
        self.store.retain(|step| steps.contains(&step), |policy| policies.contains(&policy));
    }

    pub(crate) fn live(&self) -> Rc<Live> {
        Rc::clone(&self.live.borrow())
    }
}

fn make_live(
    spec: Arc<Spec>,
    store: &Rc<FileStore>,
    proxy: &Rc<ProxyWorker>,
    pages: &Rc<PagesWorker>,
    before: Option<&Live>,
    policy_ids: &Rc<Cell<u32>>,
) -> Live {
    let files = spec.files.iter().map(|files| {
        // Steps with the same number have the same folder and settings.
        let known = before.and_then(|before| {
            let index = before.spec.files.iter().position(|other| other.id == files.id)?;
            before.files.get(index)
        });
        known.cloned().unwrap_or_else(|| {
            let (root, epoch) = (Arc::clone(&files.root), files.epoch.clone());
            let step = Files::new(files.id, root, &files.settings, files.file_check_interval_ms, epoch, store);
            Rc::new(step.hiding(files.sources.clone()))
        })
    });
    let active = spec.active.iter().map(|step| {
        let known = before.and_then(|before| before.active.iter().find(|folder| Arc::ptr_eq(folder.step(), step)));
        known.map_or_else(|| PageFolder::new(Arc::clone(step)), Rc::clone)
    });
    // Policies that contain an operation that is in none of the new steps are unreachable.
    let changes: HashSet<_> = spec.changes.iter().flat_map(|change| &change.fields).collect();
    let mut inherited = before.map(|before| before.policies.borrow().bequeath()).unwrap_or_default();
    inherited.retain(|policy| policy.fields.iter().all(|field| changes.contains(field)));
    drop(changes);
    Live {
        files: files.collect(),
        proxy: Rc::clone(proxy),
        active: active.collect(),
        pages: Rc::clone(pages),
        php: before.map(|before| Rc::clone(&before.php)).unwrap_or_default(),
        hints: spec.hints.iter().cloned().map(Rc::new).collect(),
        policies: RefCell::new(Policies::new(inherited, Rc::clone(policy_ids))),
        believed: RefCell::default(),
        scratch: RefCell::default(),
        requests: None,
        site_names: spec.sites.iter().map(|site| site.hosts.first().map_or("*", String::as_str).into()).collect(),
        answers: RefCell::default(),
        spec,
    }
}

impl Handler for Engine {
    const OUTCOMES: &'static [&'static Table] = &OUTCOMES;

    fn begin(&self) {
        self.proxy.watch(&self.live.borrow().spec.proxies);
    }

    fn handle(&self, request: &Request<'_>, now: Now) -> Reply {
        let live = self.live();
        // A client that a PROXY header names is no proxy whose clients appear to be one.
        if self.untrusted_proxy.is_due(now.monotonic_ms) && live.spec.proxy_senders(request.listener).is_none() {
            self.untrusted_proxy.sample(request, now.monotonic_ms, |peer| live.spec.trusts(peer));
        }
        answer(&live, request, now, None, None)
    }

    fn may_name_client(&self, listener: u32, peer: Option<SocketAddr>) -> bool {
        let live = self.live();
        let senders = live.spec.proxy_senders(listener);
        senders.is_some_and(|senders| senders.contains(peer.map(|peer| peer.ip())))
    }
}

#[cfg(test)]
pub(crate) mod tests;
