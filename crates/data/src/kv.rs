//! In-memory key-value store shared by workers: bounded, with time to live, not persistent.
//!
//! Keys are spread over shards by a randomly keyed hash, against hash flooding. Each shard has a lock, held for one
//! access. If a shard is full, expired entries are evicted first, then entries not accessed since the hand last passed
//! (SIEVE: Zhang et al., NSDI 2024).

mod shard;
#[cfg(test)]
mod tests;

use foldhash::fast::RandomState;
use shard::KvShard;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of shards: enough to make contention rare on today's machines.
const SHARDS: usize = 16;

/// A stored value.
#[derive(Clone, Debug, PartialEq)]
pub enum KvValue {
    /// Bytes, shared without copying.
    Bytes(Arc<[u8]>),
    /// An integer, as for `incr`.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A Boolean.
    Boolean(bool),
}

impl KvValue {
    /// Bytes outside the entry.
    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Integer(_) | Self::Real(_) | Self::Boolean(_) => 0,
        }
    }
}

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLimits {
    /// Maximum bytes of keys, values and overhead.
    pub bytes_max: usize,
    /// Maximum number of values.
    pub entries_max: usize,
    /// Maximum bytes of a key.
    pub key_bytes_max: usize,
    /// Maximum bytes of a value; at most the value that fits in a sixteenth of `bytes_max`.
    pub value_bytes_max: usize,
}

impl Default for KvLimits {
    /// 64 MiB, 1,000,000 values, keys of 250 bytes (memcached's limit) and values of 1 MiB.
    fn default() -> Self {
        Self { bytes_max: 64 << 20, entries_max: 1_000_000, key_bytes_max: 250, value_bytes_max: 1 << 20 }
    }
}

/// Reason for not storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvError {
    /// The key is empty, or longer than [`KvLimits::key_bytes_max`].
    Key,
    /// The value is larger than [`KvLimits::value_bytes_max`].
    Value,
    /// `incr` of a value that is not an integer.
    NotInteger,
    /// `incr` beyond the range of 64 bits.
    Overflow,
}

impl KvError {
    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "kv_key",
            Self::Value => "kv_value",
            Self::NotInteger => "kv_not_integer",
            Self::Overflow => "kv_overflow",
        }
    }

    /// Description.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Key => "The key is empty, or longer than the limit.",
            Self::Value => "The value is larger than the limit.",
            Self::NotInteger => "The value is not a whole number and cannot be incremented.",
            Self::Overflow => "The sum is outside the range of 64-bit integers.",
        }
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for KvError {}

/// Statistics of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCounts {
    /// Number of values, including expired ones that are not removed yet.
    pub entries: usize,
    /// Bytes, as in [`KvLimits::bytes_max`].
    pub bytes: usize,
    /// Values evicted before they expired.
    pub evicted: u64,
}

/// Key-value store shared by workers. Methods take the time in milliseconds of a monotonic clock, and `ttl_ms`, the
/// time to live of the value; `None`: until it is deleted or evicted.
pub struct Kv {
    shards: [Mutex<KvShard>; SHARDS],
    limits: KvLimits,
    hasher: RandomState,
}

impl Kv {
    /// An empty store.
    pub fn new(limits: KvLimits) -> Self {
        let bytes_max = limits.bytes_max / SHARDS;
        let value_bytes_max = limits
            .value_bytes_max
            .min(bytes_max.saturating_sub(limits.key_bytes_max.saturating_add(shard::ENTRY_BYTES)));
        let limits = KvLimits { value_bytes_max, ..limits };
        let entries_max = limits.entries_max.div_ceil(SHARDS).max(1);
        let shards = std::array::from_fn(|_| Mutex::new(KvShard::new(bytes_max, entries_max)));
        Self { shards, limits, hasher: RandomState::default() }
    }

    /// The effective limits.
    pub fn limits(&self) -> KvLimits {
        self.limits
    }

    /// Unexpired value of a key.
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<KvValue> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).get(hash, key, now_ms).cloned()
    }

    /// Stores a value and replaces the previous one.
    pub fn set(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<(), KvError> {
        self.check(key, &value)?;
        let hash = self.hasher.hash_one(key);
        let old = self.shard(hash).set(hash, key, value, expiry(ttl_ms, now_ms), now_ms);
        // Free the replaced value outside the lock.
        drop(old);
        Ok(())
    }

    /// Stores a value unless there is one. Returns whether it was stored.
    pub fn add(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<bool, KvError> {
        self.compare_and_set(key, None, Some(value), ttl_ms, now_ms)
    }

    /// Adds `by` to the number of a key, 0 if missing, and returns the sum. An existing number keeps its time to live;
    /// `ttl_ms` applies to a new one.
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

    /// Removes the value of a key. Returns whether there was one.
    pub fn delete(&self, key: &[u8], now_ms: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let old = self.shard(hash).remove(hash, key, now_ms);
        old.is_some()
    }

    /// Stores `value` (`None`: removes it) if the current value equals `expected` (`None`: there is none). Returns
    /// whether it did.
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

    /// Current statistics.
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
        // Bits from the middle: the table within the shard uses those at either end.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kv").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Ignores poison: a panic leaves a shard readable.
fn lock(shard: &Mutex<KvShard>) -> MutexGuard<'_, KvShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn expiry(ttl_ms: Option<u64>, now_ms: u64) -> u64 {
    ttl_ms.map_or(u64::MAX, |ttl_ms| now_ms.saturating_add(ttl_ms))
}
