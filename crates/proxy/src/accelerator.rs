//! State shared by all proxies and caches in the process.

use crate::events::{NotKeptCounts, UnstoredResponses};
use crate::fill::Fills;
use crate::meta::Meta;
use crate::ranges::RangeFetches;
use crate::rules::CacheStep;
use crate::searches::{SearchRule, SearchRules};
use crate::step::{ProxyStep, name_origin};
use flatout_balance::group::Change;
use flatout_cache::key::write_key;
use flatout_cache::reason::NoStore;
use flatout_cache::request::CacheRequest;
use flatout_cache::search::{search_prefix, write_path_key, write_search_key};
use flatout_handler::budget::Budget;
use flatout_store::{Purge, Store, StoreSettings};
use flatout_upstream::events::{OriginEvent, OriginEvents, SeriesReport};
use flatout_upstream::failing::FailureSeries;
use flatout_upstream::origin::{OriginCounts, OriginFailure};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// State shared by all workers. There is one per process.
#[derive(Default, derive_more::Debug)]
#[debug("Accelerator(has_store: {})", store.get().is_some())]
pub struct Accelerator {
    store: OnceLock<Arc<Store<Meta>>>,
    /// Memory budget shared by the store and all content in transit. Unbounded if there is no store.
    budget: Arc<Budget>,
    pub(crate) fills: Arc<Fills>,
    /// Fetches of whole responses on behalf of range requests.
    pub(crate) range_fetches: Arc<RangeFetches>,
    /// Latest No-Vary-Search of each path.
    pub(crate) searches: SearchRules,
    counts: Mutex<Vec<Arc<OriginCounts>>>,
    /// Each worker's counts of responses that were not stored.
    not_kept_counts: Mutex<Vec<Arc<NotKeptCounts>>>,
    /// The latest responses that were not stored, with reasons.
    pub(crate) unstored: UnstoredResponses,
    /// Events of origins and application servers are reported here.
    events: Arc<OriginEvents>,
    /// The `proxy` steps in force.
    steps: Mutex<Vec<Weak<ProxyStep>>>,
}

impl Accelerator {
    /// Opens a store with these settings and returns errors of its volumes. Call this once, before the first request.
    pub fn open_store(&self, settings: StoreSettings) -> Vec<String> {
        let (store, warnings) = Store::open(settings, Arc::clone(&self.budget));
        // The first store stays, since a second one would hide its content.
        let _ = self.store.set(store);
        warnings
    }

    /// Returns the memory budget shared by the store and all content in transit.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Returns the store, if one is open.
    pub fn store(&self) -> Option<&Arc<Store<Meta>>> {
        self.store.get()
    }

    /// Returns each worker's counts of exchanges with origins.
    pub fn origin_counts(&self) -> Vec<Arc<OriginCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The `proxy` steps in force.
    pub fn steps(&self) -> Vec<Arc<ProxyStep>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn set_steps(&self, steps: &[Arc<ProxyStep>]) {
        let before: Vec<_> = {
            let mut held = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
            let before = std::mem::replace(&mut *held, steps.iter().map(Arc::downgrade).collect());
            before.iter().filter_map(Weak::upgrade).collect()
        };
        // Each worker sets the same steps, so most calls change nothing.
        let missing =
            |from: &[Arc<ProxyStep>], step: &&Arc<ProxyStep>| !from.iter().any(|held| Arc::ptr_eq(held, step));
        let added = steps.iter().filter(|step| missing(&before, step));
        let changed: Vec<_> = added.chain(before.iter().filter(|step| missing(steps, step))).collect();
        if !changed.is_empty() {
            let servers = changed.iter().flat_map(|step| &step.addresses).map(name_origin);
            self.events.tell(|| OriginEvent::Renewed(servers.collect()));
        }
    }

    pub(crate) fn add_counts(&self) -> Arc<OriginCounts> {
        let counts = Arc::<OriginCounts>::default();
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        counts
    }

    /// Returns the number of responses that were not stored, by reason, summed over all workers.
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

    /// Returns where events of origins and application servers are reported.
    pub fn events(&self) -> &Arc<OriginEvents> {
        &self.events
    }

    /// Reports that an origin has changed, if it has.
    pub(crate) fn tell_change(&self, change: Option<Change>) {
        self.events.tell_change(change);
    }

    /// Reports that an attempt to get a response from the origin with this index has failed, if it is the first one, and
    /// `change`.
    pub(crate) fn tell_failure(
        &self,
        step: &ProxyStep,
        index: usize,
        (failure, change): (OriginFailure, Option<Change>),
        now_ms: u64,
    ) {
        self.tell_series(step, index, |series| series.add(failure, now_ms));
        self.tell_change(change);
    }

    /// Reports that the origin with this index has answered, if its requests had failed.
    pub(crate) fn tell_answer(&self, step: &ProxyStep, index: usize, change: Option<Change>, now_ms: u64) {
        self.tell_series(step, index, |series| series.end(now_ms));
        self.tell_change(change);
    }

    fn tell_series(&self, step: &ProxyStep, index: usize, report: impl FnOnce(&FailureSeries) -> Option<SeriesReport>) {
        if let (Some(address), Some(series)) = (step.addresses.get(index), step.failures.get(index)) {
            self.events.tell_series(|| name_origin(address), step.id, report(series));
        }
    }

    /// Appends the cache key for `request` to `key`. Returns the rule by which the key was written, if the path has one.
    pub(crate) fn write_lookup_key(
        &self,
        step: &ProxyStep,
        cache: &CacheStep,
        request: &CacheRequest<'_>,
        key: &mut Vec<u8>,
    ) -> Option<Arc<SearchRule>> {
        step.begin_key(cache, key);
        let rule = self.searches.find(|| {
            let mut path_key = Vec::new();
            step.begin_key(cache, &mut path_key);
            write_path_key(request, &mut path_key);
            path_key
        });
        match &rule {
            None => write_key(request, &cache.rules, key),
            Some(rule) => write_search_key(request, &rule.search, &cache.rules, key),
        }
        rule
    }
}

/// Returns the purges of the URLs with these locators. Each includes all responses stored under a No-Vary-Search for
/// the path of the URL, because it is unknown which of them the URL selects.
pub fn url_purges(locators: impl IntoIterator<Item = Vec<u8>>) -> Vec<Purge> {
    let mut purges = Vec::new();
    for locator in locators {
        for purge in [Purge::Prefix(search_prefix(&locator)), Purge::Url(locator)] {
            if !purges.contains(&purge) {
                purges.push(purge);
            }
        }
    }
    purges
}

#[cfg(test)]
mod tests {
    use super::url_purges;
    use flatout_store::Purge;

    #[test]
    fn a_url_is_purged_with_its_path_under_no_vary_search() {
        let (url, short) = (b"h/a?b=1".to_vec(), b"h/a".to_vec());
        let expected = [Purge::Prefix(b"h/a ?".to_vec()), Purge::Url(url.clone()), Purge::Url(short.clone())];
        assert_eq!(url_purges([url, short]), expected);
    }
}
