//! A shard of the store: a table of entries, their eviction order and their expiry order.

use super::{KvCounts, KvValue};
use flatout_os::random::Prehashed;
use std::collections::{BTreeSet, HashMap};

/// Overhead per entry in addition to the key and the value, in bytes: slab, table and both orders. A generous estimate.
pub(super) const ENTRY_BYTES: usize = 160;

/// An index that means "no entry".
const NONE: u32 = u32::MAX;

/// Maximum number of expired entries removed per change, which limits the time that a change takes.
const EXPIRED_MAX: usize = 4;

/// The entries of a shard.
#[derive(Debug)]
pub(super) struct KvShard {
    /// The first entry for each hash of a key. Entries with equal hashes form a chain.
    table: HashMap<u64, u32, Prehashed>,
    entries: Vec<KvEntry>,
    /// Unused indices of `entries`.
    free: Vec<u32>,
    /// Expiry times, each with the index of its entry.
    expiries: BTreeSet<(u64, u32)>,
    /// The newest and the oldest entry, by insertion.
    head: u32,
    tail: u32,
    /// Position of the eviction hand, which moves towards newer entries.
    hand: u32,
    len: usize,
    bytes: usize,
    bytes_max: usize,
    entries_max: usize,
    evicted: u64,
}

#[derive(Debug)]
struct KvEntry {
    hash: u64,
    key: Box<[u8]>,
    value: KvValue,
    expires_ms: u64,
    /// True if the entry was accessed since the hand last passed.
    visited: bool,
    newer: u32,
    older: u32,
    /// The next entry with the same hash.
    chain: u32,
}

impl KvEntry {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.bytes() + ENTRY_BYTES
    }
}

impl KvShard {
    pub(super) fn new(bytes_max: usize, entries_max: usize) -> Self {
        Self {
            table: HashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            expiries: BTreeSet::new(),
            head: NONE,
            tail: NONE,
            hand: NONE,
            len: 0,
            bytes: 0,
            bytes_max,
            // Indices have 32 bits.
            entries_max: entries_max.min(NONE as usize - 1),
            evicted: 0,
        }
    }

    pub(super) fn counts(&self) -> KvCounts {
        KvCounts { entries: self.len, bytes: self.bytes, evicted: self.evicted }
    }

    /// Returns the value of a key, unless it has expired.
    pub(super) fn get(&mut self, hash: u64, key: &[u8], now_ms: u64) -> Option<&KvValue> {
        self.get_mut(hash, key, now_ms).map(|value| &*value)
    }

    /// Like [`Self::get`], but allows replacing the value with one that uses no more memory.
    pub(super) fn get_mut(&mut self, hash: u64, key: &[u8], now_ms: u64) -> Option<&mut KvValue> {
        let place = self.find(hash, key)?;
        let entry = &mut self.entries[place as usize];
        if entry.expires_ms <= now_ms {
            return None;
        }
        entry.visited = true;
        Some(&mut entry.value)
    }

    /// Stores a value. Returns the previous value, so that the caller can free it outside of the lock.
    pub(super) fn set(
        &mut self,
        hash: u64,
        key: &[u8],
        value: KvValue,
        expires_ms: u64,
        now_ms: u64,
    ) -> Option<KvValue> {
        self.clear_expired(now_ms, EXPIRED_MAX);
        let needed = key.len() + value.bytes() + ENTRY_BYTES;
        if let Some(place) = self.find(hash, key) {
            let entry = &mut self.entries[place as usize];
            self.bytes = self.bytes - entry.bytes() + needed;
            let before = (entry.expires_ms, place);
            entry.expires_ms = expires_ms;
            entry.visited = true;
            let old = std::mem::replace(&mut entry.value, value);
            self.expiries.remove(&before);
            self.expire_at(expires_ms, place);
            self.make_room(0, now_ms, place);
            return Some(old);
        }
        self.make_room(needed, now_ms, NONE);
        let entry = KvEntry {
            hash,
            key: key.into(),
            value,
            expires_ms,
            visited: false,
            newer: NONE,
            older: self.head,
            chain: self.table.get(&hash).copied().unwrap_or(NONE),
        };
        let place = if let Some(place) = self.free.pop() {
            self.entries[place as usize] = entry;
            place
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.table.insert(hash, place);
        match self.entries.get_mut(self.head as usize) {
            Some(head) => head.newer = place,
            None => self.tail = place,
        }
        self.head = place;
        self.len += 1;
        self.bytes += needed;
        self.expire_at(expires_ms, place);
        None
    }

    /// Removes the value of a key. Returns it unless it had expired.
    pub(super) fn remove(&mut self, hash: u64, key: &[u8], now_ms: u64) -> Option<KvValue> {
        let place = self.find(hash, key)?;
        let is_alive = self.entries[place as usize].expires_ms > now_ms;
        let value = self.take(place);
        is_alive.then_some(value)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        let mut place = *self.table.get(&hash)?;
        while let Some(entry) = self.entries.get(place as usize) {
            if *entry.key == *key {
                return Some(place);
            }
            place = entry.chain;
        }
        None
    }

    fn expire_at(&mut self, expires_ms: u64, place: u32) {
        if expires_ms != u64::MAX {
            self.expiries.insert((expires_ms, place));
        }
    }

    /// Evicts entries other than `kept` until there is room for `needed` bytes and, if `needed` is not 0, for one more
    /// entry.
    fn make_room(&mut self, needed: usize, now_ms: u64, kept: u32) {
        let entries_max = self.entries_max - usize::from(needed > 0);
        while self.bytes + needed > self.bytes_max || self.len > entries_max {
            if self.clear_expired(now_ms, 1) > 0 {
                continue;
            }
            let Some(place) = self.sieve(kept) else { return };
            self.take(place);
            self.evicted += 1;
        }
    }

    /// Removes up to `count` expired entries. Returns the number of entries removed.
    fn clear_expired(&mut self, now_ms: u64, count: usize) -> usize {
        for done in 0..count {
            match self.expiries.first() {
                Some(&(expires_ms, place)) if expires_ms <= now_ms => drop(self.take(place)),
                _ => return done,
            }
        }
        count
    }

    /// Selects the entry to evict: the first one, from the hand towards newer entries, that was not accessed since the
    /// hand last passed. Takes at most two rounds.
    fn sieve(&mut self, kept: u32) -> Option<u32> {
        for _ in 0..=2 * self.len {
            let place = if self.hand == NONE { self.tail } else { self.hand };
            let entry = self.entries.get_mut(place as usize)?;
            self.hand = entry.newer;
            if place != kept && !std::mem::take(&mut entry.visited) {
                return Some(place);
            }
        }
        None
    }

    /// Removes an entry from all data structures.
    fn take(&mut self, place: u32) -> KvValue {
        let entry = &mut self.entries[place as usize];
        let bytes = entry.bytes();
        let (hash, newer, older, chain) = (entry.hash, entry.newer, entry.older, entry.chain);
        let expiry = (entry.expires_ms, place);
        entry.key = Box::default();
        let value = std::mem::replace(&mut entry.value, KvValue::Boolean(false));
        self.expiries.remove(&expiry);
        if self.table.get(&hash) == Some(&place) {
            if chain == NONE {
                self.table.remove(&hash)
            } else {
                self.table.insert(hash, chain)
            };
        } else {
            let mut before = self.table.get(&hash).copied().unwrap_or(NONE);
            while let Some(other) = self.entries.get_mut(before as usize) {
                if other.chain == place {
                    other.chain = chain;
                    break;
                }
                before = other.chain;
            }
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.head = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.tail = newer,
        }
        if self.hand == place {
            self.hand = newer;
        }
        self.free.push(place);
        self.len -= 1;
        self.bytes -= bytes;
        value
    }
}
