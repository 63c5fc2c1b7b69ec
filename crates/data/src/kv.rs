//! An in-memory key-value store shared by workers. Its size is limited, values can expire, and nothing is persistent.
//!
//! Keys are distributed among shards by a randomly keyed hash, which prevents hash flooding. Each shard has a lock,
//! which is held for a single access. If a shard is full, expired entries are evicted first, then entries that were not
//! accessed since the eviction hand last passed them (SIEVE: Zhang et al., NSDI 2024).

mod shard;
#[cfg(test)]
mod tests;

use flatout_os::random::HashState;
use shard::KvShard;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of shards: enough to make contention rare on today's machines.
const SHARDS: usize = 16;

/// A stored value.
#[derive(Clone, Debug, PartialEq)]
pub enum KvValue {
    /// Bytes, shared without copying.
    Bytes(Arc<[u8]>),
    /// An integer, which `incr` can increment.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// `true` or `false`, which Luau distinguishes from 1 and 0.
    Boolean(bool),
}

impl KvValue {
    /// Number of bytes that the value occupies outside of its entry.
    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Integer(_) | Self::Real(_) | Self::Boolean(_) => 0,
        }
    }
}

flatout_reason::defaults! {
    /// Limits of a store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KvLimits {
        /// Maximum total size of keys, values and overhead, in bytes.
        pub bytes_max: usize = 64 << 20,
        /// Maximum number of values.
        pub entries_max: usize = 1_000_000,
        /// Maximum length of a key, in bytes; by default as in memcached.
        pub key_bytes_max: usize = 250,
        /// Maximum size of a value, in bytes. It is reduced if a value of this size with its key and overhead would not
        /// fit in a sixteenth of `bytes_max`.
        pub value_bytes_max: usize = 1 << 20,
    }
}

flatout_reason::reasons! {
    /// The reason why a value was not stored.
    #[derive(thiserror::Error)]
    #[error("{}", self.text())]
    pub enum KvError { name, text, }
    /// The key is empty, or longer than [`KvLimits::key_bytes_max`].
    Key, "kv_key", "The key is empty, or longer than the limit.";
    /// The value is larger than [`KvLimits::value_bytes_max`].
    Value, "kv_value", "The value is larger than the limit.";
    /// The value that `incr` should increment is not an integer.
    NotInteger, "kv_not_integer", "The value is not a whole number and cannot be incremented.";
    /// The result of `incr` is outside the range of 64-bit integers.
    Overflow, "kv_overflow", "The sum is outside the range of 64-bit integers.";
}

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCounts {
    /// Number of values, including expired values that have not been removed yet.
    pub entries: usize,
    /// Total size in bytes, as limited by [`KvLimits::bytes_max`].
    pub bytes: usize,
    /// Number of values evicted before they expired.
    pub evicted: u64,
}

/// A key-value store that all workers share. Methods take the current time in milliseconds on a monotonic clock, and in
/// `ttl_ms` the time to live of the value in milliseconds; with `None`, the value is stored until it is deleted or
/// evicted.
#[derive(derive_more::Debug)]
#[debug("Kv({limits:?})")]
pub struct Kv {
    shards: [Mutex<KvShard>; SHARDS],
    limits: KvLimits,
    hasher: HashState,
}

impl Kv {
    /// Creates an empty store.
    pub fn new(limits: KvLimits) -> Self {
        let bytes_max = limits.bytes_max / SHARDS;
        let value_bytes_max = limits
            .value_bytes_max
            .min(bytes_max.saturating_sub(limits.key_bytes_max.saturating_add(shard::ENTRY_BYTES)));
        let limits = KvLimits { value_bytes_max, ..limits };
        let entries_max = limits.entries_max.div_ceil(SHARDS).max(1);
        let shards = std::array::from_fn(|_| Mutex::new(KvShard::new(bytes_max, entries_max)));
        Self { shards, limits, hasher: HashState::default() }
    }

    /// The limits that are in effect.
    pub fn limits(&self) -> KvLimits {
        self.limits
    }

    /// Returns the value of a key, unless it has expired.
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<KvValue> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).get(hash, key, now_ms).cloned()
    }

    /// Stores a value, replacing the previous one.
    pub fn set(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<(), KvError> {
        self.check(key, &value)?;
        let hash = self.hasher.hash_one(key);
        let old = self.shard(hash).set(hash, key, value, expiry(ttl_ms, now_ms), now_ms);
        // Frees the replaced value outside of the lock.
        drop(old);
        Ok(())
    }

    /// Stores a value unless the key already has one. Returns whether the value was stored.
    pub fn add(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<bool, KvError> {
        self.compare_and_set(key, None, Some(value), ttl_ms, now_ms)
    }

    /// Adds `by` to the integer of a key, which counts as 0 if the key has no value, and returns the sum. An existing
    /// value keeps its time to live; `ttl_ms` applies to a new value.
    pub fn incr(&self, key: &[u8], by: i64, ttl_ms: Option<u64>, now_ms: u64) -> Result<i64, KvError> {
        self.check(key, &KvValue::Integer(by))?;
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        match shard.get_mut(hash, key, now_ms) {
            Some(KvValue::Integer(value)) => {
                *value = value.checked_add(by).ok_or(KvError::Overflow)?;
                Ok(*value)
            }
            Some(_) => Err(KvError::NotInteger),
            None => {
                let old = shard.set(hash, key, KvValue::Integer(by), expiry(ttl_ms, now_ms), now_ms);
                drop(shard);
                drop(old);
                Ok(by)
            }
        }
    }

    /// Removes the value of a key. Returns whether the key had a value.
    pub fn delete(&self, key: &[u8], now_ms: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let old = self.shard(hash).remove(hash, key, now_ms);
        old.is_some()
    }

    /// If the current value equals `expected`, stores `value`, or removes the current value if `value` is `None`.
    /// `expected` is `None` if the key must have no value. Returns whether the store was changed.
    pub fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&KvValue>,
        value: Option<KvValue>,
        ttl_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<bool, KvError> {
        self.check(key, value.as_ref().unwrap_or(&KvValue::Boolean(false)))?;
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        if shard.get(hash, key, now_ms) != expected {
            return Ok(false);
        }
        let old = match value {
            Some(value) => shard.set(hash, key, value, expiry(ttl_ms, now_ms), now_ms),
            None => shard.remove(hash, key, now_ms),
        };
        drop(shard);
        drop(old);
        Ok(true)
    }

    /// Returns the current statistics.
    pub fn counts(&self) -> KvCounts {
        self.shards.iter().fold(KvCounts::default(), |sum, shard| {
            let counts = lock(shard).counts();
            KvCounts {
                entries: sum.entries + counts.entries,
                bytes: sum.bytes + counts.bytes,
                evicted: sum.evicted + counts.evicted,
            }
        })
    }

    fn check(&self, key: &[u8], value: &KvValue) -> Result<(), KvError> {
        if key.is_empty() || key.len() > self.limits.key_bytes_max {
            return Err(KvError::Key);
        }
        if value.bytes() > self.limits.value_bytes_max {
            return Err(KvError::Value);
        }
        Ok(())
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, KvShard> {
        // Uses bits from the middle of the hash, because the table within the shard uses those at both ends.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

/// Ignores poisoning, because a panic leaves a shard readable.
fn lock(shard: &Mutex<KvShard>) -> MutexGuard<'_, KvShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn expiry(ttl_ms: Option<u64>, now_ms: u64) -> u64 {
    ttl_ms.map_or(u64::MAX, |ttl_ms| now_ms.saturating_add(ttl_ms))
}
