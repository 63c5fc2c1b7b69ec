//! Cache store of the process: a memory tier over disk volumes.
//!
//! Workers look up, insert and fill; the control thread purges and reads statistics. A lookup in memory takes one
//! short lock of a shard and clones one `Arc`. A per-worker copy costs two atomic loads per hit (`epoch`,
//! `Bucket::is_current`). Only `open`, `purge`, `inspect` and `release_volumes` wait for a disk on the caller's
//! thread.
//!
//! Absent by design: rules for storing and serving (see `flatout_cache`), sockets, the wall clock.

pub mod body;
mod configured;
mod eviction;
mod folder;
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
pub use lookup::DiskLookup;
pub use object::{Bucket, Meta, Object, ObjectKey};
pub use purge::{Purge, PurgeCount, Purged};
pub use stats::{StoreStats, VolumeState, VolumeStats};

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

/// Locks a mutex, ignoring poison: no lock here is held over a call that may panic halfway through an update.
pub fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resource limits and volumes of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Maximum bytes of all content in memory, including memory files: stored content, and content in transit, which
    /// may use half of it. Each volume needs an additional 16 MiB for index pages, and about 18 bytes per key.
    pub memory_bytes_max: u64,
    /// Maximum objects in memory.
    pub memory_objects_max: u64,
    /// Maximum descriptors of objects in memory. Arriving content needs one each, and each volume about 40 more.
    pub descriptors_max: u64,
    /// Volume folders, created if missing, with the maximum bytes of each.
    pub disks: Vec<(PathBuf, u64)>,
}

/// Result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is stored.
    Stored,
    /// Not stored: a purge since its request matches it.
    Purged,
    /// Not stored: it exceeds the memory limit.
    TooLarge,
}

/// Marker that responses for a key cannot be shared, so that requests do not wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Reason, a number defined by the caller.
    pub reason: u16,
    /// Expiry, in the caller's milliseconds.
    pub until_ms: u64,
}

/// Locations of a key, for `explain`.
#[derive(Debug)]
pub struct Inspection<M> {
    /// Objects in memory.
    pub memory: Option<Arc<Bucket<M>>>,
    /// Objects on disks, with the folder of each. They are read for this and not promoted.
    pub disk: Vec<(PathBuf, Arc<Object<M>>)>,
    /// The marker, even if expired.
    pub marker: Option<Marker>,
}

/// The store.
#[derive(Debug)]
pub struct Store<M: Meta> {
    shared: Arc<StoreShared<M>>,
    markers: Markers,
    /// Keys whose whole response must not be fetched for a range request.
    range_markers: Markers,
    slots: Vec<ConfiguredVolume<M>>,
    is_released: AtomicBool,
    /// Serializes purges: the logs on disks are written in the order of generations.
    purging: Mutex<()>,
}

impl<M: Meta> Store<M> {
    /// Opens a store. Unusable volumes are left out; their state is in `stats`, and the second return value has a
    /// sentence for each. The store works without them. A volume that another process holds is attached once it is
    /// released.
    ///
    /// Blocks until the indexes of the volumes are open. Call it on an unconfined thread: the volumes' threads inherit
    /// its rights.
    ///
    /// `budget` is shared between objects and all other content; its bound becomes that of `settings`.
    #[must_use]
    pub fn open(settings: StoreSettings, budget: Arc<Budget>) -> (Arc<Self>, Vec<String>) {
        budget.set_bytes_max(settings.memory_bytes_max);
        let bounds = Bounds {
            bytes_max: settings.memory_bytes_max,
            objects_max: settings.memory_objects_max,
            descriptors_max: settings.descriptors_max,
        };
        let shared = StoreShared {
            seed: foldhash::quality::RandomState::default(),
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

    /// The volumes in use.
    fn volumes(&self) -> impl Iterator<Item = &Arc<Volume<M>>> {
        self.slots.iter().filter_map(|slot| slot.volume.get()).filter(|volume| volume.is_usable())
    }

    /// Selects the volume for a new object: the one that has its key, otherwise by hash, in proportion to free space.
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

    /// Notifies the volumes of a new object. Returns whether any may have other variants of its key.
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

    /// Budget shared by objects and all other content of the process.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared.memory.budget
    }

    /// Evicts objects if arriving content needs memory, and checks whether removed content has been closed.
    pub fn make_room(&self) {
        /// The check holds a lock.
        const SWEEP_COUNT: usize = 256;
        self.shared.memory.released.sweep(SWEEP_COUNT);
        self.shared.memory.make_room();
    }

    /// Hash of a key, with a random seed per process against hash flooding.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.shared.hash(key)
    }

    /// Finds the variants of a key in memory. Does not count a hit: call `Object::touch` to serve one. They may have
    /// been purged since: call `check` before use.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.shared.memory.find(hash, key)
    }

    /// The same, without counting it in statistics.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.shared.memory.peek(hash, key)
    }

    /// Finds the variants of a key on disks, promotes them to memory and joins them with those there. `None`: no disk
    /// has any. Call it once after a `find` that returned nothing, or a bucket that `is_partial` and lacks the
    /// variant.
    pub fn find_on_disk(&self, hash: u64, key: &[u8]) -> Option<DiskLookup<M>> {
        self.volumes().next()?;
        let primary = primary_of(key);
        let volumes: Vec<_> = self.volumes().filter(|volume| volume.may_have(&primary)).cloned().collect();
        (!volumes.is_empty()).then(|| DiskLookup::new(Arc::clone(&self.shared), volumes, hash, key))
    }

    /// Returns whether [`find_on_disk`](Self::find_on_disk) would have to read.
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        if self.volumes().next().is_none() {
            return false;
        }
        let primary = primary_of(key);
        self.volumes().any(|volume| volume.may_have(&primary))
    }

    /// Inserts an object and replaces the one with the same key and variant. If the key has more than `variants_max`
    /// variants, the oldest are removed; parts do not count, as the caller bounds them. Returns the object with the
    /// result, stored or not, so that the caller can serve it.
    ///
    /// The object may already be evicted when this returns, if everything else was worth more.
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
        // A concurrent purge has searched memory without finding the object.
        if self.check(&object) == Purged::Hard {
            self.remove_object(&object);
            return (object, Inserted::Purged);
        }
        (object, Inserted::Stored)
    }

    /// Evicts as if memory were short.
    #[cfg(test)]
    fn remove_from_memory(&self, locator: &str) {
        for object in self.list(locator.as_bytes(), usize::MAX) {
            self.shared.memory.remove_object(&object, || ());
        }
    }

    /// Name of a key on disks; `None` if there are none.
    fn primary_of(&self, key: &[u8]) -> Option<Primary> {
        self.volumes().next().map(|_| primary_of(key))
    }

    /// Removes the object that an object that cannot be stored would have replaced.
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

    /// Removes all variants of a key from all tiers. Returns the number in memory.
    ///
    /// This does not affect fetches in progress; the caller must also forbid storing them.
    pub fn remove(&self, hash: u64, key: &[u8]) -> usize {
        let primary = self.primary_of(key);
        self.shared.memory.remove(hash, key, || {
            let Some(primary) = primary else { return };
            self.volumes().filter(|volume| volume.may_have(&primary)).for_each(|volume| volume.remove_key(primary));
        })
    }

    /// Removes exactly this object, if it is still there.
    pub fn remove_object(&self, object: &Arc<Object<M>>) -> bool {
        let primary = self.primary_of(object.key().as_bytes());
        self.shared.memory.remove_object(object, || {
            let Some(primary) = primary else { return };
            let id = id_of(&primary, object.variant());
            self.volumes().filter(|volume| volume.may_have(&primary)).for_each(|volume| volume.remove(id));
        })
    }

    /// Marks a key whose responses cannot be shared.
    pub fn mark(&self, hash: u64, marker: Marker) {
        self.markers.set(hash, marker);
    }

    /// Removes the marker of a key.
    pub fn unmark(&self, hash: u64) {
        self.markers.remove(hash);
    }

    /// Marker of a key that is valid at `now_ms`.
    pub fn marker(&self, hash: u64, now_ms: u64) -> Option<Marker> {
        self.markers.get(hash).filter(|marker| now_ms < marker.until_ms)
    }

    /// Marks a key whose whole response must not be fetched for a range request.
    pub fn mark_ranges(&self, hash: u64, marker: Marker) {
        self.range_markers.set(hash, marker);
    }

    /// Returns whether that mark is valid at `now_ms`.
    pub fn forwards_ranges(&self, hash: u64, now_ms: u64) -> bool {
        self.range_markers.get(hash).is_some_and(|marker| now_ms < marker.until_ms)
    }

    /// Creates a file for content above `INLINE_BYTES_MAX`: on a volume with free space, otherwise in memory.
    /// `expected` is its length if known.
    ///
    /// # Errors
    /// Fails if no tier may hold the content.
    pub fn create_body(&self, expected: Option<u64>) -> Result<NewBody, NotKept> {
        let expected = expected.unwrap_or(INLINE_BYTES_MAX as u64);
        let room = |volume: &&Arc<Volume<M>>| volume.folder.room_for(expected);
        let mut volumes: Vec<_> = self.volumes().filter(|volume| room(volume).is_some()).collect();
        volumes.sort_by_key(|volume| std::cmp::Reverse(room(volume)));
        if let Some(spare) = volumes.iter().find_map(|volume| volume.folder.take_spare()) {
            return Ok(NewBody::on_volume(spare, self.budget()));
        }
        if !self.budget().has_room(expected) {
            self.make_room();
        }
        if self.budget().has_room(expected) { NewBody::in_memory(self.budget()) } else { Err(NotKept::NoRoom) }
    }

    /// Returns whether some tier could hold this many bytes after evicting everything else.
    pub fn may_hold(&self, bytes: u64) -> bool {
        bytes <= self.budget().bytes_max() / 2 || self.volumes().any(|volume| bytes <= volume.folder.body_bytes_max())
    }

    /// Number of purges so far. Read it before an upstream request, and pass it to `Object::new`.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.shared.log.generation()
    }

    /// Changes only with a purge, so that a worker's checks stay valid until then. One atomic load.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.shared.log.generation()
    }

    /// Purge state of an object since its fetch. Two atomic loads and a comparison if nothing was purged since the
    /// last check.
    #[inline]
    pub fn check(&self, object: &Object<M>) -> Purged {
        object.checked_at(self.shared.log.generation()).unwrap_or_else(|| self.compare(object))
    }

    /// The same for a response that is still arriving. `generation` is from before its request.
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

    /// Purges. Applies to every lookup that begins after the return, and across restarts. Blocks while indexes are
    /// searched and volumes write, so it must not run on an event loop. With `dry_run`, only counts.
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
            // An object in memory and on a disk counts once.
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
            // Matching markers are unknown; they are cheap to recreate.
            _ => self.markers.clear(),
        }
        // The purge is now effective. The rest only frees space.
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

    /// Removes all purged objects from the store, so that the log can be cleared.
    fn forget_purges(&self) {
        let generation = self.shared.log.generation();
        self.shared.log.begin_to_forget(generation);
        let mut purged = Vec::new();
        // Checks each object, so that it records that it is stale.
        self.shared.memory.each(|object| {
            if self.check(object) == Purged::Hard {
                purged.push(Arc::clone(object));
            }
        });
        for object in &purged {
            self.shared.memory.remove_object(object, || ());
        }
        // A volume that fails to do so has failed, and its content is not used.
        for volume in self.volumes() {
            volume.forget_purges(generation);
        }
        self.shared.log.forget(generation);
        self.shared.memory.change_all();
    }

    /// Statistics. Takes short locks; reads no disk.
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
        stats.held = BudgetUser::ALL.map(|share| (share, self.budget().held(share)));
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

    /// Number of events of each kind on the volumes since the start.
    pub fn volume_events(&self) -> Vec<(VolumeEvent, u64)> {
        self.shared.notices.counts()
    }

    /// Passes a log line for each volume event to `listener`, starting with earlier ones.
    pub fn on_notice(&self, listener: OnNotice) {
        self.shared.notices.listen(listener);
    }

    /// All locations of a key. Reads disks.
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

    /// Up to `count_max` objects in memory whose locator begins with `prefix`, unordered.
    pub fn list(&self, prefix: &[u8], count_max: usize) -> Vec<Arc<Object<M>>> {
        self.shared.memory.pick(|key| key.locator().starts_with(prefix), count_max)
    }

    /// Changes the memory limits after a reload. Volumes do not change until a restart.
    pub fn resize(&self, memory_bytes_max: u64, memory_objects_max: u64) {
        self.shared.memory.set_bounds(|bounds| Bounds {
            bytes_max: memory_bytes_max,
            objects_max: memory_objects_max,
            ..bounds
        });
    }

    /// Writes queued objects and releases the volumes for a successor process. Memory stays in use; open files stay
    /// readable. Blocks.
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
