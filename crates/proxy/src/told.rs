//! What happened that operators want to know: answers that were not kept, and origins that are left out or back.

use crate::group::Change;
use crate::store::hold;
use flatout_cache::reason::NoStore;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts that are locked by themselves.
const SHARDS: usize = 16;

/// Keys that a part remembers at the most; beyond, it begins anew.
const KEYS_MAX: usize = 256;

/// The last answer for a key that was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) reason: NoStore,
    /// The answer's status.
    pub(crate) status: u16,
    /// When that was, in seconds since 1970.
    pub(crate) unix_s: i64,
}

/// Why the last answers were not kept, by the hash of their keys. At most 4,096 of them.
#[derive(Debug, Default)]
pub(crate) struct NotKept {
    shards: [Mutex<HashMap<u64, Last, RandomState>>; SHARDS],
}

impl NotKept {
    fn shard(&self, hash: u64) -> &Mutex<HashMap<u64, Last, RandomState>> {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Remembers why an answer was not kept.
    pub(crate) fn note(&self, hash: u64, last: Last) {
        let mut shard = hold(self.shard(hash));
        if shard.len() >= KEYS_MAX && !shard.contains_key(&hash) {
            shard.clear();
        }
        shard.insert(hash, last);
    }

    /// The last answer that was not kept.
    pub(crate) fn find(&self, hash: u64) -> Option<Last> {
        hold(self.shard(hash)).get(&hash).copied()
    }
}

/// Answers that one worker has not kept, by reason. Only that worker writes it.
#[derive(Debug)]
pub struct NotKeptCounts([AtomicU64; NoStore::ALL.len()]);

impl Default for NotKeptCounts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; NoStore::ALL.len()])
    }
}

impl NotKeptCounts {
    /// One more.
    pub(crate) fn add(&self, reason: NoStore) {
        // There is one writer.
        let count = &self.0[reason as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self, reason: NoStore) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

/// Is told of an origin, as it is shown, and of what has changed.
pub type OnChange = Box<dyn Fn(&str, Change) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::{KEYS_MAX, Last, NotKept, NotKeptCounts, SHARDS};
    use flatout_cache::reason::NoStore;

    #[test]
    fn the_last_reasons_are_remembered_within_bounds() {
        let table = NotKept::default();
        let last = |reason| Last { reason, status: 200, unix_s: 7 };
        table.note(1, last(NoStore::Private));
        table.note(1, last(NoStore::SetCookie));
        assert_eq!(table.find(1), Some(last(NoStore::SetCookie)));
        assert_eq!(table.find(2), None);
        for hash in 0..100_000_u64 {
            table.note(hash << 38, last(NoStore::NoRoom));
        }
        let total: usize = table.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!(total <= SHARDS * KEYS_MAX, "{total}");
        assert_eq!(table.find(99_999 << 38), Some(last(NoStore::NoRoom)));
    }

    #[test]
    fn each_reason_has_its_count() {
        let counts = NotKeptCounts::default();
        counts.add(NoStore::NoRoom);
        counts.add(NoStore::NoRoom);
        counts.add(NoStore::Off);
        let all: Vec<u64> = NoStore::ALL.iter().map(|reason| counts.get(*reason)).collect();
        assert_eq!((all.iter().sum::<u64>(), counts.get(NoStore::NoRoom), counts.get(NoStore::Off)), (3, 2, 1));
    }
}
