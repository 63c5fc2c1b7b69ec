//! State of one worker. The entry point for requests is `handle` in `pipeline/receive.rs`.

use crate::accelerator::Accelerator;
use crate::events::{NotKeptCounts, UnstoredResponse};
use crate::meta::Meta;
use crate::query::Query;
use crate::step::ProxyStep;
use crate::worker_cache::WorkerCache;
use flatout_cache::reason::NoStore;
use flatout_cache::search::{NoVarySearch, write_search_key};
use flatout_handler::shared::SharedBytes;
use flatout_os::clock::unix_s;
use flatout_store::key::locator;
use flatout_store::{ObjectKey, Store};
use flatout_upstream::origin::{OriginClient, OriginCounts};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Per-worker state of the proxy and cache.
#[derive(derive_more::Debug)]
#[debug("ProxyWorker({accelerator:?})")]
pub struct ProxyWorker {
    accelerator: Arc<Accelerator>,
    pub(crate) worker_cache: RefCell<WorkerCache>,
    clients: RefCell<Vec<(u64, OriginClient)>>,
    counts: Arc<OriginCounts>,
    unstored: Arc<NotKeptCounts>,
    /// Buffer for the key of the current request.
    pub(crate) key: RefCell<Vec<u8>>,
    /// Buffer for a response, reusable once no other reference exists.
    room: RefCell<Rc<Vec<u8>>>,
}

impl ProxyWorker {
    /// Creates the state of one worker.
    pub fn new(accelerator: &Arc<Accelerator>) -> Rc<Self> {
        Rc::new(Self {
            accelerator: Arc::clone(accelerator),
            worker_cache: RefCell::default(),
            clients: RefCell::default(),
            counts: accelerator.add_counts(),
            unstored: accelerator.add_not_kept_counts(),
            key: RefCell::default(),
            room: RefCell::default(),
        })
    }

    /// Returns the state shared by all workers.
    pub(crate) fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    /// Returns a reference to the state shared by all workers, for tasks that outlive a request.
    pub(crate) fn shared(&self) -> Arc<Accelerator> {
        Arc::clone(&self.accelerator)
    }

    /// Returns the store, if there is one.
    pub(crate) fn store(&self) -> Option<&Arc<Store<Meta>>> {
        self.accelerator.store()
    }

    /// Records that a response to `query` was not stored.
    pub(crate) fn note_not_kept(&self, query: &Query, reason: NoStore, status: u16) {
        self.unstored.add(reason);
        // Responses to other methods are not those of the key.
        if query.ask.request.method() == "GET" {
            let last = UnstoredResponse { reason, status, unix_s: unix_s() };
            self.accelerator.unstored.note(query.key.hash(), last);
        }
    }

    /// Returns this worker's client for the origins of `step`.
    pub(crate) fn client(&self, step: &ProxyStep) -> OriginClient {
        self.with_client(step, OriginClient::clone)
    }

    /// Calls `act` with this worker's client for the origins of `step`, which is created if necessary.
    pub(crate) fn with_client<T>(&self, step: &ProxyStep, act: impl FnOnce(&OriginClient) -> T) -> T {
        let mut clients = self.clients.borrow_mut();
        if let Some((_, client)) = clients.iter().find(|(id, _)| *id == step.id) {
            return act(client);
        }
        let budget = Arc::clone(self.accelerator.budget());
        let counts = Arc::clone(&self.counts);
        let client = OriginClient::within_budget(step.client_settings(), step.tls.clone(), counts, budget);
        let result = act(&client);
        clients.push((step.id, client));
        result
    }

    /// Releases memory: drops prebuilt responses that are no longer stored, and makes the store evict responses.
    pub(crate) fn make_room(&self) {
        if let Ok(mut worker_cache) = self.worker_cache.try_borrow_mut() {
            worker_cache.sweep_many();
        }
        if let Some(store) = self.store() {
            store.make_room();
        }
    }

    /// Sets the `proxy` steps in use: starts their health checks, and drops connections to the origins of other steps.
    /// Must be called within the runtime.
    pub fn watch(self: &Rc<Self>, steps: &[Arc<ProxyStep>]) {
        self.clients.borrow_mut().retain(|(id, _)| steps.iter().any(|step| step.id == *id));
        self.worker_cache.borrow_mut().clear();
        self.accelerator.set_steps(steps);
        for step in steps {
            crate::check::watch(self, step);
        }
    }

    /// Returns the key of `query` for responses stored with `search`.
    pub(crate) fn stored_key(&self, query: &Query, search: Option<&NoVarySearch>) -> ObjectKey {
        let key = match search {
            None if query.search.is_none() => return query.key.clone(),
            None => query.plain_key(),
            Some(search) => query.in_realm(&query.with(|request| {
                let mut key = Vec::new();
                write_search_key(request, search, &query.cache.rules, &mut key);
                key
            })),
        };
        let hash = self.store().map_or(0, |store| store.hash(&key));
        ObjectKey::new(&key, locator(&key), hash)
    }

    /// Calls `write` with an empty buffer and returns its content. The buffer is reused when the returned bytes have
    /// been dropped.
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
