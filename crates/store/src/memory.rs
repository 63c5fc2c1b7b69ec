//! Memory tier: a sharded index with a single eviction queue.

use crate::eviction::{Bounds, EvictionQueue};
use crate::hold;
use crate::object::{Bucket, Object, ObjectKey};
use crate::released::Released;
use flatout_handler::budget::Budget;
use flatout_os::random::Prehashed;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Number of shards. A lookup locks a shard for tens of nanoseconds, so contention is rare.
const SHARDS: usize = 64;

/// Number of released files checked after an insertion.
const SWEPT_AFTER_INSERT: usize = 16;

/// Number of change counters. More than the number of shards, so that a lookup on disk is rarely restarted by a change
/// to another key.
const CHANGES: usize = 4_096;

type MemoryShard<M> = HashMap<u64, Arc<Bucket<M>>, Prehashed>;

/// The objects in memory, with their eviction queue.
#[derive(Debug)]
pub(crate) struct MemoryTier<M> {
    shards: Box<[Mutex<MemoryShard<M>>]>,
    changes: Box<[AtomicU64]>,
    eviction: Mutex<EvictionQueue<M>>,
    pub(crate) budget: Arc<Budget>,
    /// Removed content that is still being read.
    pub(crate) released: Released,
    /// True if evicted objects may still be on a volume.
    pub(crate) has_disks: AtomicBool,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) inserted: AtomicU64,
}

impl<M> MemoryTier<M> {
    pub(crate) fn new(bounds: Bounds, budget: Arc<Budget>) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            changes: (0..CHANGES).map(|_| AtomicU64::new(0)).collect(),
            eviction: Mutex::new(EvictionQueue::new(bounds, Arc::clone(&budget))),
            released: Released::new(&budget),
            budget,
            has_disks: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
        }
    }

    /// Returns the shard for a hash. Uses the middle bits, since the hash map within a shard uses the low bits and the
    /// highest seven.
    fn shard(&self, hash: u64) -> &Mutex<MemoryShard<M>> {
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    fn change(&self, hash: u64) -> &AtomicU64 {
        &self.changes[(hash >> 20) as usize % CHANGES]
    }

    /// Returns the number of insertions and removals of this key and of keys that share its counter.
    pub(crate) fn changes(&self, hash: u64) -> u64 {
        self.change(hash).load(Ordering::Acquire)
    }

    /// Calls `look` with the eviction queue, which is locked during the call.
    pub(crate) fn account<T>(&self, look: impl FnOnce(&EvictionQueue<M>) -> T) -> T {
        look(&hold(&self.eviction))
    }

    pub(crate) fn find(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        let found = hold(self.shard(hash)).get(&hash).filter(|bucket| is_of(bucket, key)).cloned();
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Finds the variants of a key, like `find`, without counting the lookup.
    pub(crate) fn peek(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        hold(self.shard(hash)).get(&hash).filter(|bucket| is_of(bucket, key)).cloned()
    }

    /// Inserts `object`. Calls `tell_disks`, which returns whether a volume may have other variants, while the key is
    /// locked, so that no lookup can intervene.
    pub(crate) fn insert(&self, object: &Arc<Object<M>>, variants_max: usize, tell_disks: impl FnOnce() -> bool) {
        self.inserted.fetch_add(1, Ordering::Relaxed);
        let hash = object.key().hash();
        let (mut former, mut gone) = (None, Vec::new());
        {
            let mut shard = hold(self.shard(hash));
            let mut objects = vec![Arc::clone(object)];
            let mut variants = usize::from(!object.is_part());
            let mut partial = tell_disks();
            match shard.entry(hash) {
                Entry::Occupied(mut entry) => {
                    let bucket = entry.get();
                    bucket.set_gone();
                    if is_of(bucket, object.key().as_bytes()) {
                        // The first lookup on volumes has determined whether they have more variants.
                        partial = bucket.is_partial();
                        for other in bucket.objects() {
                            if other.variant() == object.variant() {
                                other.set_replaced();
                                former = Some(Arc::clone(other));
                            } else if other.is_part() || variants < variants_max.max(1) {
                                variants += usize::from(!other.is_part());
                                objects.push(Arc::clone(other));
                            } else {
                                other.set_replaced();
                                gone.push(Arc::clone(other));
                            }
                        }
                    } else {
                        // A different key with the same 64-bit hash is evicted: the index has one entry per hash.
                        bucket.objects().iter().for_each(|other| other.set_evicted());
                        gone.extend(bucket.objects().iter().cloned());
                    }
                    entry.insert(Arc::new(Bucket::new(objects, partial)));
                }
                Entry::Vacant(entry) => {
                    entry.insert(Arc::new(Bucket::new(objects, partial)));
                }
            }
            self.change(hash).fetch_add(1, Ordering::AcqRel);
        }
        self.enter(object, former.as_deref(), &gone);
    }

    /// Joins objects from volumes with those in memory. Objects already in memory take precedence. `changes` is the
    /// change counter read before the lookup. `is_whole` is true if no volume has more variants.
    ///
    /// # Errors
    /// Fails if the key has changed since `changes` was read, because the objects may be outdated.
    pub(crate) fn promote(
        &self,
        (hash, key): (u64, &[u8]),
        found: &[Arc<Object<M>>],
        (changes, is_whole): (u64, bool),
    ) -> Result<Option<Arc<Bucket<M>>>, Changed> {
        let (joined, entered) = {
            let mut shard = hold(self.shard(hash));
            if self.changes(hash) != changes {
                return Err(Changed);
            }
            let here = shard.get(&hash).filter(|bucket| is_of(bucket, key)).cloned();
            let mut objects = here.as_ref().map_or_else(Vec::new, |bucket| bucket.objects().to_vec());
            let mut entered = Vec::new();
            for object in found {
                if objects.iter().all(|other| other.variant() != object.variant()) {
                    objects.push(Arc::clone(object));
                    entered.push(Arc::clone(object));
                }
            }
            if objects.is_empty() {
                return Ok(None);
            }
            if entered.is_empty()
                && let Some(bucket) = here
            {
                if is_whole {
                    bucket.set_whole();
                }
                return Ok(Some(bucket));
            }
            let joined = Arc::new(Bucket::new(objects, !is_whole));
            if let Some(old) = shard.insert(hash, Arc::clone(&joined)) {
                old.set_gone();
                if !is_of(&old, key) {
                    old.objects().iter().for_each(|other| other.set_evicted());
                    let mut eviction = hold(&self.eviction);
                    old.objects().iter().for_each(|other| eviction.remove(other));
                }
            }
            (joined, entered)
        };
        for object in &entered {
            self.enter(object, None, &[]);
        }
        Ok(Some(joined))
    }

    /// Adds `object` to the eviction queue, removes `former` and `gone` from it, and removes evicted objects from the
    /// index.
    fn enter(&self, object: &Arc<Object<M>>, former: Option<&Object<M>>, gone: &[Arc<Object<M>>]) {
        let victims = {
            let mut eviction = hold(&self.eviction);
            for other in gone {
                eviction.remove(other);
            }
            let victims = eviction.add(object, former);
            // Do this under the lock, because another thread may afterwards evict the object and count it as released.
            self.released.remove(object.body());
            // If `object` was replaced before it was added, `former` must still be removed.
            if let Some(former) = former {
                eviction.remove(former);
            }
            victims
        };
        let removed = former.into_iter().chain(gone.iter().map(|other| &**other));
        // A validated object shares its body with the new one.
        for other in removed.filter(|other| !other.body().is_same_file(object.body())) {
            self.released.add(other.body());
        }
        for victim in &victims {
            self.evict(victim);
        }
        drop(victims);
        // Most of the evicted files have no readers and are closed by now.
        self.released.sweep(SWEPT_AFTER_INSERT);
    }

    /// Evicts objects if the budget is exceeded.
    pub(crate) fn make_room(&self) {
        if self.budget.is_over() {
            let victims = hold(&self.eviction).make_room();
            for victim in &victims {
                self.evict(victim);
            }
        }
    }

    /// Removes an evicted object from the index.
    fn evict(&self, victim: &Arc<Object<M>>) {
        let mut shard = hold(self.shard(victim.key().hash()));
        victim.set_evicted_unless_replaced();
        take_out(&mut shard, victim, self.has_disks.load(Ordering::Relaxed) && !victim.is_memory_only());
        drop(shard);
        self.released.add(victim.body());
    }

    /// Replaces `old` with `new`, which differs only in the location of its content. Concurrent lookups find one or the
    /// other. Does nothing if `old` is no longer in memory.
    pub(crate) fn swap(&self, old: &Arc<Object<M>>, new: &Arc<Object<M>>) {
        {
            let mut shard = hold(self.shard(old.key().hash()));
            let Some(bucket) = shard.get(&old.key().hash()) else { return };
            if !bucket.objects().iter().any(|other| Arc::ptr_eq(other, old)) {
                return;
            }
            let pick = |other: &Arc<Object<M>>| Arc::clone(if Arc::ptr_eq(other, old) { new } else { other });
            let joined = Bucket::new(bucket.objects().iter().map(pick).collect(), bucket.is_partial());
            bucket.set_gone();
            old.set_replaced();
            shard.insert(old.key().hash(), Arc::new(joined));
        }
        self.enter(new, Some(old), &[]);
    }

    /// Restarts lookups of a key on volumes that are in progress.
    pub(crate) fn change_key(&self, hash: u64) {
        self.change(hash).fetch_add(1, Ordering::AcqRel);
    }

    /// Restarts all lookups on volumes that are in progress.
    pub(crate) fn change_all(&self) {
        for change in &self.changes {
            change.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Removes exactly this object, and not a replacement. Calls `tell_disks` while the key is locked if the object was
    /// in memory. Returns whether it was.
    pub(crate) fn remove_object(&self, object: &Arc<Object<M>>, tell_disks: impl FnOnce()) -> bool {
        let was_here = {
            let hash = object.key().hash();
            let mut shard = hold(self.shard(hash));
            let was_here = take_out(&mut shard, object, false);
            if was_here {
                object.set_replaced();
                tell_disks();
                self.change(hash).fetch_add(1, Ordering::AcqRel);
            }
            was_here
        };
        if was_here {
            hold(&self.eviction).remove(object);
            self.released.add(object.body());
        }
        was_here
    }

    /// Removes all variants of a key, and returns their number. Always calls `tell_disks` while the key is locked.
    pub(crate) fn remove(&self, hash: u64, key: &[u8], tell_disks: impl FnOnce()) -> usize {
        let bucket = {
            let mut shard = hold(self.shard(hash));
            tell_disks();
            self.change(hash).fetch_add(1, Ordering::AcqRel);
            if shard.get(&hash).is_none_or(|bucket| !is_of(bucket, key)) {
                return 0;
            }
            shard.remove(&hash)
        };
        let Some(bucket) = bucket else { return 0 };
        bucket.set_gone();
        let mut eviction = hold(&self.eviction);
        for object in bucket.objects() {
            object.set_replaced();
            eviction.remove(object);
            self.released.add(object.body());
        }
        bucket.objects().len()
    }

    /// Visits all objects, shard by shard. No lock is held during `visit`.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Arc<Object<M>>)) {
        for shard in &self.shards {
            let buckets: Vec<_> = hold(shard).values().cloned().collect();
            buckets.iter().flat_map(|bucket| bucket.objects()).for_each(&mut visit);
        }
    }

    /// Returns up to `count_max` objects whose key `wanted` selects.
    pub(crate) fn pick(&self, wanted: impl Fn(&ObjectKey) -> bool, count_max: usize) -> Vec<Arc<Object<M>>> {
        let mut picked = Vec::new();
        for shard in &self.shards {
            if picked.len() >= count_max {
                break;
            }
            let left = count_max - picked.len();
            let shard = hold(shard);
            let buckets = shard.values().filter(|bucket| bucket.objects().iter().any(|object| wanted(object.key())));
            picked.extend(buckets.flat_map(|bucket| bucket.objects().iter().cloned()).take(left));
        }
        picked
    }

    /// Changes the limits.
    pub(crate) fn set_bounds(&self, change: impl FnOnce(Bounds) -> Bounds) {
        let victims = {
            let mut eviction = hold(&self.eviction);
            let bounds = change(eviction.bounds());
            eviction.set_bounds(bounds)
        };
        for victim in &victims {
            self.evict(victim);
        }
    }
}

/// Error that a key changed while volumes were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changed;

/// Returns whether a bucket belongs to `key`, and not to a different key with the same hash.
fn is_of<M>(bucket: &Bucket<M>, key: &[u8]) -> bool {
    bucket.objects().first().is_some_and(|object| object.key().as_bytes() == key)
}

/// Removes exactly this object from its bucket. `partial` is true if a volume may still have it. Returns whether it was
/// in the bucket.
fn take_out<M>(shard: &mut MemoryShard<M>, object: &Arc<Object<M>>, partial: bool) -> bool {
    let hash = object.key().hash();
    let Some(bucket) = shard.get(&hash) else { return false };
    if !bucket.objects().iter().any(|other| Arc::ptr_eq(other, object)) {
        return false;
    }
    bucket.set_gone();
    let rest: Vec<_> = bucket.objects().iter().filter(|other| !Arc::ptr_eq(other, object)).cloned().collect();
    let partial = partial || bucket.is_partial();
    if rest.is_empty() {
        shard.remove(&hash);
    } else {
        shard.insert(hash, Arc::new(Bucket::new(rest, partial)));
    }
    true
}
