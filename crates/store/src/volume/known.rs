//! Set of the keys on a volume, so that lookups of other keys skip the volume.
//!
//! Each key takes eight bytes plus the overhead of a hash table, which is about 18 MiB for a million keys. A hash
//! collision costs an unnecessary lookup.

use super::record::Primary;
use crate::hold;
use flatout_os::random::Prehashed;
use std::collections::HashSet;
use std::sync::Mutex;

/// Number of shards. A table is locked while it grows, so each should be small.
const PARTS: usize = 256;

/// Set of the short names of keys.
#[derive(Debug)]
pub(super) struct ShortKeys {
    parts: Box<[Mutex<HashSet<u64, Prehashed>>]>,
}

/// Returns the short name of a key: the first eight bytes of its name.
pub(super) fn short(primary: &Primary) -> u64 {
    primary.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl ShortKeys {
    pub(super) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    fn part(&self, primary: &Primary) -> &Mutex<HashSet<u64, Prehashed>> {
        &self.parts[usize::from(primary[8]) % PARTS]
    }

    pub(super) fn has(&self, primary: &Primary) -> bool {
        hold(self.part(primary)).contains(&short(primary))
    }

    pub(super) fn add(&self, primary: &Primary) {
        hold(self.part(primary)).insert(short(primary));
    }

    pub(super) fn remove(&self, primary: &Primary) {
        hold(self.part(primary)).remove(&short(primary));
    }

    pub(super) fn clear(&self) {
        for part in &self.parts {
            *hold(part) = HashSet::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ShortKeys;
    use crate::volume::record::primary_of;

    #[test]
    fn names_come_and_go() {
        let known = ShortKeys::new();
        let names: Vec<_> = (0..10_000_u32).map(|number| primary_of(&number.to_be_bytes())).collect();
        names.iter().step_by(2).for_each(|name| known.add(name));
        names.iter().step_by(4).for_each(|name| known.remove(name));
        for (number, name) in names.iter().enumerate() {
            assert_eq!(known.has(name), number % 4 == 2);
        }
        known.clear();
        assert!(!names.iter().any(|name| known.has(name)));
    }
}
