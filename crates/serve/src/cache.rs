//! Versions by path, within bounds: entries, bytes and descriptors.
//!
//! Eviction is CLOCK: each entry has one bit, set when it is used again; the hand clears bits until it finds a clear
//! one. A crawl over the whole site so passes through without driving out what is asked for all the time.

use crate::version::Version;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::rc::Rc;

/// Bounds of one worker's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Versions held.
    pub entries_max: usize,
    /// Bytes of memory they hold together, about.
    pub bytes_max: usize,
    /// Descriptors they hold together.
    pub descriptors_max: usize,
}

impl CacheLimits {
    /// Enough for most sites whole. `flatout serve` holds fewer files open where the process may have few descriptors.
    pub const DEFAULT: Self = Self { entries_max: 16_384, bytes_max: 64 * 1024 * 1024, descriptors_max: 512 };
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[derive(Debug)]
struct Entry {
    path: Box<[u8]>,
    version: Rc<Version>,
    checked_ms: u64,
    used: bool,
}

/// Versions by path.
#[derive(Debug, Default)]
pub struct Cache {
    limits: CacheLimits,
    /// Only names of files that exist become keys, so a fast hash is safe enough; it is seeded all the same.
    index: HashMap<Box<[u8]>, usize, RandomState>,
    entries: Vec<Entry>,
    hand: usize,
    bytes: usize,
    descriptors: usize,
}

impl Cache {
    /// An empty cache with `limits`.
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The version at `path` and when it was last checked, in milliseconds.
    #[inline]
    pub fn get(&mut self, path: &[u8]) -> Option<(&Rc<Version>, u64)> {
        let entry = &mut self.entries[*self.index.get(path)?];
        entry.used = true;
        Some((&entry.version, entry.checked_ms))
    }

    /// Notes that the version at `path` was checked at `now_ms`.
    pub fn set_checked(&mut self, path: &[u8], now_ms: u64) {
        if let Some(&at) = self.index.get(path) {
            self.entries[at].checked_ms = now_ms;
        }
    }

    /// Puts `version` at `path`, in the place of an older one, and drops others while the bounds are passed.
    pub fn insert(&mut self, path: &[u8], version: Rc<Version>, now_ms: u64) {
        self.remove(path);
        self.bytes += version.memory_bytes() + path.len();
        self.descriptors += usize::from(version.holds_descriptor());
        self.index.insert(path.into(), self.entries.len());
        self.entries.push(Entry { path: path.into(), version, checked_ms: now_ms, used: false });
        while self.is_over() && self.entries.len() > 1 {
            self.evict();
        }
        if self.is_over() {
            self.remove(path);
        }
    }

    /// Drops the version at `path`.
    pub fn remove(&mut self, path: &[u8]) {
        if let Some(at) = self.index.remove(path) {
            self.take(at);
        }
    }

    /// How many versions there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn is_over(&self) -> bool {
        self.entries.len() > self.limits.entries_max
            || self.bytes > self.limits.bytes_max
            || self.descriptors > self.limits.descriptors_max
    }

    fn evict(&mut self) {
        // Two rounds at the most: after one, every bit is clear. The newest entry, the last, is passed over.
        let newest = self.entries.len() - 1;
        for _ in 0..2 * self.entries.len() {
            let at = self.hand % newest;
            self.hand = (at + 1) % newest;
            if std::mem::take(&mut self.entries[at].used) {
                continue;
            }
            let path = std::mem::take(&mut self.entries[at].path);
            self.index.remove(&path);
            self.entries[at].path = path;
            self.take(at);
            return;
        }
    }

    /// Takes the entry at `at` out; the last one moves into its place.
    fn take(&mut self, at: usize) {
        let entry = self.entries.swap_remove(at);
        self.bytes -= entry.version.memory_bytes() + entry.path.len();
        self.descriptors -= usize::from(entry.version.holds_descriptor());
        if let Some(moved) = self.entries.get(at) {
            self.index.insert(moved.path.clone(), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cache, CacheLimits};
    use crate::root::Root;
    use crate::version::Version;
    use crate::version::tests::temporary_folder;
    use std::fs;
    use std::rc::Rc;

    fn versions(name: &str, sizes: &[usize]) -> Vec<Rc<Version>> {
        let folder = temporary_folder(name);
        let root = Root::open(&folder).unwrap();
        let load = |(index, size): (usize, &usize)| {
            let name = index.to_string();
            fs::write(folder.join(&name), vec![0; *size]).unwrap();
            Rc::new(Version::load(&root, name.as_bytes(), 0).unwrap())
        };
        let versions = sizes.iter().enumerate().map(load).collect();
        fs::remove_dir_all(folder).unwrap();
        versions
    }

    #[test]
    fn bounds_hold_and_what_is_used_stays() {
        let version = versions("cache-entries", &[1]).remove(0);
        let mut cache = Cache::new(CacheLimits { entries_max: 3, ..CacheLimits::DEFAULT });
        for path in [&b"a"[..], b"b", b"c"] {
            cache.insert(path, Rc::clone(&version), 1);
        }
        cache.insert(b"d", Rc::clone(&version), 1);
        assert_eq!(cache.len(), 3);
        for round in 0..20_u32 {
            assert!(cache.get(b"d").is_some(), "round {round}");
            cache.insert(format!("crawl{round}").as_bytes(), Rc::clone(&version), 1);
            assert_eq!(cache.len(), 3);
        }
        cache.remove(b"d");
        cache.remove(b"never");
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn bytes_and_descriptors_are_counted() {
        let versions = versions("cache-bytes", &[1000, 1000, 100_000, 100_000]);
        let one = versions[0].memory_bytes() + 1;
        let limits = CacheLimits { bytes_max: one, descriptors_max: 1, entries_max: 10 };
        let mut cache = Cache::new(limits);
        cache.insert(b"a", Rc::clone(&versions[0]), 1);
        cache.insert(b"b", Rc::clone(&versions[1]), 1);
        assert_eq!((cache.len(), cache.get(b"b").is_some()), (1, true));
        cache.insert(b"b", Rc::clone(&versions[0]), 2);
        assert_eq!(cache.get(b"b").unwrap().1, 2);
        let mut cache = Cache::new(CacheLimits { descriptors_max: 1, ..CacheLimits::DEFAULT });
        cache.insert(b"c", Rc::clone(&versions[2]), 1);
        cache.insert(b"d", Rc::clone(&versions[3]), 1);
        assert_eq!((cache.len(), cache.get(b"c").is_none()), (1, true));
        let mut none = Cache::new(CacheLimits { bytes_max: 10, ..CacheLimits::DEFAULT });
        none.insert(b"a", Rc::clone(&versions[0]), 1);
        assert!(none.is_empty() && none.bytes == 0);
    }
}
