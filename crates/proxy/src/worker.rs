//! State of one worker. Requests enter by `handle` in `pipeline/receive.rs`.

use crate::accelerator::Accelerator;
use crate::events::{NotKeptCounts, UnstoredResponse};
use crate::meta::Meta;
use crate::query::Query;
use crate::step::ProxyStep;
use crate::worker_cache::WorkerCache;
use flatout_cache::reason::NoStore;
use flatout_cache::search::{NoVarySearch, write_search_key};
use flatout_handler::shared::SharedBytes;
use flatout_os::clock::Now;
use flatout_store::key::{begin_key, locator};
use flatout_store::{ObjectKey, Store};
use flatout_upstream::origin::{OriginClient, OriginCounts};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Per-worker part of the accelerator.
pub struct ProxyWorker {
    accelerator: Arc<Accelerator>,
    pub(crate) worker_cache: RefCell<WorkerCache>,
    clients: RefCell<Vec<(u64, OriginClient)>>,
    counts: Arc<OriginCounts>,
    unstored: Arc<NotKeptCounts>,
    /// Buffer for the key of the current request.
    pub(crate) key: RefCell<Vec<u8>>,
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

    /// Key of `query` for stored responses with `search`.
    pub(crate) fn search_key(&self, query: &Query, search: &NoVarySearch) -> ObjectKey {
        let mut key = Vec::new();
        begin_key(&query.step.realm, &mut key);
        query.with(|request| write_search_key(request, search, &query.cache.rules, &mut key));
        let hash = self.store().map_or(0, |store| store.hash(&key));
        ObjectKey::new(&key, locator(&key), hash)
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
}

impl fmt::Debug for ProxyWorker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProxyWorker").field("accelerator", &self.accelerator).finish_non_exhaustive()
    }
}
