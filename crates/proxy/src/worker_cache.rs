//! Per-worker cache of stored responses with prebuilt heads. Lookups need no lock.
//!
//! The cache does not decide which responses may be served: callers check that the object is still in the store and
//! fresh.

use crate::pipeline::deliver::stored::PrebuiltResponse;
use flatout_os::random::HashState;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum number of keys per worker. Each takes about as much memory as its response head.
const KEYS_MAX: usize = 16_384;

/// Approximate maximum size of the prebuilt heads per worker in bytes.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Maximum number of prebuilt variants per key. Other variants are looked up in the store.
const VARIANTS_MAX: usize = 4;

/// Number of lookups after which one entry is swept.
const GETS_PER_SWEEP: u32 = 64;

#[derive(Debug)]
struct WorkerCacheEntry {
    key: Box<[u8]>,
    ready: Vec<Rc<PrebuiltResponse>>,
    /// True if the entry was used since the clock hand last passed.
    used: bool,
}

impl WorkerCacheEntry {
    fn bytes(&self) -> usize {
        self.ready.iter().map(|ready| ready.bytes() + self.key.len()).sum()
    }
}

/// Per-worker cache of prebuilt responses.
#[derive(Debug, Default)]
pub(crate) struct WorkerCache {
    entries: HashMap<u64, WorkerCacheEntry, HashState>,
    /// Hashes of the keys in clock order, for eviction.
    order: Vec<u64>,
    hand: usize,
    bytes: usize,
    /// Purge epoch of the store for which all entries are valid.
    epoch: u64,
    /// Number of lookups, wrapping.
    asked: u32,
}

impl WorkerCache {
    /// Returns the prebuilt responses for `key`. `epoch` is the purge epoch of the store: if it has changed, all
    /// entries are dropped.
    #[inline]
    pub(crate) fn get(&mut self, hash: u64, key: &[u8], epoch: u64) -> &[Rc<PrebuiltResponse>] {
        if self.epoch != epoch {
            // Purges are rare and heads are cheap to rebuild, so clear everything.
            self.clear();
            self.epoch = epoch;
        }
        // Sweep on lookups too, so that a worker that has only hits does not retain objects that the store has evicted.
        self.asked = self.asked.wrapping_add(1);
        if self.asked.is_multiple_of(GETS_PER_SWEEP) {
            self.sweep(1);
        }
        match self.entries.get_mut(&hash) {
            Some(entry) if *entry.key == *key => {
                entry.used = true;
                &entry.ready
            }
            _ => &[],
        }
    }

    /// Adds `ready` under `key`, and sweeps two entries.
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], ready: Rc<PrebuiltResponse>) {
        self.sweep(2);
        while self.order.len() >= KEYS_MAX || self.bytes > BYTES_MAX {
            self.evict();
        }
        let entry = self.entries.entry(hash).or_insert_with(|| {
            self.order.push(hash);
            WorkerCacheEntry { key: key.into(), ready: Vec::new(), used: false }
        });
        let before = entry.bytes();
        if *entry.key != *key {
            *entry = WorkerCacheEntry { key: key.into(), ready: Vec::new(), used: false };
        }
        entry.ready.retain(|other| {
            other.object.is_current()
                && (other.object.variant() != ready.object.variant() || other.policy_id != ready.policy_id)
        });
        if entry.ready.len() >= VARIANTS_MAX {
            entry.ready.remove(0);
        }
        entry.ready.push(ready);
        self.bytes = (self.bytes + entry.bytes()).saturating_sub(before);
    }

    /// Sweeps some of the entries. Cheap in comparison with a fetch.
    pub(crate) fn sweep_many(&mut self) {
        /// Number of entries swept per call.
        const COUNT: usize = 1024;
        self.sweep(COUNT);
    }

    /// Checks `count` entries, and drops those whose responses are no longer stored.
    fn sweep(&mut self, count: usize) {
        for _ in 0..count.min(self.order.len()) {
            self.hand = (self.hand + 1) % self.order.len().max(1);
            let Some(&hash) = self.order.get(self.hand) else { return };
            let stale =
                self.entries.get(&hash).is_none_or(|entry| entry.ready.iter().all(|ready| !ready.object.is_current()));
            if stale {
                self.remove_at(self.hand);
            }
        }
    }

    /// Evicts the next entry that was not used during a full turn of the clock hand.
    fn evict(&mut self) {
        while !self.order.is_empty() {
            self.hand = (self.hand + 1) % self.order.len();
            let hash = self.order[self.hand];
            match self.entries.get_mut(&hash) {
                Some(entry) if entry.used => entry.used = false,
                _ => return self.remove_at(self.hand),
            }
        }
        self.bytes = 0;
    }

    fn remove_at(&mut self, at: usize) {
        let hash = self.order.swap_remove(at);
        if let Some(entry) = self.entries.remove(&hash) {
            self.bytes = self.bytes.saturating_sub(entry.bytes());
        }
        if self.order.is_empty() {
            self.bytes = 0;
        }
    }

    /// Clears the cache.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
        self.hand = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, GETS_PER_SWEEP, KEYS_MAX, VARIANTS_MAX, WorkerCache};
    use crate::meta::StoredResponse;
    use crate::meta::tests::meta;
    use crate::pipeline::deliver::stored::PrebuiltResponse;
    use flatout_handler::routed::HeaderPolicy;
    use flatout_store::{ObjectKey, StoredBody};
    use std::rc::Rc;
    use std::sync::Arc;

    fn object(variant: &[u8]) -> Arc<StoredResponse> {
        let key = ObjectKey::new(b"key", 0..3, 1);
        Arc::new(StoredResponse::new(key, variant, meta(), Arc::from(&b""[..]), StoredBody::Empty, 0))
    }

    fn ready(object: &Arc<StoredResponse>, policy_id: u32) -> Rc<PrebuiltResponse> {
        Rc::new(PrebuiltResponse::new(object, None, &HeaderPolicy { id: policy_id, ..HeaderPolicy::default() }))
    }

    #[test]
    fn keys_with_one_hash_are_told_apart() {
        let mut worker_cache = WorkerCache::default();
        worker_cache.insert(1, b"a", ready(&object(b""), 0));
        assert_eq!(
            (
                worker_cache.get(1, b"a", 0).len(),
                worker_cache.get(1, b"b", 0).len(),
                worker_cache.get(2, b"a", 0).len()
            ),
            (1, 0, 0)
        );
        worker_cache.insert(1, b"b", ready(&object(b""), 0));
        assert_eq!((worker_cache.get(1, b"a", 0).len(), worker_cache.get(1, b"b", 0).len()), (0, 1));
        assert_eq!((worker_cache.order.len(), worker_cache.entries.len()), (1, 1));
    }

    #[test]
    fn a_purge_forgets_all() {
        let mut worker_cache = WorkerCache::default();
        worker_cache.insert(1, b"a", ready(&object(b""), 0));
        assert_eq!(worker_cache.get(1, b"a", 1).len(), 0);
        assert_eq!((worker_cache.bytes, worker_cache.order.len()), (0, 0));
        worker_cache.insert(1, b"a", ready(&object(b""), 0));
        assert_eq!((worker_cache.get(1, b"a", 1).len(), worker_cache.get(1, b"a", 2).len()), (1, 0));
    }

    #[test]
    fn variants_and_policies_stand_side_by_side_up_to_a_bound() {
        let mut worker_cache = WorkerCache::default();
        let plain = object(b"");
        for policy_id in [0, 0, 1] {
            worker_cache.insert(1, b"a", ready(&plain, policy_id));
        }
        assert_eq!(worker_cache.get(1, b"a", 0).len(), 2);
        for variant in 0..10_u8 {
            worker_cache.insert(1, b"a", ready(&object(&[variant]), 0));
        }
        assert_eq!(worker_cache.get(1, b"a", 0).len(), VARIANTS_MAX);
        let held: usize = worker_cache.get(1, b"a", 0).iter().map(|ready| ready.bytes() + 1).sum();
        assert_eq!(worker_cache.bytes, held);
    }

    #[test]
    fn what_the_store_has_let_go_of_goes() {
        let mut worker_cache = WorkerCache::default();
        let (gone, kept) = (object(b""), object(b""));
        worker_cache.insert(1, b"a", ready(&gone, 0));
        gone.set_evicted();
        worker_cache.insert(1, b"a", ready(&object(b"other"), 0));
        assert_eq!(worker_cache.get(1, b"a", 0).len(), 1);
        let old = object(b"");
        worker_cache.insert(2, b"b", ready(&old, 0));
        old.set_evicted();
        for hash in 3..6 {
            worker_cache.insert(hash, b"c", ready(&kept, 0));
        }
        assert_eq!(worker_cache.get(2, b"b", 0).len(), 0);
        assert_eq!((Arc::strong_count(&gone), Arc::strong_count(&old)), (1, 1));
    }

    #[test]
    fn what_is_gone_goes_although_nothing_new_comes() {
        let mut worker_cache = WorkerCache::default();
        let (gone, kept) = (object(b""), object(b""));
        worker_cache.insert(1, b"a", ready(&gone, 0));
        worker_cache.insert(2, b"b", ready(&kept, 0));
        gone.set_evicted();
        for _ in 0..2 * GETS_PER_SWEEP {
            assert_eq!(worker_cache.get(2, b"b", 0).len(), 1);
        }
        assert_eq!((Arc::strong_count(&gone), worker_cache.order.len()), (1, 1));
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut worker_cache = WorkerCache::default();
        let kept = object(b"");
        for hash in 0..(KEYS_MAX as u64 + 100) {
            worker_cache.insert(hash, b"a", ready(&kept, 0));
            assert_eq!(worker_cache.get(7.min(hash), b"a", 0).len(), 1, "{hash}");
        }
        assert!(worker_cache.order.len() <= KEYS_MAX && worker_cache.entries.len() == worker_cache.order.len());
        assert!(worker_cache.bytes <= BYTES_MAX);
    }
}
