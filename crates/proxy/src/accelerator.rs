//! What all proxies and caches of the process share.

use crate::fill::Fills;
use crate::group::Change;
use crate::meta::Meta;
use crate::ranges::RangeFetches;
use crate::step::ProxyStep;
use crate::store::{Store, StoreSettings};
use crate::told::{NotKept, NotKeptCounts, OnChange};
use flatout_cache::reason::NoStore;
use flatout_cache::search::Search;
use flatout_net::budget::Budget;
use flatout_net::origin::OriginCounts;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Paths whose No-Vary-Search is remembered at the most. Beyond, they begin anew: it is said again by the next answer.
const SEARCHES_MAX: usize = 65_536;

/// What is shared by all workers. One for the process.
#[derive(Default)]
pub struct Accelerator {
    store: OnceLock<Arc<Store<Meta>>>,
    /// What the store shares with all content on its way; without a bound as long as there is no store.
    budget: Arc<Budget>,
    pub(crate) fills: Arc<Fills>,
    /// Whole responses that are fetched for requests for a range.
    pub(crate) range_fetches: Arc<RangeFetches>,
    /// What No-Vary-Search has said, by the key without its query.
    searches: RwLock<HashMap<Box<[u8]>, Arc<Search>, RandomState>>,
    has_searches: AtomicBool,
    counts: Mutex<Vec<Arc<OriginCounts>>>,
    /// Answers that each worker has not kept.
    not_kept_counts: Mutex<Vec<Arc<NotKeptCounts>>>,
    /// Why the last of them were not.
    pub(crate) not_kept: NotKept,
    /// Who is told of origins that are left out or back.
    on_change: OnceLock<OnChange>,
    /// The `proxy` steps in force.
    steps: Mutex<Vec<Weak<ProxyStep>>>,
}

impl Accelerator {
    /// Keeps answers in a store with these bounds from now on, and returns what stands against its volumes. To be
    /// called once, before the first request.
    pub fn open_store(&self, settings: StoreSettings) -> Vec<String> {
        let (store, warnings) = Store::open(settings, Arc::clone(&self.budget));
        // A second store would hide what the first one holds.
        let _ = self.store.set(store);
        warnings
    }

    /// The memory that all content takes.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The store, when one was opened.
    pub fn store(&self) -> Option<&Arc<Store<Meta>>> {
        self.store.get()
    }

    /// The counts of each worker's exchanges with origins.
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

    /// How many answers were not kept so far, by reason.
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

    /// Has `tell` told of each origin that is left out from now on, or back. It is called by workers, so it must not
    /// wait. To be called once.
    pub fn on_change(&self, tell: OnChange) {
        // The first one goes on.
        let _ = self.on_change.set(tell);
    }

    /// Tells of `change`, if there is one, of the origin of this index.
    pub(crate) fn tell_change(&self, step: &ProxyStep, index: usize, change: Option<Change>) {
        if let (Some(change), Some(tell), Some(address)) = (change, self.on_change.get(), step.addresses.get(index)) {
            tell(&address.to_string(), change);
        }
    }

    /// What is known of the query's parts at `path_key`.
    pub(crate) fn search(&self, path_key: impl FnOnce() -> Vec<u8>) -> Option<Arc<Search>> {
        if !self.has_searches.load(Ordering::Acquire) {
            return None;
        }
        self.searches.read().unwrap_or_else(PoisonError::into_inner).get(&path_key()[..]).cloned()
    }

    /// An answer under `path_key` has said `search`, or nothing.
    pub(crate) fn learn_search(&self, path_key: impl FnOnce() -> Vec<u8>, search: Option<&Search>) {
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
