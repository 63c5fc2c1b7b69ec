//! What one worker has ready: kept answers with their heads built, found without a lock.
//!
//! Absent by design: what may be served. Whoever asks looks whether the object is still the store's, and fresh.

use crate::answer::Ready;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::rc::Rc;

/// Keys that a front knows at the most. Each costs about as much as its head.
const KEYS_MAX: usize = 16_384;

/// Bytes of heads that a front holds at the most, about.
const BYTES_MAX: usize = 32 * 1024 * 1024;

/// Variants of a key that are ready at the most; others are looked up in the store.
const VARIANTS_MAX: usize = 4;

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    ready: Vec<Rc<Ready>>,
    /// Whether it was used since the hand came by.
    used: bool,
}

/// One worker's front.
#[derive(Debug, Default)]
pub(crate) struct Front {
    entries: HashMap<u64, Entry, RandomState>,
    /// The keys' hashes, for the hand that looks for what may go.
    order: Vec<u64>,
    hand: usize,
    bytes: usize,
    /// The store's count of purges when all was known to hold.
    epoch: u64,
}

impl Front {
    /// What is ready for the key, when nothing has been purged since it became so.
    #[inline]
    pub(crate) fn get(&mut self, hash: u64, key: &[u8], epoch: u64) -> &[Rc<Ready>] {
        if self.epoch != epoch {
            // A purge is rare, and building heads again is cheap: nothing is compared one by one.
            self.clear();
            self.epoch = epoch;
        }
        match self.entries.get_mut(&hash) {
            Some(entry) if *entry.key == *key => {
                entry.used = true;
                &entry.ready
            }
            _ => &[],
        }
    }

    /// Makes `ready` known under its key, in place of what is not the store's any more.
    pub(crate) fn insert(&mut self, hash: u64, key: &[u8], ready: Rc<Ready>) {
        self.sweep(2);
        while self.order.len() >= KEYS_MAX || self.bytes > BYTES_MAX {
            self.evict();
        }
        let added = ready.bytes() + key.len();
        let entry = self.entries.entry(hash).or_insert_with(|| {
            self.order.push(hash);
            Entry { key: key.into(), ready: Vec::new(), used: false }
        });
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
        self.bytes += added;
    }

    /// Looks at `count` entries and lets go of what the store has let go of.
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

    /// Lets one entry go that has not been used for a round.
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
            let held: usize = entry.ready.iter().map(|ready| ready.bytes() + entry.key.len()).sum();
            self.bytes = self.bytes.saturating_sub(held);
        }
        if self.order.is_empty() {
            self.bytes = 0;
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
        self.hand = 0;
    }
}
