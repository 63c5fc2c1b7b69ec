//! Values shared among workers, in memory: bounded, with a time to live, gone when the process ends.

use std::sync::Arc;

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

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLimits {
    /// Bytes of keys and values, and what keeping them costs, at the most.
    pub bytes_max: usize,
    /// Values at the most.
    pub entries_max: usize,
    /// Bytes of a key at the most.
    pub key_bytes_max: usize,
    /// Bytes of a value at the most; never more than a sixteenth of `bytes_max`.
    pub value_bytes_max: usize,
}

/// Why a value was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvError {
    /// The key is longer than [`KvLimits::key_bytes_max`], or empty.
    Key,
    /// The value is larger than [`KvLimits::value_bytes_max`].
    Value,
    /// `incr` of what is not a whole number.
    NotInteger,
    /// `incr` past the largest or smallest number of 64 bits.
    Overflow,
}

/// Values shared among workers. Every method takes the time in milliseconds of a clock that never goes back, and
/// `ttl_ms`: how long the value lives from then on; `None`: until it is deleted or gives way to others.
#[derive(Debug)]
pub struct Kv {}

impl Kv {
    /// An empty store.
    pub fn new(limits: KvLimits) -> Self {
        let _ = limits;
        unimplemented!()
    }

    /// The value under a key, while it lives.
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<KvValue> {
        let _ = (key, now_ms);
        unimplemented!()
    }

    /// Keeps a value, instead of the one before.
    pub fn set(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<(), KvError> {
        let _ = (key, value, ttl_ms, now_ms);
        unimplemented!()
    }

    /// Keeps a value unless there is one. True: it was kept.
    pub fn add(&self, key: &[u8], value: KvValue, ttl_ms: Option<u64>, now_ms: u64) -> Result<bool, KvError> {
        let _ = (key, value, ttl_ms, now_ms);
        unimplemented!()
    }

    /// Adds `by` to the number under a key, which counts as 0 where there is none, and returns the sum. A number that
    /// is there already keeps its time to live; `ttl_ms` is for a new one.
    pub fn incr(&self, key: &[u8], by: i64, ttl_ms: Option<u64>, now_ms: u64) -> Result<i64, KvError> {
        let _ = (key, by, ttl_ms, now_ms);
        unimplemented!()
    }

    /// Removes the value under a key. True: there was one.
    pub fn delete(&self, key: &[u8], now_ms: u64) -> bool {
        let _ = (key, now_ms);
        unimplemented!()
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
        let _ = (key, expected, value, ttl_ms, now_ms);
        unimplemented!()
    }
}
