//! Values shared among workers, in memory: bounded, with a time to live, gone when the process ends.
//!
//! Keys are spread over shards by a hash with a random key, so that nobody can choose keys that fall together; each
//! shard has a lock of its own, held for the time of one look or one change. When a shard is full, what has expired
//! gives way first, then what nobody asked for since it was last passed over (SIEVE: Zhang et al., NSDI 2024).

mod shard;
#[cfg(test)]
mod tests;

use foldhash::fast::RandomState;
use shard::Shard;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shards: more than a machine of today has workers that meet in one at a time.
const SHARDS: usize = 16;

/// A value under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum KvValue {
    /// Bytes, shared and never copied.
    Bytes(Arc<[u8]>),
    /// A whole number, as `incr` counts.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// True or false.
    Boolean(bool),
}

impl KvValue {
    /// Bytes that it takes outside its entry.
    fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Integer(_) | Self::Real(_) | Self::Boolean(_) => 0,
        }
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLimits {
    /// Bytes of keys and values, and what keeping them costs, at the most.
    pub bytes_max: usize,
    /// Values at the most.
    pub entries_max: usize,
    /// Bytes of a key at the most.
    pub key_bytes_max: usize,
    /// Bytes of a value at the most; never more than fits a sixteenth of `bytes_max`.
    pub value_bytes_max: usize,
}

impl Default for KvLimits {
    /// 64 MiB, 1,000,000 values, keys of 250 bytes (memcached's bound) and values of 1 MiB.
    fn default() -> Self {
        Self { bytes_max: 64 << 20, entries_max: 1_000_000, key_bytes_max: 250, value_bytes_max: 1 << 20 }
    }
}

/// Why a value was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvError {
    /// The key is empty, or longer than [`KvLimits::key_bytes_max`].
    Key,
    /// The value is larger than [`KvLimits::value_bytes_max`].
    Value,
    /// `incr` of what is not a whole number.
    NotInteger,
    /// `incr` past the largest or smallest number of 64 bits.
    Overflow,
}

impl KvError {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "kv_key",
            Self::Value => "kv_value",
            Self::NotInteger => "kv_not_integer",
            Self::Overflow => "kv_overflow",
        }
    }

    /// What it means.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Key => "The key is empty, or longer than is allowed.",
            Self::Value => "The value is larger than is allowed.",
            Self::NotInteger => "What is there is not a whole number, and cannot be counted up.",
            Self::Overflow => "The sum is no number of 64 bits.",
        }
    }
}

impl fmt::Display for KvError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for KvError {}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvCounts {
    /// Values, with those that have expired and still take a place.
    pub entries: usize,
    /// Bytes as [`KvLimits::bytes_max`] counts them.
    pub bytes: usize,
    /// Values that gave way before their time.
    pub evicted: u64,
}

/// Values shared among workers. Every method takes the time in milliseconds of a clock that never goes back, and
/// `ttl_ms`: how long the value lives from then on; `None`: until it is deleted or gives way to others.
pub struct Kv {
    shards: [Mutex<Shard>; SHARDS],
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
        let shards = std::array::from_fn(|_| Mutex::new(Shard::new(bytes_max, entries_max)));
        Self { shards, limits, hasher: RandomState::default() }
    }

    /// The bounds as they hold.
    pub fn limits(&self) -> KvLimits {
        self.limits
    }

    /// The value under a key, while it lives.
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<KvValue> {
        let hash = self.hasher.hash_one(key);
        self.shard(hash).get(hash, key, now_ms).cloned()
    }

    /// Keeps a value, instead of the one before.
    pub fn set(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<(), KvError> {
        self.check(key, &value)?;
        let hash = self.hasher.hash_one(key);
        let old = self.shard(hash).set(hash, key, value, expiry(ttl_ms, now_ms), now_ms);
        // What was replaced is freed outside the lock.
        drop(old);
        Ok(())
    }

    /// Keeps a value unless there is one. True: it was kept.
    pub fn add(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<bool, KvError> {
        self.compare_and_set(key, None, Some(value), ttl_ms, now_ms)
    }

    /// Adds `by` to the number under a key, which counts as 0 where there is none, and returns the sum. A number that
    /// is there already keeps its time to live; `ttl_ms` is for a new one.
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

    /// Removes the value under a key. True: there was one.
    pub fn delete(&self, key: &[u8], now_ms: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let old = self.shard(hash).remove(hash, key, now_ms);
        old.is_some()
    }

    /// Keeps `value` (`None`: keeps nothing) if what is there equals `expected` (`None`: nothing is). True: it did.
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

    /// How much there is.
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

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // Bits in the middle: the table within the shard goes by those at either end.
        lock(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kv").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A panic elsewhere leaves a shard whole as far as anybody can read from it.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn expiry(ttl_ms: Option<u64>, now_ms: u64) -> u64 {
    ttl_ms.map_or(u64::MAX, |ttl_ms| now_ms.saturating_add(ttl_ms))
}
