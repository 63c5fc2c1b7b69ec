//! Stored objects, and buckets of the variants of a key.

use crate::body::StoredBody;
use crate::hang::HangNote;
use crate::purge::{Purged, Subject, tag_hash};
use flatout_os::huge::HUGE_PAGE_BYTES;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Metadata of an object, which is opaque to the store.
pub trait Meta: Send + Sync + Sized + 'static {
    /// Appends the encoded metadata to `into`.
    fn encode(&self, into: &mut Vec<u8>);

    /// Decodes the output of `encode`. Returns `None` for any other input, including trailing bytes.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Calls `visit` with each tag under which the object can be purged.
    fn each_tag(&self, visit: &mut dyn FnMut(&[u8]));

    /// Returns the time until which the object may be useful because it is fresh, usable while stale, or can be
    /// validated, in seconds since 1970. After that, a volume evicts it without a second chance.
    fn useful_until_s(&self) -> u64;

    /// Returns whether the object is a part, of which a variant may have several.
    fn is_part(&self) -> bool {
        false
    }

    /// Returns the number of bytes that the metadata uses on the heap.
    fn heap_bytes(&self) -> usize;
}

/// Primary key of an object, with the range that purges by URL, host and prefix compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey {
    bytes: Box<[u8]>,
    locator_start: u32,
    locator_end: u32,
    hash: u64,
}

impl ObjectKey {
    /// Creates a key from `bytes`. `locator` is the range of `host[:port]/path[?query]` in `bytes`, and `hash` is
    /// `Store::hash` of `bytes`.
    ///
    /// If the range is out of bounds, the locator is empty.
    #[must_use]
    pub fn new(bytes: &[u8], locator: std::ops::Range<usize>, hash: u64) -> Self {
        let inside = bytes.get(locator.clone()).is_some() && u32::try_from(locator.end).is_ok();
        let (start, end) = if inside { (locator.start as u32, locator.end as u32) } else { (0, 0) };
        Self { bytes: bytes.into(), locator_start: start, locator_end: end, hash }
    }

    /// Returns the whole key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the locator, `host[:port]/path[?query]`.
    pub fn locator(&self) -> &[u8] {
        &self.bytes[self.locator_start as usize..self.locator_end as usize]
    }

    /// Returns the host, `host[:port]`.
    pub fn host(&self) -> &[u8] {
        let locator = self.locator();
        locator.split(|byte| *byte == b'/').next().unwrap_or(locator)
    }

    /// Returns the range of the locator in the key.
    pub(crate) const fn locator_range(&self) -> (u32, u32) {
        (self.locator_start, self.locator_end)
    }

    /// Returns the hash, which is valid only in this process.
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

/// Returns the sorted hashes of the tags of `meta`.
pub(crate) fn tags_of(meta: &impl Meta) -> Vec<u64> {
    let mut tags = Vec::new();
    meta.each_tag(&mut |tag| tags.push(tag_hash(tag)));
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// Value of `Object::gone`: the object was replaced or removed.
const REPLACED: u8 = 1;
/// Value of `Object::gone`: the object was evicted from memory. A volume may still have it.
const EVICTED: u8 = 2;

/// Maximum number of hits that are counted. S3-FIFO needs no more.
const HITS_MAX: u8 = 3;

/// A stored response. Its content and metadata are immutable: a freshened response is a new object with the same body.
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
    /// The latest purge generation that the object was compared with, times four, plus the result.
    compared: AtomicU64,
    hang: HangNote,
}

impl<M: Meta> Object<M> {
    /// Creates an object for `key` and `variant`, which is empty if the response has no Vary.
    ///
    /// A body in a file must belong to only one key and variant, because the file is removed with that entry.
    ///
    /// `lines` are the end-to-end field lines. `generation` is `Store::generation` from **before** the upstream
    /// request, so that purges made during the request apply to the object.
    #[must_use]
    pub fn new(key: ObjectKey, variant: &[u8], meta: M, lines: Arc<[u8]>, body: StoredBody, generation: u64) -> Self {
        let tags = tags_of(&meta);
        /// Estimated overhead in bytes for entries in the index, a queue and the bucket, and for the allocator.
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
            hang: HangNote::default(),
        }
    }

    /// Returns the same object, marked never to be written to a volume, which is not worthwhile for short lifetimes.
    #[must_use]
    pub fn memory_only(mut self) -> Self {
        self.memory_only = true;
        self
    }
}

impl<M> Object<M> {
    /// Returns the primary key.
    pub const fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the name of the variant, which distinguishes the object from others with the same key.
    pub fn variant(&self) -> &[u8] {
        &self.variant
    }

    /// Returns the metadata.
    pub const fn meta(&self) -> &M {
        &self.meta
    }

    /// Returns the end-to-end field lines.
    pub const fn lines(&self) -> &Arc<[u8]> {
        &self.lines
    }

    /// Returns the content.
    pub const fn body(&self) -> &StoredBody {
        &self.body
    }

    /// Returns the number of purges before the upstream request.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the memory use in bytes, including metadata and the store's overhead. Content in a memory file is
    /// included; content in a file on a volume is not.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns whether a volume has the object too.
    #[cfg(test)]
    pub(crate) fn is_on_disk(&self) -> bool {
        self.on_disk.load(Ordering::Acquire)
    }

    pub(crate) fn set_on_disk(&self) {
        self.on_disk.store(true, Ordering::Release);
    }

    /// Returns the memory file and its length if it is large enough for huge pages. Returns it only once.
    pub fn take_unjoined(&self) -> Option<(Arc<OwnedFd>, u64)> {
        match &self.body {
            StoredBody::File { fd, bytes, place: None } if *bytes >= HUGE_PAGE_BYTES => {
                (!self.joined.swap(true, Ordering::Relaxed)).then(|| (Arc::clone(fd), *bytes))
            }
            _ => None,
        }
    }

    /// Returns the note that attempts to replace or validate the object hang.
    pub const fn hang(&self) -> &HangNote {
        &self.hang
    }

    /// Returns whether the object is a part.
    pub const fn is_part(&self) -> bool {
        self.is_part
    }

    /// Returns whether the object must not be written to a volume.
    pub const fn is_memory_only(&self) -> bool {
        self.memory_only
    }

    /// Returns the sorted hashes of the tags.
    pub(crate) fn tags(&self) -> &[u64] {
        &self.tags
    }

    /// Counts a hit for eviction. Once the maximum is reached, nothing is written, so that workers do not contend for
    /// the cache line of a popular object.
    #[inline]
    pub fn touch(&self) {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits < HITS_MAX {
            self.hits.store(hits + 1, Ordering::Relaxed);
        }
    }

    /// Returns whether this object is still the current one in memory. Workers check this before each use of a cached
    /// reference. Costs one atomic load.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.gone.load(Ordering::Acquire) == 0
    }

    /// Returns whether this object was replaced or removed. An object that was only evicted from memory was not.
    pub fn is_replaced(&self) -> bool {
        self.gone.load(Ordering::Acquire) == REPLACED
    }

    /// Returns the data that purges compare.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject::new(&self.key, &self.tags, self.generation)
    }

    /// Returns the purge state for `generation`, or `None` if the object has not been compared with it yet.
    #[inline]
    pub(crate) fn checked_at(&self, generation: u64) -> Option<Purged> {
        let compared = self.compared.load(Ordering::Relaxed);
        (compared >> 2 == generation).then_some(verdict_in(compared))
    }

    /// Returns whether the last comparison found that a soft purge has made the object stale.
    pub fn is_soft_purged(&self) -> bool {
        verdict_in(self.compared.load(Ordering::Relaxed)) == Purged::Soft
    }

    /// Records the purge state for `generation`, and returns the resulting state. A purge state is never revoked,
    /// because the purge may since have been removed from the log.
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

    /// Marks the object as evicted, so that cached references to it are no longer current.
    pub fn set_evicted(&self) {
        self.gone.store(EVICTED, Ordering::Release);
    }

    pub(crate) fn set_evicted_unless_replaced(&self) {
        let _ = self.gone.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Returns the purge state encoded in `Object::compared`.
const fn verdict_in(compared: u64) -> Purged {
    match compared & 3 {
        0 => Purged::No,
        1 => Purged::Soft,
        _ => Purged::Hard,
    }
}

/// Snapshot of all variants of a key in memory.
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

    /// Returns the variants, newest first. Never empty.
    pub fn objects(&self) -> &[Arc<Object<M>>] {
        &self.objects
    }

    /// Returns whether a volume may have further variants, which `Store::find_on_disk` would find.
    pub fn is_partial(&self) -> bool {
        self.partial.load(Ordering::Acquire)
    }

    /// Returns whether this snapshot is still current. Costs one atomic load.
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
