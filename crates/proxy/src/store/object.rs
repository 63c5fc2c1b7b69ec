//! What is stored: objects, and all variants of one key together.

use crate::store::body::StoredBody;
use crate::store::purge::{Purged, Subject, tag_hash};
use flatout_net::huge::HUGE_PAGE_BYTES;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What the cache knows of an object, which the store keeps without understanding it.
pub trait Meta: Send + Sync + Sized + 'static {
    /// Appends the metadata as bytes, for a disk.
    fn encode(&self, into: &mut Vec<u8>);

    /// The metadata that `encode` wrote; `None` for anything else. Nothing may be behind it.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Calls `visit` with each tag by which the object may be purged.
    fn each_tag(&self, visit: &mut dyn FnMut(&[u8]));

    /// Until when the object may be of any use (fresh, or stale and still allowed or able to be validated), in seconds
    /// since 1970. What is past that gets no second chance when its turn comes to leave a disk.
    fn useful_until_s(&self) -> u64;

    /// Whether it is of a part, of which a variant may have several.
    fn is_part(&self) -> bool {
        false
    }

    /// Bytes that the metadata holds outside its own size.
    fn heap_bytes(&self) -> usize;
}

/// The primary key of objects, and where in it the part that purges by host and prefix look at stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    bytes: Box<[u8]>,
    locator_start: u32,
    locator_end: u32,
    hash: u64,
}

impl Key {
    /// The key `bytes`, of which `locator` is `host[:port]/path[?query]`. `hash` is `Store::hash` of the bytes.
    ///
    /// A range outside the bytes is an empty locator.
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

    /// Where the locator lies in the key.
    pub(crate) const fn locator_range(&self) -> (u32, u32) {
        (self.locator_start, self.locator_end)
    }

    /// The hash, of this process alone.
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}

/// The hashes of `meta`'s tags, in order.
pub(crate) fn tags_of(meta: &impl Meta) -> Vec<u64> {
    let mut tags = Vec::new();
    meta.each_tag(&mut |tag| tags.push(tag_hash(tag)));
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// Why an object is not what the store holds any more.
const REPLACED: u8 = 1;
/// It left memory only; a disk may still have it.
const EVICTED: u8 = 2;

/// The most that hits count for an object: S3-FIFO asks no more.
const HITS_MAX: u8 = 3;

/// A stored answer. Never changes; a freshened one is another object with the same body.
#[derive(Debug)]
pub struct Object<M> {
    key: Key,
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
    pub(crate) ledger: AtomicU8,
    /// The newest purge that the object was compared with, times four, and what came of it.
    compared: AtomicU64,
}

impl<M: Meta> Object<M> {
    /// An answer to requests for `key` that select `variant` (empty without Vary).
    ///
    /// A body in a file belongs to one key and variant: when that leaves its volume, the file goes.
    ///
    /// `lines` are the end-to-end field lines. `generation` is `Store::generation` from **before** the origin was asked:
    /// a purge that came between finds the object too.
    #[must_use]
    pub fn new(key: Key, variant: &[u8], meta: M, lines: Arc<[u8]>, body: StoredBody, generation: u64) -> Self {
        let tags = tags_of(&meta);
        /// A place in the index, in a queue and in the bucket, with what the allocator adds; estimated.
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
            ledger: AtomicU8::new(0),
            compared: AtomicU64::new(generation << 2),
        }
    }

    /// The same, never to be written to a disk: what lives for seconds is not worth it.
    #[must_use]
    pub fn memory_only(mut self) -> Self {
        self.memory_only = true;
        self
    }
}

impl<M> Object<M> {
    /// The primary key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// What tells it from other variants of its key.
    pub fn variant(&self) -> &[u8] {
        &self.variant
    }

    /// What the cache knows of it.
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

    /// The purges that had been when the origin was asked.
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes that the object takes in memory, all of its parts and the store's own included. Content in a file on a disk
    /// counts nothing, content in a memory file counts.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether a disk has it too.
    #[cfg(test)]
    pub(crate) fn is_on_disk(&self) -> bool {
        self.on_disk.load(Ordering::Acquire)
    }

    pub(crate) fn set_on_disk(&self) {
        self.on_disk.store(true, Ordering::Release);
    }

    /// The memory file whose pages it is time to join, with its length: asked for a first time, and large enough. To
    /// one caller only.
    pub fn take_unjoined(&self) -> Option<(Arc<OwnedFd>, u64)> {
        match &self.body {
            StoredBody::File { fd, bytes, place: None } if *bytes >= HUGE_PAGE_BYTES => {
                (!self.joined.swap(true, Ordering::Relaxed)).then(|| (Arc::clone(fd), *bytes))
            }
            _ => None,
        }
    }

    /// Whether it is one of perhaps several parts of its variant.
    pub const fn is_part(&self) -> bool {
        self.is_part
    }

    /// Whether it stays off disks.
    pub const fn is_memory_only(&self) -> bool {
        self.memory_only
    }

    /// The hashes of its tags, in order.
    pub(crate) fn tags(&self) -> &[u64] {
        &self.tags
    }

    /// Counts a hit, for eviction. Writes only while there is something to learn, so that workers do not fight for the
    /// cache line of a hot object.
    #[inline]
    pub fn touch(&self) {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits < HITS_MAX {
            self.hits.store(hits + 1, Ordering::Relaxed);
        }
    }

    /// Whether memory still holds this very object. A worker that has kept it asks before each use: one atomic load.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.gone.load(Ordering::Acquire) == 0
    }

    /// What purges look at.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject::new(&self.key, &self.tags, self.generation)
    }

    /// What is known of it since the purge `generation`; `None` when that was not looked at yet.
    #[inline]
    pub(crate) fn checked_at(&self, generation: u64) -> Option<Purged> {
        let compared = self.compared.load(Ordering::Relaxed);
        (compared >> 2 == generation).then_some(verdict_in(compared))
    }

    /// Whether a purge has made it stale, as far as it has been compared with purges.
    pub(crate) fn is_soft_purged(&self) -> bool {
        verdict_in(self.compared.load(Ordering::Relaxed)) == Purged::Soft
    }

    /// Remembers what is known of it since the purge `generation`. Nothing is ever taken back: the log may have
    /// forgotten what this object remembers.
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

    pub(crate) fn set_evicted(&self) {
        self.gone.store(EVICTED, Ordering::Release);
    }

    pub(crate) fn set_evicted_unless_replaced(&self) {
        let _ = self.gone.compare_exchange(0, EVICTED, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// What `Object::compared` says.
const fn verdict_in(compared: u64) -> Purged {
    match compared & 3 {
        0 => Purged::No,
        1 => Purged::Soft,
        _ => Purged::Hard,
    }
}

/// All variants of one key that memory holds, as they were at one moment.
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

    /// The variants, the newest first. At least one.
    pub fn objects(&self) -> &[Arc<Object<M>>] {
        &self.objects
    }

    /// Whether a disk may have variants that are not here: `Store::find_on_disk` brings them.
    pub fn is_partial(&self) -> bool {
        self.partial.load(Ordering::Acquire)
    }

    /// Whether this is still what the store answers for the key. One atomic load.
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
