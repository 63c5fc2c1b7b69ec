//! Hit-for-miss markers: requests that would share a response are forwarded separately for some time.

use crate::meta::{Meta, StoredResponse};
use crate::query::{Query, audience_hash};
use crate::worker::ProxyWorker;
use flatout_cache::reason::NoStore;
use flatout_cache::stored::{Flags, Stored};
use flatout_os::clock::monotonic_ms;
use flatout_store::{Inserted, Marker, Store};

/// A key that can be marked as hit-for-miss, so that requests for it do not wait for one another.
#[derive(Debug)]
pub(super) struct Separation {
    marker_hash: u64,
    seconds: u32,
}

impl Separation {
    /// Returns the separation of requests like `query` for the duration of its rules, unless that is 0.
    pub(super) fn of(query: &Query) -> Option<Self> {
        let seconds = query.cache.rules.hit_for_miss_s;
        let is_used = seconds > 0 && query.ask.request.method() == "GET";
        is_used.then(|| Self::lasting(query, seconds))
    }

    /// Returns the separation of requests like `query` for `seconds`.
    pub(super) fn lasting(query: &Query, seconds: u32) -> Self {
        Self { marker_hash: query.marker_hash(), seconds }
    }

    /// Separates such requests from now on. `reason` is that for which the last response was not stored or not shared.
    pub(super) fn mark(&self, worker: &ProxyWorker, reason: NoStore) {
        if let Some(store) = worker.store() {
            let until_ms = monotonic_ms().saturating_add(u64::from(self.seconds) * 1000);
            store.mark(self.marker_hash, Marker { reason: reason as u16, until_ms });
        }
    }
}

/// Marks the key of `query` as hit-for-miss if its response `stored` may be stored but cannot satisfy waiting requests.
/// If an earlier response was too large, its marker stays.
pub(super) fn remember_sharing(worker: &ProxyWorker, query: &Query, stored: &Stored) {
    if !stored.is_reusable()
        && earlier_misfit(worker, query).is_none()
        && let Some(separation) = Separation::of(query)
    {
        separation.mark(worker, NoStore::NotReusable);
    }
}

/// Removes the hit-for-miss marker if a response that requests may share has been stored.
pub(super) fn forget_sharing(store: &Store<Meta>, query: &Query, object: &StoredResponse, inserted: Inserted) {
    let stored = &object.meta().stored;
    if inserted != Inserted::Stored || !stored.is_reusable() {
        return;
    }
    // With No-Vary-Search, the key of the request may differ from that of its response.
    for hash in [object.key().hash(), query.key.hash()] {
        store.unmark(audience_hash(hash, query.names_visitor));
        if stored.flags.any(Flags::SHARED) {
            store.unmark(audience_hash(hash, !query.names_visitor));
        }
    }
}

/// Returns the reason for not storing an earlier response to a request like `query`, if it was too large. If the length
/// of a later one is unknown, an attempt to store it would take memory from other responses.
pub(super) fn earlier_misfit(worker: &ProxyWorker, query: &Query) -> Option<NoStore> {
    let marker = worker.store()?.marker(query.marker_hash(), monotonic_ms())?;
    [NoStore::NoRoom, NoStore::TooLarge].into_iter().find(|reason| *reason as u16 == marker.reason)
}
