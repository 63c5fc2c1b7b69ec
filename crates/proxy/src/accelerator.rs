//! State shared by all proxies and caches of the process.

use crate::events::{NotKeptCounts, OnChange, UnstoredResponses};
use crate::fill::Fills;
use crate::meta::Meta;
use crate::ranges::RangeFetches;
use crate::rules::CacheStep;
use crate::step::ProxyStep;
use flatout_balance::group::Change;
use flatout_cache::key::write_key;
use flatout_cache::reason::NoStore;
use flatout_cache::request::CacheRequest;
use flatout_cache::search::{NoVarySearch, write_path_key, write_search_key};
use flatout_handler::budget::Budget;
use flatout_store::key::begin_key;
use flatout_store::{Store, StoreSettings};
use flatout_upstream::origin::OriginCounts;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Maximum paths with a remembered No-Vary-Search. At the limit the map is cleared; later responses refill it.
const SEARCHES_MAX: usize = 65_536;

/// State shared by all workers. One per process.
#[derive(Default)]
pub struct Accelerator {
    store: OnceLock<Arc<Store<Meta>>>,
    /// Budget shared by the store and all content in transit; unbounded without a store.
    budget: Arc<Budget>,
    pub(crate) fills: Arc<Fills>,
    /// Fetches of whole responses on behalf of range requests.
    pub(crate) range_fetches: Arc<RangeFetches>,
    /// Latest No-Vary-Search by key without query.
    searches: RwLock<HashMap<Box<[u8]>, Arc<NoVarySearch>, RandomState>>,
    has_searches: AtomicBool,
    counts: Mutex<Vec<Arc<OriginCounts>>>,
    /// Each worker's counts of responses not stored.
    not_kept_counts: Mutex<Vec<Arc<NotKeptCounts>>>,
    /// Reasons for the latest of them.
    pub(crate) unstored: UnstoredResponses,
    /// Callback for origins that become unavailable or available.
    on_change: OnceLock<OnChange>,
    /// The `proxy` steps in force.
    steps: Mutex<Vec<Weak<ProxyStep>>>,
}

impl Accelerator {
    /// Opens a store with these settings and returns errors of its volumes. Call it once, before the first request.
    pub fn open_store(&self, settings: StoreSettings) -> Vec<String> {
        let (store, warnings) = Store::open(settings, Arc::clone(&self.budget));
        // A second store would hide the content of the first.
        let _ = self.store.set(store);
        warnings
    }

    /// Memory budget of all content.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The store, if one is open.
    pub fn store(&self) -> Option<&Arc<Store<Meta>>> {
        self.store.get()
    }

    /// Counts of each worker's exchanges with origins.
    pub fn origin_counts(&self) -> Vec<Arc<OriginCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The `proxy` steps in force.
    pub fn steps(&self) -> Vec<Arc<ProxyStep>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn set_steps(&self, steps: &[Arc<ProxyStep>]) {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = steps.iter().map(Arc::downgrade).collect();
    }

    pub(crate) fn add_counts(&self) -> Arc<OriginCounts> {
        let counts = Arc::<OriginCounts>::default();
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        counts
    }

    /// Number of responses not stored so far, by reason.
    pub fn not_kept_counts(&self) -> Vec<(NoStore, u64)> {
        let counts = self.not_kept_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |reason: &NoStore| (*reason, counts.iter().map(|counts| counts.get(*reason)).sum());
        NoStore::ALL.iter().map(sum).collect()
    }

    pub(crate) fn add_not_kept_counts(&self) -> Arc<NotKeptCounts> {
        let counts = Arc::<NotKeptCounts>::default();
        self.not_kept_counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        counts
    }

    /// Sets a callback for origins that become unavailable or available. Workers call it, so it must not block. Call
    /// this once.
    pub fn on_change(&self, tell: OnChange) {
        // The first callback stays.
        let _ = self.on_change.set(tell);
    }

    /// Reports `change`, if any, of the origin with this index.
    pub(crate) fn tell_change(&self, step: &ProxyStep, index: usize, change: Option<Change>) {
        if let (Some(change), Some(tell), Some(address)) = (change, self.on_change.get(), step.addresses.get(index)) {
            tell(&address.to_string(), change);
        }
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
        let search = self.search(|| {
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

    /// Latest No-Vary-Search for `path_key`.
    pub(crate) fn search(&self, path_key: impl FnOnce() -> Vec<u8>) -> Option<Arc<NoVarySearch>> {
        if !self.has_searches.load(Ordering::Acquire) {
            return None;
        }
        self.searches.read().unwrap_or_else(PoisonError::into_inner).get(&path_key()[..]).cloned()
    }

    /// Updates the No-Vary-Search for `path_key` from a response; `None`: the response has none.
    pub(crate) fn learn_search(&self, path_key: impl FnOnce() -> Vec<u8>, search: Option<&NoVarySearch>) {
        if search.is_none() && !self.has_searches.load(Ordering::Acquire) {
            return;
        }
        let key = path_key();
        let mut searches = self.searches.write().unwrap_or_else(PoisonError::into_inner);
        match search {
            None => drop(searches.remove(&key[..])),
            Some(search) if searches.get(&key[..]).is_some_and(|known| **known == *search) => {}
            Some(search) => {
                if searches.len() >= SEARCHES_MAX {
                    searches.clear();
                }
                searches.insert(key.into(), Arc::new(search.clone()));
                self.has_searches.store(true, Ordering::Release);
            }
        }
    }
}

impl fmt::Debug for Accelerator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Accelerator").field("has_store", &self.store.get().is_some()).finish_non_exhaustive()
    }
}
