//! The store: one for the process, a memory tier over disks.
//!
//! Workers look up, insert and fill; the control thread purges and asks for figures. A look-up in memory takes one
//! short lock of a shard and clones one `Arc`; what a worker keeps of it for itself costs two atomic loads a hit
//! (`epoch`, `Bucket::is_current`). Nothing here waits for a disk on the caller's thread but `open`, `purge`, `inspect`
//! and `release_volumes`.
//!
//! Absent by design: what may be stored or served (`flatout_cache` decides), sockets, the clock of answers.

pub mod body;
mod folder;
mod ledger;
mod marker;
mod memory;
pub mod object;
pub mod purge;
pub mod stats;

pub use body::{BodyFile, INLINE_BYTES_MAX, NewBody, NotKept, StoredBody};
pub use object::{Bucket, Key, Meta, Object};
pub use purge::{Purge, PurgeCount, Purged};
pub use stats::{StoreStats, VolumeState, VolumeStats};

use body::Filling;
use ledger::Bounds;
use marker::Markers;
use memory::Memory;
use purge::{ENTRIES_MAX, Log, Subject, Target};
use std::future::Future;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// Locks. What a panicking thread left behind is whole: no lock here is held over a call that may panic half-way.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a store may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Bytes in memory, memory files included.
    pub memory_bytes_max: u64,
    /// Objects in memory.
    pub hot_objects_max: u64,
    /// Descriptors that objects in memory hold.
    pub descriptors_max: u64,
    /// Folders, one for each volume, and the bytes that each may hold. Created where missing.
    pub disks: Vec<(PathBuf, u64)>,
}

/// What became of an object that was to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is stored.
    Stored,
    /// A purge since its request began names it, so it is not.
    Purged,
    /// It is larger than memory may be.
    TooLarge,
}

/// The word on a key that its answers cannot be shared, so that nobody waits for another's fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Why, a number of the caller's own.
    pub reason: u16,
    /// Until when, in the caller's milliseconds.
    pub until_ms: u64,
}

/// Where a key is, for `explain`.
#[derive(Debug)]
pub struct Inspection<M> {
    /// What memory has.
    pub memory: Option<Arc<Bucket<M>>>,
    /// What disks have, with the folder of each. Read for this, not promoted.
    pub disk: Vec<(PathBuf, Object<M>)>,
    /// The marker, expired or not.
    pub marker: Option<Marker>,
}

/// The store.
#[derive(Debug)]
pub struct Store<M> {
    seed: foldhash::quality::RandomState,
    memory: Arc<Memory<M>>,
    markers: Markers,
    log: Arc<Log>,
    filling: Arc<Filling>,
    /// One purge at a time: the log on disks is written in the order of generations.
    purging: Mutex<()>,
}

impl<M: Meta> Store<M> {
    /// Opens a store. Volumes that cannot be used are left out, with their state in `stats` and a sentence in the
    /// second part of what is returned; the store works without them.
    ///
    /// Blocks until the volumes' indexes are open. Call it on a thread that is not confined: the volumes' threads
    /// inherit its rights.
    #[must_use]
    pub fn open(settings: StoreSettings) -> (Arc<Self>, Vec<String>) {
        let bounds = Bounds {
            bytes_max: settings.memory_bytes_max,
            objects_max: settings.hot_objects_max,
            descriptors_max: settings.descriptors_max,
        };
        let store = Self {
            seed: foldhash::quality::RandomState::default(),
            memory: Arc::new(Memory::new(bounds)),
            markers: Markers::new(),
            log: Arc::default(),
            filling: Arc::default(),
            purging: Mutex::default(),
        };
        store.set_filling_max(settings.memory_bytes_max);
        (Arc::new(store), Vec::new())
    }

    /// What arrives may take half of memory: the other half is what it is fetched for.
    fn set_filling_max(&self, memory_bytes_max: u64) {
        self.filling.bytes_max.store(memory_bytes_max / 2, Ordering::Relaxed);
    }

    /// The hash of a key. Seeded by chance for each process, so that nobody can aim at it.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash_one(key)
    }

    /// The variants of a key in memory. Counts no hit on them: whoever serves one calls `Object::touch`.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.memory.find(hash, key)
    }

    /// The variants of a key on disks, brought into memory and joined with those that are there. `None`: no disk has
    /// any, for sure. Ask once after a `find` without an answer, or one whose bucket `is_partial` and lacks the variant.
    pub fn find_on_disk(&self, _hash: u64, _key: &[u8]) -> Option<DiskLookup<M>> {
        None
    }

    /// Puts an object in, in place of one with the same key and variant. Of a key with more than `variants_max` variants
    /// the oldest go. The object is returned with the outcome, stored or not, so that the caller can answer from it.
    ///
    /// An object may have left memory again when this returns, if everything else was worth more.
    pub fn insert(&self, object: Object<M>, variants_max: usize) -> (Arc<Object<M>>, Inserted) {
        let object = Arc::new(object);
        if !self.log.remembers(object.generation()) || self.check(&object) == Purged::Hard {
            return (object, Inserted::Purged);
        }
        if object.cost() > self.memory.account(|ledger| ledger.bounds().bytes_max) / 2 {
            self.remove_object_like(&object);
            return (object, Inserted::TooLarge);
        }
        self.memory.insert(&object, variants_max, || false);
        // A purge that came in between has looked through memory without finding the object.
        if self.check(&object) == Purged::Hard {
            self.remove_object(&object);
            return (object, Inserted::Purged);
        }
        (object, Inserted::Stored)
    }

    /// Removes what an object that cannot be stored would have replaced.
    fn remove_object_like(&self, object: &Object<M>) {
        let bucket = self.memory.peek(object.key().hash(), object.key().as_bytes());
        let former = bucket.iter().flat_map(|bucket| bucket.objects());
        for other in former.filter(|other| other.variant() == object.variant()) {
            self.remove_object(other);
        }
    }

    /// Removes all variants of a key from all tiers. Returns how many memory had.
    ///
    /// A fetch that is under way is not concerned: whoever invalidates forbids it to be stored.
    pub fn remove(&self, hash: u64, key: &[u8]) -> usize {
        self.memory.remove(hash, key, || ())
    }

    /// Removes this very object, if it is still there.
    pub fn remove_object(&self, object: &Arc<Object<M>>) -> bool {
        self.memory.remove_object(object, || ())
    }

    /// Remembers that answers for a key cannot be shared.
    pub fn mark(&self, hash: u64, marker: Marker) {
        self.markers.set(hash, marker);
    }

    /// Forgets the marker of a key.
    pub fn unmark(&self, hash: u64) {
        self.markers.remove(hash);
    }

    /// The marker of a key that is in force at `now_ms`.
    pub fn marker(&self, hash: u64, now_ms: u64) -> Option<Marker> {
        self.markers.get(hash).filter(|marker| now_ms < marker.until_ms)
    }

    /// A place for content of more than `INLINE_BYTES_MAX` bytes: on a volume that has room, else in a memory file.
    /// `expected` is its length where that is known.
    ///
    /// # Errors
    /// When no tier may hold so much.
    pub fn create_body(&self, expected: Option<u64>) -> Result<NewBody, NotKept> {
        let expected = expected.unwrap_or(INLINE_BYTES_MAX as u64);
        if self.filling.has_room(expected) { NewBody::in_memory(&self.filling) } else { Err(NotKept::NoRoom) }
    }

    /// The number of purges so far. To be read before an origin is asked, and given to `Object::new`.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.log.generation()
    }

    /// Changes with every purge, and with nothing else: what a worker has checked since is as it was. One atomic load.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.log.generation()
    }

    /// What has become of an object since it was fetched. Two atomic loads and a comparison when nothing was purged
    /// since the last check.
    #[inline]
    pub fn check(&self, object: &Object<M>) -> Purged {
        object.checked_at(self.log.generation()).unwrap_or_else(|| self.compare(object))
    }

    #[cold]
    fn compare(&self, object: &Object<M>) -> Purged {
        let (purged, generation) = self.log.verdict(&object.subject());
        object.set_checked(generation, purged)
    }

    /// Purges. In force for every look-up that begins after the return, and over restarts; blocks while indexes are
    /// searched and volumes write it down, so it is not for an event loop. With `dry_run`, only counts.
    pub fn purge(&self, purge: &Purge, soft: bool, dry_run: bool) -> PurgeCount {
        let _one = hold(&self.purging);
        let target = Target::of(purge);
        let mut named = Vec::new();
        self.memory.each(|object| {
            if target.names(&object.subject()) && self.check(object) != Purged::Hard {
                named.push(Arc::clone(object));
            }
        });
        let count = PurgeCount { matched: named.len() as u64, volumes_dropped: 0 };
        if dry_run {
            return count;
        }
        self.log.add(target, soft);
        match purge {
            Purge::Key(key) => self.markers.remove(self.hash(key)),
            // Which keys they name is not known any more; they are made again in no time.
            _ => self.markers.clear(),
        }
        // From here on nobody uses them. What follows only gives back their room.
        if !soft {
            for object in &named {
                self.remove_object(object);
            }
        }
        if self.log.len() > ENTRIES_MAX {
            self.forget_purges();
        }
        count
    }

    /// Sweeps the store of all that was purged, so that the log may be forgotten.
    fn forget_purges(&self) {
        let generation = self.log.generation();
        let mut purged = Vec::new();
        // Each object is looked at, so each remembers that it is stale from now on.
        self.memory.each(|object| {
            if self.check(object) == Purged::Hard {
                purged.push(Arc::clone(object));
            }
        });
        for object in &purged {
            self.remove_object(object);
        }
        self.log.forget(generation);
    }

    /// What the store tells about itself. Takes short locks; reads no disk.
    pub fn stats(&self) -> StoreStats {
        let mut stats = self.memory.account(|ledger| StoreStats {
            memory_objects: ledger.objects(),
            memory_bytes: ledger.bytes(),
            memory_bytes_max: ledger.bounds().bytes_max,
            descriptors: ledger.descriptors(),
            evicted: ledger.evicted(),
            ..StoreStats::default()
        });
        stats.filling_bytes = self.filling.bytes();
        stats.inserted = self.memory.inserted.load(Ordering::Relaxed);
        stats.memory_hits = self.memory.hits.load(Ordering::Relaxed);
        stats.memory_misses = self.memory.misses.load(Ordering::Relaxed);
        stats.markers = self.markers.len();
        stats.generation = self.log.generation();
        stats.purges_remembered = self.log.len() as u64;
        stats
    }

    /// All that is known of a key. Reads disks.
    pub fn inspect(&self, key: &[u8]) -> Inspection<M> {
        let hash = self.hash(key);
        Inspection { memory: self.memory.peek(hash, key), disk: Vec::new(), marker: self.markers.get(hash) }
    }

    /// Up to `count_max` objects in memory whose locator begins with `prefix`, in no order.
    pub fn list(&self, prefix: &[u8], count_max: usize) -> Vec<Arc<Object<M>>> {
        self.memory.pick(|key| key.locator().starts_with(prefix), count_max)
    }

    /// Other bounds of memory, after a reload. Volumes stay as they are until a restart.
    pub fn resize(&self, memory_bytes_max: u64, hot_objects_max: u64) {
        self.set_filling_max(memory_bytes_max);
        self.memory.set_bounds(|bounds| Bounds { bytes_max: memory_bytes_max, objects_max: hot_objects_max, ..bounds });
    }

    /// Writes what waits and lets go of the volumes, for a successor. Memory goes on; files that are open stay readable.
    /// Blocks.
    pub fn release_volumes(&self) {}
}

/// The variants of a key, on their way from a disk.
#[derive(Debug)]
pub struct DiskLookup<M> {
    _memory: Arc<Memory<M>>,
}

impl<M> Future for DiskLookup<M> {
    type Output = Option<Arc<Bucket<M>>>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests;
