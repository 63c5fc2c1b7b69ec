//! Per-worker cache of stored responses with prebuilt heads, found without a lock.
//!
//! It does not decide what may be served: callers check that the object is still in the store and fresh.

use crate::answer::Ready;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum keys per worker. Each costs about as much as its head.
const KEYS_MAX: usize = 16_384;

/// Approximate maximum bytes of heads per worker.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Maximum prebuilt variants per key; others are looked up in the store.
const VARIANTS_MAX: usize = 4;

/// Lookups between two sweeps of one entry.
const GETS_PER_SWEEP: u32 = 64;

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    ready: Vec<Rc<Ready>>,
    /// True if it was used since the clock hand passed.
    used: bool,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.ready.iter().map(|ready| ready.bytes() + self.key.len()).sum()
    }
}

/// Per-worker cache of prebuilt responses.
#[derive(Debug, Default)]
pub(crate) struct Front {
    entries: HashMap<u64, Entry, RandomState>,
    /// Hashes of the keys in clock order, for eviction.
    order: Vec<u64>,
    hand: usize,
    bytes: usize,
    /// Purge epoch of the store for which all entries are valid.
    epoch: u64,
    /// Number of lookups.
    asked: u32,
}

impl Front {
    /// Returns the prebuilt responses for the key. Empty after a purge.
    #[inline]
    pub(crate) fn get(&mut self, hash: u64, key: &[u8], epoch: u64) -> &[Rc<Ready>] {
        if self.epoch != epoch {
            // Purges are rare and heads are cheap to rebuild, so clear everything.
            self.clear();
            self.epoch = epoch;
        }
        // Sweep on lookups too: a worker with hits only must not retain objects that the store has evicted.
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

    /// Adds `ready` under its key and removes entries that the store no longer holds.
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], ready: Rc<Ready>) {
        self.sweep(2);
        while self.order.len() >= KEYS_MAX || self.bytes > BYTES_MAX {
            self.evict();
        }
        let entry = self.entries.entry(hash).or_insert_with(|| {
            self.order.push(hash);
            Entry { key: key.into(), ready: Vec::new(), used: false }
        });
        let before = entry.bytes();
        if *entry.key != *key {
            *entry = Entry { key: key.into(), ready: Vec::new(), used: false };
        }
        entry.ready.retain(|other| {
            other.object.is_current()
                && (other.object.variant() != ready.object.variant() || other.changes_id != ready.changes_id)
        });
        if entry.ready.len() >= VARIANTS_MAX {
            entry.ready.remove(0);
        }
        entry.ready.push(ready);
        self.bytes = (self.bytes + entry.bytes()).saturating_sub(before);
    }

    /// Sweeps part of the entries, at low cost compared with a fetch.
    pub(crate) fn sweep_many(&mut self) {
        /// Entries per call.
        const COUNT: usize = 1024;
        self.sweep(COUNT);
    }

    /// Checks `count` entries and drops those that the store no longer holds.
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

    /// Evicts one entry that was not used for a full turn.
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
    use super::{BYTES_MAX, Front, GETS_PER_SWEEP, KEYS_MAX, VARIANTS_MAX};
    use crate::answer::Ready;
    use crate::meta::Kept;
    use crate::meta::tests::meta;
    use crate::store::{Key, StoredBody};
    use std::rc::Rc;
    use std::sync::Arc;

    fn object(variant: &[u8]) -> Arc<Kept> {
        let key = Key::new(b"key", 0..3, 1);
        Arc::new(Kept::new(key, variant, meta(), Arc::from(&b""[..]), StoredBody::Empty, 0))
    }

    fn ready(object: &Arc<Kept>, changes_id: u32) -> Rc<Ready> {
        Rc::new(Ready::new(object, None, &[], changes_id))
    }

    #[test]
    fn keys_with_one_hash_are_told_apart() {
        let mut front = Front::default();
        front.insert(1, b"a", ready(&object(b""), 0));
        assert_eq!((front.get(1, b"a", 0).len(), front.get(1, b"b", 0).len(), front.get(2, b"a", 0).len()), (1, 0, 0));
        front.insert(1, b"b", ready(&object(b""), 0));
        assert_eq!((front.get(1, b"a", 0).len(), front.get(1, b"b", 0).len()), (0, 1));
        assert_eq!((front.order.len(), front.entries.len()), (1, 1));
    }

    #[test]
    fn a_purge_forgets_all() {
        let mut front = Front::default();
        front.insert(1, b"a", ready(&object(b""), 0));
        assert_eq!(front.get(1, b"a", 1).len(), 0);
        assert_eq!((front.bytes, front.order.len()), (0, 0));
        front.insert(1, b"a", ready(&object(b""), 0));
        assert_eq!((front.get(1, b"a", 1).len(), front.get(1, b"a", 2).len()), (1, 0));
    }

    #[test]
    fn variants_and_changes_stand_side_by_side_up_to_a_bound() {
        let mut front = Front::default();
        let plain = object(b"");
        for changes_id in [0, 0, 1] {
            front.insert(1, b"a", ready(&plain, changes_id));
        }
        assert_eq!(front.get(1, b"a", 0).len(), 2);
        for variant in 0..10_u8 {
            front.insert(1, b"a", ready(&object(&[variant]), 0));
        }
        assert_eq!(front.get(1, b"a", 0).len(), VARIANTS_MAX);
        let held: usize = front.get(1, b"a", 0).iter().map(|ready| ready.bytes() + 1).sum();
        assert_eq!(front.bytes, held);
    }

    #[test]
    fn what_the_store_has_let_go_of_goes() {
        let mut front = Front::default();
        let (gone, kept) = (object(b""), object(b""));
        front.insert(1, b"a", ready(&gone, 0));
        gone.set_evicted();
        front.insert(1, b"a", ready(&object(b"other"), 0));
        assert_eq!(front.get(1, b"a", 0).len(), 1);
        let old = object(b"");
        front.insert(2, b"b", ready(&old, 0));
        old.set_evicted();
        for hash in 3..6 {
            front.insert(hash, b"c", ready(&kept, 0));
        }
        assert_eq!(front.get(2, b"b", 0).len(), 0);
        assert_eq!((Arc::strong_count(&gone), Arc::strong_count(&old)), (1, 1));
    }

    #[test]
    fn what_is_gone_goes_although_nothing_new_comes() {
        let mut front = Front::default();
        let (gone, kept) = (object(b""), object(b""));
        front.insert(1, b"a", ready(&gone, 0));
        front.insert(2, b"b", ready(&kept, 0));
        gone.set_evicted();
        for _ in 0..2 * GETS_PER_SWEEP {
            assert_eq!(front.get(2, b"b", 0).len(), 1);
        }
        assert_eq!((Arc::strong_count(&gone), front.order.len()), (1, 1));
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let mut front = Front::default();
        let kept = object(b"");
        for hash in 0..(KEYS_MAX as u64 + 100) {
            front.insert(hash, b"a", ready(&kept, 0));
            assert_eq!(front.get(7.min(hash), b"a", 0).len(), 1, "{hash}");
        }
        assert!(front.order.len() <= KEYS_MAX && front.entries.len() == front.order.len());
        assert!(front.bytes <= BYTES_MAX);
    }
}
