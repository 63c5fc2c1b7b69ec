//! The request handler of one worker.
//!
//! A reload replaces the configuration between two turns. Responses in progress retain their old configuration, so
//! nothing is cut. Unchanged parts stay cached: a `files` step with the same folder and settings keeps its numbers,
//! and so do policies, so cache entries under them remain valid. The rest is dropped with the last response that uses
//! it.

use crate::credentials::Believed;
use crate::outcome::OUTCOMES;
use crate::policy::Policies;
use crate::spec::{SiteSpec, Spec};
use crate::walk::answer;
use flatout_config::model::FieldOp;
use flatout_fastcgi::PhpWorker;
use flatout_handler::response::Response;
use flatout_handler::routed::HeaderPolicy;
use flatout_handler::{Handler, Reply, Request};
use flatout_os::clock::Now;
use flatout_pages::{PageFolder, PagesWorker};
use flatout_proxy::{Accelerator, ProxyWorker};
use flatout_reason::Table;
use flatout_serve::cache::CacheLimits;
use flatout_serve::files::{FileStore, Files, Services};
use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Upper bound of prebuilt responses: every `respond` and every redirect to a fixed address, under each policy.
const ANSWERS_MAX: usize = 4096;

/// Handles requests under one configuration, which [`Engine::swap`] replaces. One per worker.
pub struct Engine {
    live: RefCell<Rc<Live>>,
    store: Rc<FileStore>,
    proxy: Rc<ProxyWorker>,
    pages: Rc<PagesWorker>,
    policy_ids: Rc<Cell<u32>>,
}

/// A configuration in force on one worker.
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
    /// The sites' names for the logs. They belong to one worker, so their reference counts are not atomic.
    site_names: Vec<Rc<str>>,
    answers: RefCell<HashMap<(u32, u32), Response, RandomState>>,
}

/// Buffers that successive requests reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) decoded: Vec<u8>,
    pub(crate) pages: Vec<u32>,
}

impl Live {
    /// The name of `site` for the logs.
    pub(crate) fn site_name(&self, site: &SiteSpec) -> Option<Rc<str>> {
        self.site_names.get(site.number as usize).cloned()
    }

    /// The response number `id` under `policy`, created by `build` on first use.
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
    /// A worker's engine for `spec`. `limits` bound the cache of files.
    pub fn new(spec: Arc<Spec>, services: Arc<Services>, limits: CacheLimits) -> Self {
        let accelerator = Arc::clone(&spec.accelerator);
        Self::beside(spec, services, limits, &accelerator)
    }

    /// An engine for explaining `spec`, detached from the process's accelerator.
    pub(crate) fn apart(spec: Arc<Spec>) -> Self {
        Self::beside(spec, Arc::default(), CacheLimits::DEFAULT, &Arc::default())
    }

    fn beside(spec: Arc<Spec>, services: Arc<Services>, limits: CacheLimits, accelerator: &Arc<Accelerator>) -> Self {
        let store = FileStore::new(limits, services);
        let proxy = ProxyWorker::new(accelerator);
        let pages = PagesWorker::new(Arc::clone(&spec.pages_shared));
        let policy_ids = Rc::default();
        let live = RefCell::new(Rc::new(make_live(spec, &store, &proxy, &pages, None, &policy_ids)));
        Self { live, store, proxy, pages, policy_ids }
    }

    /// Switches to `spec`.
    pub fn swap(&self, spec: Arc<Spec>) {
        let next = make_live(spec, &self.store, &self.proxy, &self.pages, Some(&self.live.borrow()), &self.policy_ids);
        // The old one is dropped after the borrow: it may hold the last reference to a lot of data.
        let before = self.live.replace(Rc::new(next));
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
        // Equal numbers mean equal folders and settings.
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
    // Policies that contain an operation of no new step are unreachable.
    let changes: HashSet<_> = spec.changes.iter().flat_map(|change| &change.fields).map(parts_of).collect();
    let mut inherited = before.map(|before| before.policies.borrow().bequeath()).unwrap_or_default();
    inherited.retain(|policy| policy.fields.iter().all(|field| changes.contains(&parts_of(field))));
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
        site_names: spec.sites.iter().map(|site| site.hosts.first().map_or("*", String::as_str).into()).collect(),
        answers: RefCell::default(),
        spec,
    }
}

/// The properties that identify a field operation.
fn parts_of(field: &FieldOp) -> (u8, &str, &str) {
    match field {
        FieldOp::Set(name, value) => (0, name, value),
        FieldOp::Add(name, value) => (1, name, value),
        FieldOp::Remove(name) => (2, name, ""),
    }
}

impl Handler for Engine {
    const OUTCOMES: &'static [&'static Table] = &OUTCOMES;

    fn begin(&self) {
        self.proxy.watch(&self.live.borrow().spec.proxies);
    }

    fn handle(&self, request: &Request<'_>, now: Now) -> Reply {
        let live = self.live();
        answer(&live, request, now, None, None)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Engine").field("spec", &self.live.borrow().spec).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
