//! Cache store: a memory tier backed by disk volumes.
//!
//! Workers look up and insert objects; the control thread purges and reads statistics. A lookup in memory briefly locks
//! a shard and clones an `Arc`. A per-worker copy costs two atomic loads per hit (`Store::epoch` and
//! `Object::is_current`). Only `open`, `purge`, `inspect` and `release_volumes` wait for a disk on the caller's thread.
//!
//! By design, this crate contains no rules for storing and serving responses (see `flatout_cache`) and no sockets.

pub mod body;
mod configured;
mod eviction;
mod folder;
mod hang;
pub mod key;
mod lookup;
mod marker;
mod memory;
pub mod notice;
pub mod object;
mod private;
mod proof;
pub mod purge;
mod released;
mod seal;
pub mod stats;
mod volume;

pub use body::{BodyFile, INLINE_BYTES_MAX, NewBody, NotKept, StoredBody};
pub use hang::HangNote;
pub use lookup::DiskLookup;
pub use object::{Bucket, Meta, Object, ObjectKey};
pub use private::create_private_folder;
pub use purge::{Purge, PurgeCount, Purged};
pub use stats::{StoreStats, VolumeState, VolumeStats};
#[cfg(feature = "fuzzing")]
pub use volume::fuzzing;

use configured::{ConfiguredVolume, wait_for_locked};
use eviction::Bounds;
use flatout_handler::budget::{Budget, BudgetUser};
use marker::Markers;
use memory::MemoryTier;
use notice::{Notices, OnNotice, VolumeEvent};
use purge::{ENTRIES_MAX, LastPurges, PurgeTarget, Realms, Subject};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use volume::record::{Primary, id_of, primary_of};
use volume::{StoreShared, Volume};

/// Locks a mutex, ignoring poisoning: no lock in this crate is held across a call that could panic in the middle of an
/// update.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resource limits and volumes of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Maximum size in bytes of all content in memory, including memory files: stored content, and content in transit,
    /// which may use up to half. Each volume needs an additional 16 MiB for index pages and about 18 bytes per key.
    pub memory_bytes_max: u64,
    /// Maximum number of objects in memory.
    pub memory_objects_max: u64,
    /// Maximum number of file descriptors held by objects in memory. In addition, each arriving body needs one
    /// descriptor, and each volume about 40.
    pub descriptors_max: u64,
    /// Folders of the volumes, which are created if missing, and the maximum size of each in bytes.
    pub disks: Vec<(PathBuf, u64)>,
}

/// Result of inserting an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The object is stored.
    Stored,
    /// The object is not stored, because it matches a purge made after its upstream request.
    Purged,
    /// The object is not stored, because it is too large for the memory limit.
    TooLarge,
}

/// Hit-for-miss marker: responses for a key cannot be shared, so requests do not wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Reason, as a number defined by the caller.
    pub reason: u16,
    /// Expiry, in milliseconds of the caller's clock.
    pub until_ms: u64,
}

/// All stored objects of a key with their locations, for `explain`.
#[derive(Debug)]
pub struct Inspection<M> {
    /// Objects in memory.
    pub memory: Option<Arc<Bucket<M>>>,
    /// Objects on volumes, each with the volume's folder. They are not promoted to memory.
    pub disk: Vec<(PathBuf, Arc<Object<M>>)>,
    /// The hit-for-miss marker, even if it has expired.
    pub marker: Option<Marker>,
}

/// Cached responses in memory and on volumes, shared by all workers.
#[derive(Debug)]
pub struct Store<M: Meta> {
    shared: Arc<StoreShared<M>>,
    markers: Markers,
    /// Markers of keys whose whole response must not be fetched on behalf of a range request.
    range_markers: Markers,
    slots: Vec<ConfiguredVolume<M>>,
    is_released: AtomicBool,
    /// Serializes purges, so that the logs on volumes are written in the order of generations.
    purging: Mutex<()>,
}

impl<M: Meta> Store<M> {
    /// Opens a store. Unusable volumes are omitted: the second return value contains a sentence for each, and `stats`
    /// their state. A volume that is locked by another process is attached when it becomes available.
    ///
    /// Blocks until the indexes of the volumes are open. Must be called on a thread that is not sandboxed, because the
    /// volumes' threads inherit its restrictions.
    ///
    /// `budget` is shared between objects and all other content. Its limit is set to that of `settings`.
    #[must_use]
    pub fn open(settings: StoreSettings, budget: Arc<Budget>) -> (Arc<Self>, Vec<String>) {
        budget.set_bytes_max(settings.memory_bytes_max);
        let bounds = Bounds {
            bytes_max: settings.memory_bytes_max,
            objects_max: settings.memory_objects_max,
            descriptors_max: settings.descriptors_max,
        };
        let shared = StoreShared {
            seed: flatout_os::random::QualityHashState::default(),
            memory: Arc::new(MemoryTier::new(bounds, budget)),
            log: Arc::default(),
            notices: Notices::default(),
            sequence: AtomicU64::new(1),
            disk_hits: AtomicU64::new(0),
            disk_misses: AtomicU64::new(0),
        };
        shared.memory.has_disks.store(!settings.disks.is_empty(), Ordering::Relaxed);
        let store = Arc::new(Self {
            shared: Arc::new(shared),
            markers: Markers::new(),
            range_markers: Markers::new(),
            slots: settings.disks.into_iter().map(ConfiguredVolume::new).collect(),
            is_released: AtomicBool::new(false),
            purging: Mutex::default(),
        });
        let mut warnings: Vec<_> = store.slots.iter().filter_map(|slot| store.attach(slot).err()).collect();
        if store.slots.iter().any(ConfiguredVolume::is_locked) {
            let waiting = Arc::downgrade(&store);
            let thread = std::thread::Builder::new().name("store-wait".to_owned());
            if let Err(error) = thread.spawn(move || wait_for_locked(&waiting)) {
                warnings.push(format!("cannot wait for locked volumes: {error}"));
            }
        }
        (store, warnings)
    }

    /// Returns the volumes in use.
    fn volumes(&self) -> impl Iterator<Item = &Arc<Volume<M>>> {
        self.slots.iter().filter_map(|slot| slot.volume.get()).filter(|volume| volume.is_usable())
    }

    /// Selects the volume for a new object: the volume that already has its key, otherwise one selected by hash, in
    /// proportion to the volumes' sizes.
    fn choose(&self, primary: &Primary) -> Option<&Arc<Volume<M>>> {
        if let Some(volume) = self.volumes().find(|volume| volume.has(primary)) {
            return Some(volume);
        }
        let all: u128 = self.volumes().map(|volume| u128::from(volume.folder.bytes_max)).sum();
        let place = u128::from(u32::from_be_bytes([primary[8], primary[9], primary[10], primary[11]]));
        let mut place = (place * all) >> 32;
        self.volumes().find(|volume| {
            let room = u128::from(volume.folder.bytes_max);
            let is_it = place < room;
            place = place.saturating_sub(room);
            is_it
        })
    }

    /// Queues the changes for a new object on the volumes: writes it to the selected volume if `is_kept` is true, and
    /// removes its predecessor from the others. Returns whether any volume may have other variants of its key.
    fn tell_disks(&self, object: &Arc<Object<M>>, primary: &Primary, is_kept: bool) -> bool {
        let id = id_of(primary, object.variant());
        let may_have: Vec<_> = self.volumes().filter(|volume| volume.may_have(primary)).collect();
        let target = match object.body().place() {
            Some(place) => self.volumes().find(|volume| Arc::ptr_eq(&volume.folder, place.folder())),
            None => self.choose(primary),
        };
        let target = target.filter(|_| is_kept && !object.is_memory_only());
        for volume in &may_have {
            if target.is_none_or(|target| !Arc::ptr_eq(target, volume)) {
                volume.remove(id);
            }
        }
        if let Some(volume) = target {
            volume.write(id, object);
        }
        !may_have.is_empty()
    }

    /// Returns the memory budget shared by objects and all other content in the process.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared.memory.budget
    }

    /// Evicts objects if arriving content needs memory, and stops counting removed content that has been closed.
    pub fn make_room(&self) {
        /// Maximum number of entries checked, since the check holds a lock.
        const SWEEP_COUNT: usize = 256;
        self.shared.memory.released.sweep(SWEEP_COUNT);
        self.shared.memory.make_room();
    }

    /// Returns the hash of a key, which uses a random seed per process to prevent hash flooding.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.shared.hash(key)
    }

    /// Finds the variants of a key in memory. Does not count a hit for eviction: call `Object::touch` on the object
    /// that is served. Objects may have been purged: call `check` before use.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.shared.memory.find(hash, key)
    }

    /// Finds the variants of a key in memory, without counting the lookup in statistics.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.shared.memory.peek(hash, key)
    }

    /// Finds the variants of a key on volumes, promotes them to memory and joins them with those in memory. Returns
    /// `None` if no volume has the key. Call this once after `find` has returned nothing, or a bucket that `is_partial`
    /// and lacks the variant.
    pub fn find_on_disk(&self, hash: u64, key: &[u8]) -> Option<DiskLookup<M>> {
        self.volumes().next()?;
        let primary = primary_of(key);
        let volumes: Vec<_> = self.volumes().filter(|volume| volume.may_have(&primary)).cloned().collect();
        (!volumes.is_empty()).then(|| DiskLookup::new(Arc::clone(&self.shared), volumes, hash, key))
    }

    /// Returns whether [`find_on_disk`](Self::find_on_disk) would have to read from a volume.
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        if self.volumes().next().is_none() {
            return false;
        }
        let primary = primary_of(key);
        self.volumes().any(|volume| volume.may_have(&primary))
    }

    /// Inserts an object, replacing any object with the same key and variant. If the key has more than `variants_max`
    /// variants, the oldest are removed; parts are not counted, because the caller limits them. Returns the object even
    /// if it is not stored, so that the caller can serve it.
    ///
    /// The object may already have been evicted when this returns.
    pub fn insert(&self, object: Object<M>, variants_max: usize) -> (Arc<Object<M>>, Inserted) {
        let object = Arc::new(object);
        if !self.shared.log.remembers(object.generation()) || self.check(&object) == Purged::Hard {
            return (object, Inserted::Purged);
        }
        let primary = self.primary_of(object.key().as_bytes());
        if object.cost() > self.shared.memory.account(|eviction| eviction.bounds().bytes_max) / 2 {
            self.remove_like(&object, primary.as_ref());
            self.shared.memory.released.add(object.body());
            return (object, Inserted::TooLarge);
        }
        self.shared.memory.insert(&object, variants_max, || {
            primary.as_ref().is_some_and(|primary| self.tell_disks(&object, primary, true))
        });
        // A concurrent purge may have searched memory before the object was inserted.
        if self.check(&object) == Purged::Hard {
            self.remove_object(&object);
            return (object, Inserted::Purged);
        }
        (object, Inserted::Stored)
    }

    /// Evicts the object with this locator from memory, as if memory were short.
    #[cfg(test)]
    fn remove_from_memory(&self, locator: &str) {
        for object in self.list(locator.as_bytes(), usize::MAX) {
            self.shared.memory.remove_object(&object, || ());
        }
    }

    /// Returns the name of a key on volumes, or `None` if no volume is in use.
    fn primary_of(&self, key: &[u8]) -> Option<Primary> {
        self.volumes().next().map(|_| primary_of(key))
    }

    /// Removes the objects that `object`, which cannot be stored, would have replaced.
    fn remove_like(&self, object: &Arc<Object<M>>, primary: Option<&Primary>) {
        let bucket = self.shared.memory.peek(object.key().hash(), object.key().as_bytes());
        let former = bucket.iter().flat_map(|bucket| bucket.objects());
        for other in former.filter(|other| other.variant() == object.variant()) {
            self.remove_object(other);
        }
        if let Some(primary) = primary {
            self.tell_disks(object, primary, false);
        }
    }

    /// Removes all variants of a key from all tiers. Returns the number of objects removed from memory.
    ///
    /// This does not affect fetches in progress. The caller must also prevent their responses from being stored.
    pub fn remove(&self, hash: u64, key: &[u8]) -> usize {
        let primary = self.primary_of(key);
        self.shared.memory.remove(hash, key, || {
            let Some(primary) = primary else { return };
            self.volumes().filter(|volume| volume.may_have(&primary)).for_each(|volume| volume.remove_key(primary));
        })
    }

    /// Removes exactly this object, and not a replacement. Returns whether it was still in memory.
    pub fn remove_object(&self, object: &Arc<Object<M>>) -> bool {
        let primary = self.primary_of(object.key().as_bytes());
        self.shared.memory.remove_object(object, || {
            let Some(primary) = primary else { return };
            let id = id_of(&primary, object.variant());
            self.volumes().filter(|volume| volume.may_have(&primary)).for_each(|volume| volume.remove(id));
        })
    }

    /// Sets the hit-for-miss marker of a key.
    pub fn mark(&self, hash: u64, marker: Marker) {
        self.markers.set(hash, marker);
    }

    /// Removes the hit-for-miss marker of a key.
    pub fn unmark(&self, hash: u64) {
        self.markers.remove(hash);
    }

    /// Returns the hit-for-miss marker of a key, if it is valid at `now_ms`.
    pub fn marker(&self, hash: u64, now_ms: u64) -> Option<Marker> {
        self.markers.get(hash).filter(|marker| now_ms < marker.until_ms)
    }

    /// Marks a key whose whole response must not be fetched on behalf of a range request.
    pub fn mark_ranges(&self, hash: u64, marker: Marker) {
        self.range_markers.set(hash, marker);
    }

    /// Returns whether the mark set by [`mark_ranges`](Self::mark_ranges) is valid at `now_ms`.
    pub fn forwards_ranges(&self, hash: u64, now_ms: u64) -> bool {
        self.range_markers.get(hash).is_some_and(|marker| now_ms < marker.until_ms)
    }

    /// Creates a file for content larger than `INLINE_BYTES_MAX`, on a volume with free space or otherwise in memory.
    /// `expected` is the length of the content in bytes, if known.
    ///
    /// # Errors
    /// Fails if no tier has room for the content.
    pub fn create_body(&self, expected: Option<u64>) -> Result<NewBody, NotKept> {
        let mut body = self.create_body_for(expected.unwrap_or(INLINE_BYTES_MAX as u64))?;
        if expected.is_none() {
            body.limit_memory();
        }
        Ok(body)
    }

    fn create_body_for(&self, expected: u64) -> Result<NewBody, NotKept> {
        let room = |volume: &&Arc<Volume<M>>| volume.folder.room_for(expected);
        let mut volumes: Vec<_> = self.volumes().filter(|volume| room(volume).is_some()).collect();
        volumes.sort_by_key(|volume| std::cmp::Reverse(room(volume)));
        if let Some(spare) = volumes.iter().find_map(|volume| volume.folder.take_spare()) {
            return Ok(NewBody::on_volume(spare, self.budget()));
        }
        if self.has_memory(expected) { NewBody::in_memory(self.budget()) } else { Err(NotKept::NoRoom) }
    }

    /// Drops content that will not be stored. A memory file counts against the budget until its last reader closes it.
    pub fn release(&self, body: NewBody) {
        if let Some((fd, held)) = body.into_shared_memory_file() {
            self.shared.memory.released.add_held(&fd, held);
        }
    }

    /// Returns whether a volume or the memory has room for content of this many bytes now, after eviction. Another fetch
    /// may still use it up.
    pub fn has_body_room(&self, bytes: u64) -> bool {
        self.volumes().any(|volume| volume.folder.room_for(bytes).is_some()) || self.has_memory(bytes)
    }

    fn has_memory(&self, bytes: u64) -> bool {
        self.budget().has_room(bytes) || {
            self.make_room();
            self.budget().has_room(bytes)
        }
    }

    /// Returns whether any tier could hold content of this many bytes after evicting everything else.
    pub fn may_hold(&self, bytes: u64) -> bool {
        bytes <= self.budget().bytes_max() / 2 || self.volumes().any(|volume| bytes <= volume.folder.body_bytes_max())
    }

    /// Returns the number of purges so far. Read it before an upstream request, and pass it to `Object::new`.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.shared.log.generation()
    }

    /// Returns a number that changes only with a purge, so that a worker's checks stay valid until it changes. Costs
    /// one atomic load.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.shared.log.generation()
    }

    /// Returns whether an object has been purged since its fetch. Costs two atomic loads and a comparison if nothing
    /// was purged since the last check.
    #[inline]
    pub fn check(&self, object: &Object<M>) -> Purged {
        object.checked_at(self.shared.log.generation()).unwrap_or_else(|| self.compare(object))
    }

    /// Returns whether a response that is still arriving has been purged. `generation` must have been read before its
    /// upstream request.
    pub fn check_coming(&self, key: &ObjectKey, meta: &M, generation: u64) -> Purged {
        let log = &self.shared.log;
        if generation == log.generation() {
            return Purged::No;
        }
        if !log.remembers(generation) {
            return Purged::Hard;
        }
        log.verdict(&Subject::new(key, &object::tags_of(meta), generation)).0
    }

    #[cold]
    fn compare(&self, object: &Object<M>) -> Purged {
        let (purged, generation) = self.shared.log.verdict(&object.subject());
        object.set_checked(generation, purged)
    }

    /// Purges matching objects. Takes effect for every lookup that begins after this returns, and persists across
    /// restarts. Blocks while indexes are searched and volumes write, so it must not be called on an event loop. If
    /// `dry_run` is true, only counts the objects.
    pub fn purge(&self, purge: &Purge, soft: bool, dry_run: bool) -> PurgeCount {
        let _one = hold(&self.purging);
        let target = PurgeTarget::of(purge);
        let mut named = Vec::new();
        let mut look = |object: &Arc<Object<M>>| {
            if target.names(&object.subject()) && self.check(object) != Purged::Hard {
                named.push(Arc::clone(object));
            }
        };
        if let Purge::Key(key) = purge {
            let bucket = self.shared.memory.peek(self.hash(key), key);
            bucket.iter().flat_map(|bucket| bucket.objects()).for_each(look);
        } else {
            self.shared.memory.each(&mut look);
        }
        let mut realms = Realms::default();
        let on_disks: Vec<_> = self.volumes().map(|volume| (volume, volume.names_of(&target, &mut realms))).collect();
        let in_memory: Vec<usize> = named.iter().map(|object| realms.number_of(object.key().as_bytes())).collect();
        let realms = if on_disks.is_empty() {
            realms.count(in_memory.into_iter())
        } else {
            // An object that is both in memory and on a volume is counted once.
            let id = |object: &Object<M>| id_of(&primary_of(object.key().as_bytes()), object.variant());
            let in_memory = named.iter().map(|object| id(object)).zip(in_memory);
            let on_disk = on_disks.iter().flat_map(|(_, names)| names.iter().flat_map(|(ids, _)| ids.iter().copied()));
            realms.count(in_memory.chain(on_disk).collect::<HashMap<_, _>>().into_values())
        };
        let matched = realms.iter().map(|(_, count)| count).sum();
        let mut count = PurgeCount { matched, realms, volumes_dropped: 0 };
        if dry_run {
            return count;
        }
        let generation = self.shared.log.add(target.clone(), soft);
        for (volume, names) in on_disks {
            let dropped = names.filter(|_| !soft).map_or_else(Vec::new, |(_, sequences)| sequences);
            let purge = vec![(target.clone(), LastPurges::at(generation, soft))];
            if !volume.put_purges(purge, generation, dropped) {
                count.volumes_dropped += 1;
            }
        }
        match purge {
            Purge::Key(key) => self.markers.remove(self.hash(key)),
            // It is unknown which markers match, but markers are cheap to recreate.
            _ => self.markers.clear(),
        }
        // The purge is effective now. What follows only frees space.
        if !soft {
            for object in &named {
                self.shared.memory.remove_object(object, || ());
            }
        }
        if self.shared.log.len() > ENTRIES_MAX {
            self.forget_purges();
        }
        count
    }

    /// Removes all purged objects from the store, so that the purge log can be cleared.
    fn forget_purges(&self) {
        let generation = self.shared.log.generation();
        self.shared.log.begin_to_forget(generation);
        let mut purged = Vec::new();
        // Check each object, which thereby records whether a soft purge has made it stale.
        self.shared.memory.each(|object| {
            if self.check(object) == Purged::Hard {
                purged.push(Arc::clone(object));
            }
        });
        for object in &purged {
            self.shared.memory.remove_object(object, || ());
        }
        // If a volume does not succeed, it is taken out of use, so its content does not matter.
        for volume in self.volumes() {
            volume.forget_purges(generation);
        }
        self.shared.log.forget(generation);
        self.shared.memory.change_all();
    }

    /// Returns statistics. Takes short locks, and does not read from disk.
    pub fn stats(&self) -> StoreStats {
        let mut stats = self.shared.memory.account(|eviction| StoreStats {
            memory_objects: eviction.objects(),
            memory_bytes: eviction.bytes(),
            memory_bytes_max: eviction.bounds().bytes_max,
            descriptors: eviction.descriptors(),
            evicted: eviction.evicted(),
            ..StoreStats::default()
        });
        self.shared.memory.released.sweep(usize::MAX);
        stats.held = BudgetUser::ALL.iter().map(|share| (*share, self.budget().held(*share))).collect();
        stats.inserted = self.shared.memory.inserted.load(Ordering::Relaxed);
        stats.memory_hits = self.shared.memory.hits.load(Ordering::Relaxed);
        stats.memory_misses = self.shared.memory.misses.load(Ordering::Relaxed);
        stats.disk_hits = self.shared.disk_hits.load(Ordering::Relaxed);
        stats.disk_misses = self.shared.disk_misses.load(Ordering::Relaxed);
        stats.volumes = self.slots.iter().map(ConfiguredVolume::stats).collect();
        stats.markers = self.markers.len();
        stats.generation = self.shared.log.generation();
        stats.purges_remembered = self.shared.log.len() as u64;
        stats
    }

    /// Returns the number of volume events of each kind since the start.
    pub fn volume_events(&self) -> Vec<(VolumeEvent, u64)> {
        self.shared.notices.counts()
    }

    /// Sets a listener that receives a log line for each volume event, beginning with buffered lines of earlier events.
    pub fn on_notice(&self, listener: OnNotice) {
        self.shared.notices.listen(listener);
    }

    /// Returns all stored objects of a key with their locations. Reads from disk.
    pub fn inspect(&self, key: &[u8]) -> Inspection<M> {
        let hash = self.hash(key);
        let of = |volume: &Arc<Volume<M>>| {
            let found = volume.inspect(hash, key).into_iter();
            let path = volume.folder.path.clone();
            found.map(move |(_, object)| (path.clone(), object)).collect::<Vec<_>>()
        };
        let disk = self.volumes().flat_map(of).collect();
        Inspection { memory: self.shared.memory.peek(hash, key), disk, marker: self.markers.get(hash) }
    }

    /// Returns up to `count_max` objects in memory whose locator begins with `prefix`, in no particular order.
    pub fn list(&self, prefix: &[u8], count_max: usize) -> Vec<Arc<Object<M>>> {
        self.shared.memory.pick(|key| key.locator().starts_with(prefix), count_max)
    }

    /// Changes the memory limits after a reload of the configuration. Changes to volumes require a restart.
    pub fn resize(&self, memory_bytes_max: u64, memory_objects_max: u64) {
        self.shared.memory.set_bounds(|bounds| Bounds {
            bytes_max: memory_bytes_max,
            objects_max: memory_objects_max,
            ..bounds
        });
    }

    /// Writes queued objects, then releases the volumes for a successor process. The memory tier stays in use, and open
    /// files stay readable. Blocks.
    pub fn release_volumes(&self) {
        let _one = hold(&self.purging);
        self.is_released.store(true, Ordering::Relaxed);
        for volume in self.slots.iter().filter_map(|slot| slot.volume.get()) {
            volume.release();
        }
        self.slots.iter().filter(|slot| slot.is_locked()).for_each(ConfiguredVolume::give_up);
    }
}

impl<M: Meta> Drop for Store<M> {
    fn drop(&mut self) {
        self.release_volumes();
    }
}

#[cfg(test)]
mod tests;
