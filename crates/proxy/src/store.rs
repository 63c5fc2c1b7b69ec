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
mod slot;
pub mod stats;
mod volume;

pub use body::{BodyFile, INLINE_BYTES_MAX, NewBody, NotKept, StoredBody};
pub use lookup::DiskLookup;
pub use object::{Bucket, Key, Meta, Object};
pub use purge::{Purge, PurgeCount, Purged};
pub use stats::{StoreStats, VolumeState, VolumeStats};

use flatout_net::budget::{Budget, Share};
use ledger::Bounds;
use marker::Markers;
use memory::Memory;
use notice::{Notices, OnNotice, VolumeEvent};
use purge::{ENTRIES_MAX, Last, Realms, Subject, Target};
use slot::{Slot, wait_for_locked};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use volume::record::{Primary, id_of, primary_of};
use volume::{Shared, Volume};

/// Locks. What a panicking thread left behind is whole: no lock here is held over a call that may panic half-way.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a store may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Bytes of all content in memory, memory files included: what is stored, and what is on its way, which may take half
    /// of it. Each volume takes 16 MiB besides for pages of its index, and about 18 bytes for each key.
    pub memory_bytes_max: u64,
    /// Objects in memory.
    pub hot_objects_max: u64,
    /// Descriptors that objects in memory hold. Content that is arriving needs one each, and each volume some 40 more.
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
    pub disk: Vec<(PathBuf, Arc<Object<M>>)>,
    /// The marker, expired or not.
    pub marker: Option<Marker>,
}

/// The store.
#[derive(Debug)]
pub struct Store<M: Meta> {
    shared: Arc<Shared<M>>,
    markers: Markers,
    /// Keys whose whole response may not be fetched for a range.
    range_markers: Markers,
    slots: Vec<Slot<M>>,
    is_released: AtomicBool,
    /// One purge at a time: the log on disks is written in the order of generations.
    purging: Mutex<()>,
}

impl<M: Meta> Store<M> {
    /// Opens a store. Volumes that cannot be used are left out, with their state in `stats` and a sentence in the
    /// second part of what is returned; the store works without them. One that another process still has is taken as
    /// soon as that lets go of it.
    ///
    /// Blocks until the volumes' indexes are open. Call it on a thread that is not confined: the volumes' threads
    /// inherit its rights.
    ///
    /// `budget` is what the objects share with all other content; its bound becomes that of the settings.
    #[must_use]
    pub fn open(settings: StoreSettings, budget: Arc<Budget>) -> (Arc<Self>, Vec<String>) {
        budget.set_bytes_max(settings.memory_bytes_max);
        let bounds = Bounds {
            bytes_max: settings.memory_bytes_max,
            objects_max: settings.hot_objects_max,
            descriptors_max: settings.descriptors_max,
        };
        let shared = Shared {
            seed: foldhash::quality::RandomState::default(),
            memory: Arc::new(Memory::new(bounds, budget)),
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
            slots: settings.disks.into_iter().map(Slot::new).collect(),
            is_released: AtomicBool::new(false),
            purging: Mutex::default(),
        });
        let mut warnings: Vec<_> = store.slots.iter().filter_map(|slot| store.attach(slot).err()).collect();
        if store.slots.iter().any(Slot::is_locked) {
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

    /// The volume that a new object goes to: where its key is already, else by its name, in proportion to room.
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

    /// Tells the volumes of a new object. Returns whether any may have other variants of its key.
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

    /// The budget that objects share with all other content of the process.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.shared.memory.budget
    }

    /// Evicts what must make room for content that moves, and looks which of the content that was removed is closed.
    pub fn make_room(&self) {
        /// A lock is held meanwhile.
        const SWEEP_COUNT: usize = 256;
        self.shared.memory.released.sweep(SWEEP_COUNT);
        self.shared.memory.make_room();
    }

    /// The hash of a key. Seeded by chance for each process, so that nobody can aim at it.
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.shared.hash(key)
    }

    /// The variants of a key in memory. Counts no hit on them: whoever serves one calls `Object::touch`. They may have been
    /// purged since: whoever means to use one calls `check`.
    pub fn find(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.shared.memory.find(hash, key)
    }

    /// The same, which no figure counts.
    pub fn peek(&self, hash: u64, key: &[u8]) -> Option<Arc<Bucket<M>>> {
        self.shared.memory.peek(hash, key)
    }

    /// The variants of a key on disks, brought into memory and joined with those that are there. `None`: no disk has
    /// any, for sure. Ask once after a `find` without an answer, or one whose bucket `is_partial` and lacks the variant.
    pub fn find_on_disk(&self, hash: u64, key: &[u8]) -> Option<DiskLookup<M>> {
        self.volumes().next()?;
        let primary = primary_of(key);
        let volumes: Vec<_> = self.volumes().filter(|volume| volume.may_have(&primary)).cloned().collect();
        (!volumes.is_empty()).then(|| DiskLookup::new(Arc::clone(&self.shared), volumes, hash, key))
    }

    /// Whether [`find_on_disk`](Self::find_on_disk) would have to look.
    pub fn may_be_on_disk(&self, key: &[u8]) -> bool {
        if self.volumes().next().is_none() {
            return false;
        }
        let primary = primary_of(key);
        self.volumes().any(|volume| volume.may_have(&primary))
    }

    /// Puts an object in, in place of one with the same key and variant. Of a key with more than `variants_max` variants
    /// the oldest go; parts do not count, and the caller bounds them. The object is returned with the outcome, stored or not, so that the caller can answer from it.
    ///
    /// An object may have left memory again when this returns, if everything else was worth more.
    pub fn insert(&self, object: Object<M>, variants_max: usize) -> (Arc<Object<M>>, Inserted) {
        let object = Arc::new(object);
        if !self.shared.log.remembers(object.generation()) || self.check(&object) == Purged::Hard {
            return (object, Inserted::Purged);
        }
        let primary = self.primary_of(object.key().as_bytes());
        if object.cost() > self.shared.memory.account(|ledger| ledger.bounds().bytes_max) / 2 {
            self.remove_like(&object, primary.as_ref());
            self.shared.memory.released.add(object.body());
            return (object, Inserted::TooLarge);
        }
        self.shared.memory.insert(&object, variants_max, || {
            primary.as_ref().is_some_and(|primary| self.tell_disks(&object, primary, true))
        });
        // A purge that came in between has looked through memory without finding the object.
        if self.check(&object) == Purged::Hard {
            self.remove_object(&object);
            return (object, Inserted::Purged);
        }
        (object, Inserted::Stored)
    }

    /// As if memory had been short.
    #[cfg(test)]
    fn remove_from_memory(&self, locator: &str) {
        for object in self.list(locator.as_bytes(), usize::MAX) {
            self.shared.memory.remove_object(&object, || ());
        }
    }

    /// The name of a key on disks; `None` when there are none.
    fn primary_of(&self, key: &[u8]) -> Option<Primary> {
        self.volumes().next().map(|_| primary_of(key))
    }

    /// Removes what an object that cannot be stored would have replaced.
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

    /// Removes all variants of a key from all tiers. Returns how many memory had.
    ///
    /// A fetch that is under way is not concerned: whoever invalidates forbids it to be stored.
    pub fn remove(&self, hash: u64, key: &[u8]) -> usize {
        let primary = self.primary_of(key);
        self.shared.memory.remove(hash, key, || {
            let Some(primary) = primary else { return };
            self.volumes().filter(|volume| volume.may_have(&primary)).for_each(|volume| volume.remove_key(primary));
        })
    }

    /// Removes this very object, if it is still there.
    pub fn remove_object(&self, object: &Arc<Object<M>>) -> bool {
        let primary = self.primary_of(object.key().as_bytes());
        self.shared.memory.remove_object(object, || {
            let Some(primary) = primary else { return };
            let id = id_of(&primary, object.variant());
            self.volumes().filter(|volume| volume.may_have(&primary)).for_each(|volume| volume.remove(id));
        })
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

    /// Remembers that the whole response for a key may not be fetched for a range.
    pub fn mark_ranges(&self, hash: u64, marker: Marker) {
        self.range_markers.set(hash, marker);
    }

    /// Whether that is remembered at `now_ms`.
    pub fn forwards_ranges(&self, hash: u64, now_ms: u64) -> bool {
        self.range_markers.get(hash).is_some_and(|marker| now_ms < marker.until_ms)
    }

    /// A place for content of more than `INLINE_BYTES_MAX` bytes: on a volume that has room, else in a memory file.
    /// `expected` is its length where that is known.
    ///
    /// # Errors
    /// When no tier may hold so much.
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

    /// Whether some tier may ever hold content of so many bytes, when all else has made room.
    pub fn may_hold(&self, bytes: u64) -> bool {
        bytes <= self.budget().bytes_max() / 2 || self.volumes().any(|volume| bytes <= volume.folder.body_bytes_max())
    }

    /// The number of purges so far. To be read before an origin is asked, and given to `Object::new`.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.shared.log.generation()
    }

    /// Changes with every purge, and with nothing else: what a worker has checked since is as it was. One atomic load.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.shared.log.generation()
    }

    /// What has become of an object since it was fetched. Two atomic loads and a comparison when nothing was purged
    /// since the last check.
    #[inline]
    pub fn check(&self, object: &Object<M>) -> Purged {
        object.checked_at(self.shared.log.generation()).unwrap_or_else(|| self.compare(object))
    }

    /// The same for an answer that is still coming and no object yet. `generation` is from before its origin was asked.
    pub fn check_coming(&self, key: &Key, meta: &M, generation: u64) -> Purged {
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

    /// Purges. In force for every look-up that begins after the return, and over restarts; blocks while indexes are
    /// searched and volumes write it down, so it is not for an event loop. With `dry_run`, only counts.
    pub fn purge(&self, purge: &Purge, soft: bool, dry_run: bool) -> PurgeCount {
        let _one = hold(&self.purging);
        let target = Target::of(purge);
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
            // What is in memory and on a disk counts once.
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
            let purge = vec![(target.clone(), Last::at(generation, soft))];
            if !volume.put_purges(purge, generation, dropped) {
                count.volumes_dropped += 1;
            }
        }
        match purge {
            Purge::Key(key) => self.markers.remove(self.hash(key)),
            // Which keys they name is not known any more; they are made again in no time.
            _ => self.markers.clear(),
        }
        // From here on nobody uses them. What follows only gives back their room.
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

    /// Sweeps the store of all that was purged, so that the log may be forgotten.
    fn forget_purges(&self) {
        let generation = self.shared.log.generation();
        self.shared.log.begin_to_forget(generation);
        let mut purged = Vec::new();
        // Each object is looked at, so each remembers that it is stale from now on.
        self.shared.memory.each(|object| {
            if self.check(object) == Purged::Hard {
                purged.push(Arc::clone(object));
            }
        });
        for object in &purged {
            self.shared.memory.remove_object(object, || ());
        }
        // A volume that cannot do it has failed, and none of its content is used any more.
        for volume in self.volumes() {
            volume.forget_purges(generation);
        }
        self.shared.log.forget(generation);
        self.shared.memory.change_all();
    }

    /// What the store tells about itself. Takes short locks; reads no disk.
    pub fn stats(&self) -> StoreStats {
        let mut stats = self.shared.memory.account(|ledger| StoreStats {
            memory_objects: ledger.objects(),
            memory_bytes: ledger.bytes(),
            memory_bytes_max: ledger.bounds().bytes_max,
            descriptors: ledger.descriptors(),
            evicted: ledger.evicted(),
            ..StoreStats::default()
        });
        self.shared.memory.released.sweep(usize::MAX);
        stats.held = Share::ALL.map(|share| (share, self.budget().held(share)));
        stats.inserted = self.shared.memory.inserted.load(Ordering::Relaxed);
        stats.memory_hits = self.shared.memory.hits.load(Ordering::Relaxed);
        stats.memory_misses = self.shared.memory.misses.load(Ordering::Relaxed);
        stats.disk_hits = self.shared.disk_hits.load(Ordering::Relaxed);
        stats.disk_misses = self.shared.disk_misses.load(Ordering::Relaxed);
        stats.volumes = self.slots.iter().map(Slot::stats).collect();
        stats.markers = self.markers.len();
        stats.generation = self.shared.log.generation();
        stats.purges_remembered = self.shared.log.len() as u64;
        stats
    }

    /// How often each event has happened on the volumes since the start.
    pub fn volume_events(&self) -> Vec<(VolumeEvent, u64)> {
        self.shared.notices.counts()
    }

    /// Passes a line for the log on to `listener` for each event on a volume, first for those since the store was opened.
    pub fn on_notice(&self, listener: OnNotice) {
        self.shared.notices.listen(listener);
    }

    /// All that is known of a key. Reads disks.
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

    /// Up to `count_max` objects in memory whose locator begins with `prefix`, in no order.
    pub fn list(&self, prefix: &[u8], count_max: usize) -> Vec<Arc<Object<M>>> {
        self.shared.memory.pick(|key| key.locator().starts_with(prefix), count_max)
    }

    /// Other bounds of memory, after a reload. Volumes stay as they are until a restart.
    pub fn resize(&self, memory_bytes_max: u64, hot_objects_max: u64) {
        self.shared.memory.set_bounds(|bounds| Bounds {
            bytes_max: memory_bytes_max,
            objects_max: hot_objects_max,
            ..bounds
        });
    }

    /// Writes what waits and lets go of the volumes, for a successor. Memory goes on; files that are open stay readable.
    /// Blocks.
    pub fn release_volumes(&self) {
        let _one = hold(&self.purging);
        self.is_released.store(true, Ordering::Relaxed);
        for volume in self.slots.iter().filter_map(|slot| slot.volume.get()) {
            volume.release();
        }
        self.slots.iter().filter(|slot| slot.is_locked()).for_each(Slot::give_up);
    }
}

impl<M: Meta> Drop for Store<M> {
    fn drop(&mut self) {
        self.release_volumes();
    }
}

#[cfg(test)]
mod tests;
