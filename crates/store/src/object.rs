//! Stored objects, and the variants of a key.

use crate::body::StoredBody;
use crate::purge::{Purged, Subject, tag_hash};
use flatout_os::huge::HUGE_PAGE_BYTES;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Metadata of an object, opaque to the store.
pub trait Meta: Send + Sync + Sized + 'static {
    /// Appends the encoded metadata.
    fn encode(&self, into: &mut Vec<u8>);

    /// Decodes the output of `encode`; `None` for anything else, including trailing bytes.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Calls `visit` with each tag by which the object can be purged.
    fn each_tag(&self, visit: &mut dyn FnMut(&[u8]));

    /// Time until which the object may be useful (fresh, usable while stale, or available for validation), in seconds
    /// since 1970. After that, a volume evicts it without a second chance.
    fn useful_until_s(&self) -> u64;

    /// Returns whether it is a part; a variant may have several.
    fn is_part(&self) -> bool {
        false
    }

    /// Bytes of the metadata on the heap.
    fn heap_bytes(&self) -> usize;
}

/// Primary key of objects, with the range that purges by host and prefix compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey {
    bytes: Box<[u8]>,
    locator_start: u32,
    locator_end: u32,
    hash: u64,
}

impl ObjectKey {
    /// Creates a key from `bytes`, of which `locator` is `host[:port]/path[?query]`. `hash` is `Store::hash` of the
    /// bytes.
    ///
    /// If the range is out of bounds, the locator is empty.
    #[must_use]
    pub fn new(bytes: &[u8], locator: std::ops::Range<usize>, hash: u64) -> Self {
        let inside = bytes.get(locator.clone()).is_some() && u32::try_from(locator.end).is_ok();
        let (start, end) = if inside { (locator.start as u32, locator.end as u32) } else { (0, 0) };
        Self { bytes: bytes.into(), locator_start: start, locator_end: end, hash }
    }

    /// The whole key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// `host[:port]/path[?query]`.
    pub fn locator(&self) -> &[u8] {
        &self.bytes[self.locator_start as usize..self.locator_end as usize]
    }

    /// `host[:port]`.
    pub fn host(&self) -> &[u8] {
        let locator = self.locator();
        locator.split(|byte| *byte == b'/').next().unwrap_or(locator)
    }

    /// Range of the locator in the key.
    pub(crate) const fn locator_range(&self) -> (u32, u32) {
        (self.locator_start, self.locator_end)
    }

    /// Hash, valid only in this process.
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

/// Sorted hashes of the tags of `meta`.
pub(crate) fn tags_of(meta: &impl Meta) -> Vec<u64> {
    let mut tags = Vec::new();
    meta.each_tag(&mut |tag| tags.push(tag_hash(tag)));
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// State of an object: replaced.
const REPLACED: u8 = 1;
/// Evicted from memory; a disk may still have it.
const EVICTED: u8 = 2;

/// Maximum counted hits: S3-FIFO needs no more.
const HITS_MAX: u8 = 3;

/// A stored response. Immutable; a freshened response is another object with the same body.
#[derive(Debug)]
pub struct Object<M> {
    key: ObjectKey,
    variant: Box<[u8]>,
    meta: M,
    lines: Arc<[u8]>,
    body: StoredBody,
    generation: u64,
    memory_only: bool,
    is_part: bool,
    tags: Box<[u64]>,
    cost: u64,
    hits: AtomicU8,
    gone: AtomicU8,
    on_disk: AtomicBool,
    joined: AtomicBool,
    pub(crate) eviction: AtomicU8,
    /// Latest purge generation compared, times four, plus the result.
    compared: AtomicU64,
}

impl<M: Meta> Object<M> {
    /// Creates the response to requests for `key` that select `variant` (empty without Vary).
    ///
    /// A body in a file belongs to one key and variant: the file is removed with that entry.
    ///
    /// `lines` are the end-to-end field lines. `generation` is `Store::generation` from **before** the upstream
    /// request, so that a purge in between applies to the object.
    #[must_use]
    pub fn new(key: ObjectKey, variant: &[u8], meta: M, lines: Arc<[u8]>, body: StoredBody, generation: u64) -> Self {
        let tags = tags_of(&meta);
        /// Estimated overhead: entries in the index, a queue and the bucket, with allocator overhead.
        const OVERHEAD_BYTES: usize = 192;
        let own = size_of::<Self>() + OVERHEAD_BYTES + key.bytes.len() + variant.len() + lines.len();
        let own = own + tags.len() * size_of::<u64>() + meta.heap_bytes();
        Self {
            cost: own as u64 + body.memory_bytes(),
            is_part: meta.is_part(),
            key,
            variant: variant.into(),
            meta,
            lines,
            body,
            generation,
            memory_only: false,
            tags: tags.into(),
            hits: AtomicU8::new(0),
            gone: AtomicU8::new(0),
            on_disk: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            eviction: AtomicU8::new(0),
            compared: AtomicU64::new(generation << 2),
        }
    }

    /// The same object, never written to a disk: not worthwhile for short lifetimes.
    #[must_use]
    pub fn memory_only(mut self) -> Self {
        self.memory_only = true;
        self
    }
}

impl<M> Object<M> {
    /// The primary key.
    pub const fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Distinguishes it from other variants of its key.
    pub fn variant(&self) -> &[u8] {
        &self.variant
    }

    /// Metadata.
    pub const fn meta(&self) -> &M {
        &self.meta
    }

    /// The end-to-end field lines.
    pub const fn lines(&self) -> &Arc<[u8]> {
        &self.lines
    }

    /// The content.
    pub const fn body(&self) -> &StoredBody {
        &self.body
    }

    /// Number of purges before the upstream request.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes in memory, including all parts and the store's overhead. Content in a file on a disk does not count,
    /// content in a memory file does.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns whether a disk has it too.
    #[cfg(test)]
    pub(crate) fn is_on_disk(&self) -> bool {
        self.on_disk.load(Ordering::Acquire)
    }

    pub(crate) fn set_on_disk(&self) {
        self.on_disk.store(true, Ordering::Release);
    }

    /// Memory file whose pages should be joined, with its length: it was requested again and is large enough. Returned
    /// once.
    pub fn take_unjoined(&self) -> Option<(Arc<OwnedFd>, u64)> {
        match &self.body {
            StoredBody::File { fd, bytes, place: None } if *bytes >= HUGE_PAGE_BYTES => {
                (!self.joined.swap(true, Ordering::Relaxed)).then(|| (Arc::clone(fd), *bytes))
            }
            _ => None,
        }
    }

    /// Returns whether it is a part.
    pub const fn is_part(&self) -> bool {
        self.is_part
    }

    /// Returns whether it must not be written to disks.
    pub const fn is_memory_only(&self) -> bool {
        self.memory_only
    }

    /// Sorted hashes of its tags.
    pub(crate) fn tags(&self) -> &[u64] {
        &self.tags
    }

    /// Counts a hit for eviction. Writes only up to the maximum, so that workers do not contend for the cache line of
    /// a hot object.
    #[inline]
    pub fn touch(&self) {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits < HITS_MAX {
            self.hits.store(hits + 1, Ordering::Relaxed);
        }
    }

    /// Returns whether memory still holds exactly this object. Workers check cached references before each use: one
    /// atomic load.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.gone.load(Ordering::Acquire) == 0
    }

    /// Data that purges compare.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject::new(&self.key, &self.tags, self.generation)
    }

    /// Result for the purge `generation`; `None`: not compared yet.
    #[inline]
    pub(crate) fn checked_at(&self, generation: u64) -> Option<Purged> {
        let compared = self.compared.load(Ordering::Relaxed);
        (compared >> 2 == generation).then_some(verdict_in(compared))
    }

    /// Returns whether a purge is known to have made it stale.
    pub fn is_soft_purged(&self) -> bool {
        verdict_in(self.compared.load(Ordering::Relaxed)) == Purged::Soft
    }

    /// Records the result for the purge `generation`. Results are never revoked: the log may no longer have the purge.
    pub(crate) fn set_checked(&self, generation: u64, purged: Purged) -> Purged {
        let join = |compared: u64| {
            let verdict = (compared & 3).max(purged as u64);
            Some((compared >> 2).max(generation) << 2 | verdict)
        };
        let before = self.compared.fetch_update(Ordering::Relaxed, Ordering::Relaxed, join).unwrap_or_default();
        verdict_in(before).max(purged)
    }

    pub(crate) fn hits(&self) -> u8 {
        self.hits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_hits(&self, hits: u8) {
        self.hits.store(hits, Ordering::Relaxed);
    }

    pub(crate) fn set_replaced(&self) {
        self.gone.store(REPLACED, Ordering::Release);
    }

    /// Marks the object as evicted: copies of it are no longer current.
    pub fn set_evicted(&self) {
        self.gone.store(EVICTED, Ordering::Release);
    }

    pub(crate) fn set_evicted_unless_replaced(&self) {
        let _ = self.gone.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Purge state encoded in `Object::compared`.
const fn verdict_in(compared: u64) -> Purged {
    match compared & 3 {
        0 => Purged::No,
        1 => Purged::Soft,
        _ => Purged::Hard,
    }
}

/// Snapshot of all variants of one key in memory.
#[derive(Debug)]
pub struct Bucket<M> {
    objects: Box<[Arc<Object<M>>]>,
    partial: AtomicBool,
    gone: AtomicBool,
}

impl<M> Bucket<M> {
    pub(crate) fn new(objects: Vec<Arc<Object<M>>>, partial: bool) -> Self {
        Self { objects: objects.into(), partial: AtomicBool::new(partial), gone: AtomicBool::new(false) }
    }

    /// The variants, newest first. At least one.
    pub fn objects(&self) -> &[Arc<Object<M>>] {
        &self.objects
    }

    /// Returns whether a disk may have further variants, for `Store::find_on_disk`.
    pub fn is_partial(&self) -> bool {
        self.partial.load(Ordering::Acquire)
    }

    /// Returns whether this is still current in the store. One atomic load.
    #[inline]
    pub fn is_current(&self) -> bool {
        !self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn set_whole(&self) {
        self.partial.store(false, Ordering::Release);
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}
