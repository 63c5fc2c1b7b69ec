//! Responses that were not stored, for operators.

use flatout_cache::reason::NoStore;
use flatout_os::random::HashState;
use flatout_store::hold;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of separately locked shards.
const SHARDS: usize = 16;

/// Maximum number of keys per shard. At the limit, the shard is cleared.
const KEYS_MAX: usize = 256;

/// The last response for a key, which was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnstoredResponse {
    pub(crate) reason: NoStore,
    /// Status of the response.
    pub(crate) status: u16,
    /// When the response arrived, in seconds since 1970.
    pub(crate) unix_s: i64,
}

/// The latest responses that were not stored, by hash of the key. At most 4,096.
#[derive(Debug, Default)]
pub(crate) struct UnstoredResponses {
    shards: [Mutex<HashMap<u64, UnstoredResponse, HashState>>; SHARDS],
}

impl UnstoredResponses {
    fn shard(&self, hash: u64) -> &Mutex<HashMap<u64, UnstoredResponse, HashState>> {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// Records a response that was not stored, for the key with this hash.
    pub(crate) fn note(&self, hash: u64, last: UnstoredResponse) {
        let mut shard = hold(self.shard(hash));
        if shard.len() >= KEYS_MAX && !shard.contains_key(&hash) {
            shard.clear();
        }
        shard.insert(hash, last);
    }

    /// Returns the last response for the key with this hash that was not stored.
    pub(crate) fn find(&self, hash: u64) -> Option<UnstoredResponse> {
        hold(self.shard(hash)).get(&hash).copied()
    }
}

/// Number of responses that one worker did not store, by reason. Only that worker writes the counts.
#[derive(Debug)]
pub struct NotKeptCounts([AtomicU64; NoStore::ALL.len()]);

impl Default for NotKeptCounts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; NoStore::ALL.len()])
    }
}

impl NotKeptCounts {
    /// Increments the count for `reason`.
    pub(crate) fn add(&self, reason: NoStore) {
        // No atomic increment is needed, since there is only one writer.
        let count = &self.0[reason as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the number of responses not stored for `reason`.
    pub fn get(&self, reason: NoStore) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{KEYS_MAX, NotKeptCounts, SHARDS, UnstoredResponse, UnstoredResponses};
    use flatout_cache::reason::NoStore;

    #[test]
    fn the_last_reasons_are_remembered_within_bounds() {
        let table = UnstoredResponses::default();
        let last = |reason| UnstoredResponse { reason, status: 200, unix_s: 7 };
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
