//! A cache of file versions by path. Its entries, bytes and file descriptors are limited.
//!
//! Eviction uses the CLOCK algorithm. Each entry has a bit, which is set when the entry is used again. The hand clears
//! these bits until it finds an entry whose bit is clear, which it evicts. A crawl over the whole site therefore does
//! not evict frequently used entries.

use crate::version::Version;
use flatout_os::random::HashState;
use std::collections::HashMap;
use std::rc::Rc;

/// Limits of the cache of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Maximum number of versions.
    pub entries_max: usize,
    /// Approximate maximum memory of all versions, in bytes.
    pub bytes_max: usize,
    /// Maximum number of file descriptors held by all versions.
    pub descriptors_max: usize,
}

impl CacheLimits {
    /// Large enough for most sites. `flatout serve` lowers `descriptors_max` if the process may open only a few files.
    pub const DEFAULT: Self = Self { entries_max: 16_384, bytes_max: 64 * 1024 * 1024, descriptors_max: 512 };
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The time and the epoch of a version's last validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    /// Monotonic time in milliseconds.
    pub(crate) at_ms: u64,
    /// Number of changes that the kernel had reported by then.
    pub(crate) epoch: u64,
}

impl Checked {
    /// Returns the time from this validation to `now`, in milliseconds.
    pub(crate) const fn age_ms(self, now: Self) -> u64 {
        now.at_ms.saturating_sub(self.at_ms)
    }
}

#[derive(Debug)]
struct CacheEntry {
    key: Box<[u8]>,
    version: Rc<Version>,
    checked: Checked,
    used: bool,
    /// Memory counted for the entry, in bytes.
    bytes: usize,
    descriptors: usize,
}

/// Versions by path, `files` step and header policy.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    limits: CacheLimits,
    /// Only the names of existing files become keys, so a fast hash is safe enough. It is seeded nevertheless.
    index: HashMap<Box<[u8]>, usize, HashState>,
    entries: Vec<CacheEntry>,
    hand: usize,
    bytes: usize,
    descriptors: usize,
}

impl Cache {
    /// Creates an empty cache with `limits`.
    pub(crate) fn new(limits: CacheLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Returns the version under `key`, and when it was last validated. Marks the entry as used.
    #[inline]
    pub(crate) fn get(&mut self, key: &[u8]) -> Option<(&Rc<Version>, Checked)> {
        let entry = &mut self.entries[*self.index.get(key)?];
        entry.used = true;
        Some((&entry.version, entry.checked))
    }

    /// Records `checked` as the last validation of the version under `key`.
    pub(crate) fn set_checked(&mut self, key: &[u8], checked: Checked) {
        if let Some(&at) = self.index.get(key) {
            self.entries[at].checked = checked;
        }
    }

    /// Stores `version` under `key` in place of an older version, and evicts others while a limit is exceeded.
    pub(crate) fn insert(&mut self, key: &[u8], version: Rc<Version>, checked: Checked) {
        self.remove(key);
        let (bytes, descriptors) = (version.memory_bytes() + key.len(), version.descriptors());
        self.bytes += bytes;
        self.descriptors += descriptors;
        self.index.insert(key.into(), self.entries.len());
        self.entries.push(CacheEntry { key: key.into(), version, checked, used: false, bytes, descriptors });
        self.shrink(key);
    }

    /// Updates the bytes and descriptors counted for the version under `key` after it has adopted an encoding, and
    /// evicts others while a limit is exceeded.
    pub(crate) fn recount(&mut self, key: &[u8]) {
        let Some(&at) = self.index.get(key) else { return };
        let entry = &mut self.entries[at];
        let (bytes, descriptors) = (entry.version.memory_bytes() + key.len(), entry.version.descriptors());
        self.bytes = self.bytes - entry.bytes + bytes;
        self.descriptors = self.descriptors - entry.descriptors + descriptors;
        (entry.bytes, entry.descriptors, entry.used) = (bytes, descriptors, true);
        let last = self.entries.len() - 1;
        self.exchange(at, last);
        self.shrink(key);
    }

    /// Removes the version under `key`.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        if let Some(at) = self.index.remove(key) {
            self.take(at);
        }
    }

    /// Removes every version whose key does not satisfy `keep`.
    pub(crate) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let mut at = 0;
        while at < self.entries.len() {
            if keep(&self.entries[at].key) {
                at += 1;
                continue;
            }
            let key = std::mem::take(&mut self.entries[at].key);
            self.index.remove(&key);
            self.take(at);
        }
    }

    /// Returns the number of versions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Evicts versions until no limit is exceeded. The newest version, which is the one under `key`, is evicted last.
    fn shrink(&mut self, key: &[u8]) {
        while self.is_over() && self.entries.len() > 1 {
            self.evict();
        }
        if self.is_over() {
            self.remove(key);
        }
    }

    fn is_over(&self) -> bool {
        self.entries.len() > self.limits.entries_max
            || self.bytes > self.limits.bytes_max
            || self.descriptors > self.limits.descriptors_max
    }

    fn evict(&mut self) {
        // Two rounds are enough, because the first one clears every bit. The newest entry, which is the last, is
        // skipped.
        let newest = self.entries.len() - 1;
        for _ in 0..2 * self.entries.len() {
            let at = self.hand % newest;
            self.hand = (at + 1) % newest;
            if std::mem::take(&mut self.entries[at].used) {
                continue;
            }
            let key = std::mem::take(&mut self.entries[at].key);
            self.index.remove(&key);
            self.take(at);
            return;
        }
    }

    /// Removes the entry at `at`, whose key must already be out of the index. The last entry takes its position.
    fn take(&mut self, at: usize) {
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.bytes;
        self.descriptors -= entry.descriptors;
        if let Some(place) = self.entries.get(at).and_then(|moved| self.index.get_mut(&moved.key)) {
            *place = at;
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        self.entries.swap(one, other);
        for at in [one, other] {
            if let Some(place) = self.entries.get(at).and_then(|moved| self.index.get_mut(&moved.key)) {
                *place = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, CacheLimits, Checked};
    use crate::rules::FileRules;
    use crate::version::Version;
    use flatout_config::model::Files;
    use flatout_handler::routed::HeaderPolicy;
    use std::rc::Rc;

    const NOW: Checked = Checked { at_ms: 1, epoch: 0 };

    fn version(bytes: usize) -> Rc<Version> {
        let rules = FileRules::new(&Files::default(), 1_000_000);
        Rc::new(Version::of_content(vec![7; bytes], "text/plain", &rules, &Rc::new(HeaderPolicy::default()), 0))
    }

    #[test]
    fn bounds_hold_and_what_is_used_stays() {
        let version = version(1);
        let mut cache = Cache::new(CacheLimits { entries_max: 3, ..CacheLimits::DEFAULT });
        for key in [&b"a"[..], b"b", b"c"] {
            cache.insert(key, Rc::clone(&version), NOW);
        }
        cache.insert(b"d", Rc::clone(&version), NOW);
        assert_eq!(cache.len(), 3);
        for round in 0..20_u32 {
            assert!(cache.get(b"d").is_some(), "round {round}");
            cache.insert(format!("crawl{round}").as_bytes(), Rc::clone(&version), NOW);
            assert_eq!(cache.len(), 3);
        }
        cache.remove(b"d");
        cache.remove(b"never");
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn bytes_are_counted_and_counted_again() {
        let one = version(1000);
        let limits = CacheLimits { bytes_max: one.memory_bytes() + 1, descriptors_max: 1, entries_max: 10 };
        let mut cache = Cache::new(limits);
        cache.insert(b"a", Rc::clone(&one), NOW);
        cache.insert(b"b", version(1000), NOW);
        assert_eq!((cache.len(), cache.get(b"b").is_some()), (1, true));
        let later = Checked { at_ms: 2, epoch: 1 };
        cache.insert(b"b", Rc::clone(&one), later);
        assert_eq!(cache.get(b"b").unwrap().1, later);
        cache.recount(b"b");
        cache.recount(b"never");
        assert_eq!((cache.len(), cache.bytes), (1, one.memory_bytes() + 1));
        cache.retain(|key| key == b"a");
        assert_eq!((cache.len(), cache.bytes), (0, 0));
        let mut none = Cache::new(CacheLimits { bytes_max: 10, ..CacheLimits::DEFAULT });
        none.insert(b"a", one, NOW);
        assert_eq!((none.len(), none.bytes), (0, 0));
    }
}
