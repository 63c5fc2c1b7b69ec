//! The store: one for the process, a memory tier over disks.
//!
//! Workers look up, insert and fill; the control thread purges and asks for figures. A look-up in memory takes one
//! short lock of a shard and clones one `Arc`; what a worker keeps of it for itself costs two atomic loads a hit
//! (`epoch`, `Bucket::is_current`). Nothing here waits for a disk on the caller's thread but `open`, `purge`, `inspect`
//! and `release_volumes`.
//!
//! Absent by design: what may be stored or served (`flatout_cache` decides), sockets, the clock of answers.

pub mod body;
pub mod object;
pub mod purge;
pub mod stats;

pub use body::{BodyFile, INLINE_BYTES_MAX, NewBody, NotKept, StoredBody};
pub use object::{Bucket, Key, Meta, Object};
pub use purge::{Purge, PurgeCount, Purged};
pub use stats::{StoreStats, VolumeState, VolumeStats};

use std::future::Future;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    _meta: PhantomData<M>,
}

impl<M: Meta> Store<M> {
    /// Opens a store. Volumes that cannot be used are left out, with their state in `stats` and a sentence in the
    /// second part of what is returned; the store works without them.
    ///
    /// Blocks until the volumes' indexes are open. Call it on a thread that is not confined: the volumes' threads
    /// inherit its rights.
    #[must_use]
    pub fn open(_settings: StoreSettings) -> (Arc<Self>, Vec<String>) {
        unimplemented!()
    }

    /// The hash of a key. Seeded by chance for each process, so that nobody can aim at it.
    pub fn hash(&self, _key: &[u8]) -> u64 {
        unimplemented!()
    }

    /// The variants of a key in memory.
    pub fn find(&self, _hash: u64, _key: &[u8]) -> Option<Arc<Bucket<M>>> {
        unimplemented!()
    }

    /// The variants of a key on disks, brought into memory and joined with those that are there. `None`: no disk has
    /// any, for sure. Ask once after a `find` without an answer, or one whose bucket `is_partial` and lacks the variant.
    pub fn find_on_disk(&self, _hash: u64, _key: &[u8]) -> Option<DiskLookup<M>> {
        unimplemented!()
    }

    /// Puts an object in, in place of one with the same key and variant. Of a key with more than `variants_max` variants
    /// the oldest go. The object that the store now holds is returned with the outcome, stored or not, so that the
    /// caller can answer from it.
    pub fn insert(&self, _object: Object<M>, _variants_max: usize) -> (Arc<Object<M>>, Inserted) {
        unimplemented!()
    }

    /// Removes all variants of a key from all tiers. Returns how many memory had.
    pub fn remove(&self, _hash: u64, _key: &[u8]) -> usize {
        unimplemented!()
    }

    /// Removes this very object, if it is still there.
    pub fn remove_object(&self, _object: &Arc<Object<M>>) -> bool {
        unimplemented!()
    }

    /// Remembers that answers for a key cannot be shared.
    pub fn mark(&self, _hash: u64, _marker: Marker) {
        unimplemented!()
    }

    /// Forgets the marker of a key.
    pub fn unmark(&self, _hash: u64) {
        unimplemented!()
    }

    /// The marker of a key that is in force at `now_ms`.
    pub fn marker(&self, _hash: u64, _now_ms: u64) -> Option<Marker> {
        unimplemented!()
    }

    /// A place for content of more than `INLINE_BYTES_MAX` bytes: on a volume that has room, else in a memory file.
    /// `expected` is its length where that is known.
    ///
    /// # Errors
    /// When no tier may hold so much.
    pub fn create_body(&self, _expected: Option<u64>) -> Result<NewBody, NotKept> {
        unimplemented!()
    }

    /// The number of purges so far. To be read before an origin is asked, and given to `Object::new`.
    #[inline]
    pub fn generation(&self) -> u64 {
        unimplemented!()
    }

    /// Changes with every purge, and with nothing else: what a worker has checked since is as it was. One atomic load.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.generation()
    }

    /// What has become of an object since it was fetched. One atomic load and a comparison when nothing was purged
    /// since the last check.
    #[inline]
    pub fn check(&self, _object: &Object<M>) -> Purged {
        unimplemented!()
    }

    /// Purges. In force for every look-up that begins after the return, and over restarts; blocks while indexes are
    /// searched and volumes write it down, so it is not for an event loop. With `dry_run`, only counts.
    pub fn purge(&self, _purge: &Purge, _soft: bool, _dry_run: bool) -> PurgeCount {
        unimplemented!()
    }

    /// What the store tells about itself. Takes short locks; reads no disk.
    pub fn stats(&self) -> StoreStats {
        unimplemented!()
    }

    /// All that is known of a key. Reads disks.
    pub fn inspect(&self, _key: &[u8]) -> Inspection<M> {
        unimplemented!()
    }

    /// Up to `count_max` objects in memory whose locator begins with `prefix`, in no order.
    pub fn list(&self, _prefix: &[u8], _count_max: usize) -> Vec<Arc<Object<M>>> {
        unimplemented!()
    }

    /// Other bounds of memory, after a reload. Volumes stay as they are until a restart.
    pub fn resize(&self, _memory_bytes_max: u64, _hot_objects_max: u64) {
        unimplemented!()
    }

    /// Writes what waits and lets go of the volumes, for a successor. Memory goes on; files that are open stay readable.
    /// Blocks.
    pub fn release_volumes(&self) {
        unimplemented!()
    }
}

/// The variants of a key, on their way from a disk.
#[derive(Debug)]
pub struct DiskLookup<M> {
    _meta: PhantomData<M>,
}

impl<M> Future for DiskLookup<M> {
    type Output = Option<Arc<Bucket<M>>>;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        unimplemented!()
    }
}
