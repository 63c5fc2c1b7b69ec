//! A volume: a folder with an index, and threads that write, read, load the index and verify content.
//!
//! Objects are written in the background, after their responses have been sent. The index changes in atomic steps, and
//! a large body is synced before the step that references it. A volume that fails stays out of use until the next
//! start, and its index is removed, because later purges could not be recorded in it.

mod check;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod index;
mod known;
mod pending;
mod reader;
pub(crate) mod record;
mod reserve;
mod writer;
mod writing;

use crate::folder::{FileId, StoreFolder};
use crate::hold;
use crate::memory::MemoryTier;
use crate::notice::Notices;
use crate::object::{Meta, Object};
use crate::private::{create_private_file, create_private_folder};
use crate::purge::{LastPurges, PurgeLog, PurgeTarget, Purged, Realms};
use crate::stats::{VolumeState, VolumeStats};
use flatout_os::random::Prehashed;
use index::{Index, IndexStatistics};
use known::{ShortKeys, short};
use pending::Pending;
use record::{Id, Primary, Record, primary_in};
use reserve::Reserve;
use rustix::fs::FlockOperation;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Objects that match a purge, with the numbers of their realms, and the sequence numbers of their records.
type NamedRecords = (Vec<(Id, usize)>, Vec<u64>);

/// Maximum number of lookups queued for a volume's reading thread. Further lookups are misses, since the origin is
/// faster than such a queue.
const LOOKUPS_MAX: usize = 4_096;

/// Maximum time that a purge waits for a volume, which is then taken out of use.
const PURGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Maximum time that a scan of the whole volume may take before the volume is taken out of use.
const SWEEP_TIMEOUT: Duration = Duration::from_mins(10);

/// Maximum number of keys that are remembered as requested, so that their objects get a second chance at eviction.
const WARM_MAX: usize = 65_536;

/// State shared by the store and all volumes.
#[derive(Debug)]
pub(crate) struct StoreShared<M> {
    pub(crate) seed: flatout_os::random::QualityHashState,
    pub(crate) memory: Arc<MemoryTier<M>>,
    pub(crate) log: Arc<PurgeLog>,
    pub(crate) notices: Notices,
    /// Next sequence number. Sequence numbers reflect the order of arrival on all volumes.
    pub(crate) sequence: AtomicU64,
    pub(crate) disk_hits: AtomicU64,
    pub(crate) disk_misses: AtomicU64,
}

impl<M> StoreShared<M> {
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.seed.hash_one(key)
    }
}

/// Reason why a volume could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// Another process has locked the volume.
    Locked,
    /// Any other failure, as text.
    Failed(String),
}

/// Objects of a key on a volume, with their sequence numbers.
pub(crate) type VolumeObjects<M> = Vec<(u64, Arc<Object<M>>)>;

/// A volume in use.
#[derive(Debug)]
pub(crate) struct Volume<M> {
    pub(crate) folder: Arc<StoreFolder>,
    /// Disk space reserved for the index.
    reserve: Arc<Reserve>,
    shared: Arc<StoreShared<M>>,
    /// The index; `None` after the volume has been released or has failed.
    index: RwLock<Option<Arc<Index>>>,
    lock: Mutex<Option<OwnedFd>>,
    pending: Mutex<Pending<M>>,
    orders: Mutex<Orders>,
    /// Sequence numbers of purged records that have not been removed yet.
    drops: Mutex<Vec<u64>>,
    lookups: Mutex<Lookups<M>>,
    lookup_wakeup: Condvar,
    /// Short names of the keys that have records. Complete if `is_loaded` is true.
    known: ShortKeys,
    is_loaded: AtomicBool,
    warm: Mutex<HashSet<u64, Prehashed>>,
    objects: AtomicU64,
    evicted: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    orphans: AtomicU64,
    is_ending: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Lookups<M> {
    waiting: VecDeque<Lookup<M>>,
    is_over: bool,
}

/// A queued lookup.
#[derive(Debug)]
struct Lookup<M> {
    key: Box<[u8]>,
    hash: u64,
    reply: oneshot::Sender<VolumeObjects<M>>,
}

/// Queued commands of the control thread.
#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<VolumeCommand>,
    is_over: bool,
}

/// Command for the writing thread. The control thread waits until it has been carried out.
#[derive(Debug)]
enum VolumeCommand {
    /// Record purges and their generation, then remove the records with the sequence numbers `dropped`.
    Purges { purges: Vec<(PurgeTarget, LastPurges)>, generation: u64, dropped: Vec<u64>, done: SyncSender<()> },
    /// Remove all purged objects, then clear the purge log.
    Forget { generation: u64, done: SyncSender<()> },
    /// Remove all objects.
    Wipe { done: SyncSender<()> },
}

impl<M: Meta> Volume<M> {
    /// Opens the volume in the folder `path` and starts its threads. Also returns the volume's purge log.
    pub(crate) fn open(
        path: &Path,
        bytes_max: u64,
        shared: &Arc<StoreShared<M>>,
    ) -> Result<(Arc<Self>, PurgeLog), OpenError> {
        let failed = |doing: &str, error: &dyn std::fmt::Display| OpenError::Failed(format!("{doing}: {error}"));
        create_private_folder(path).map_err(|error| failed("cannot use the folder", &error))?;
        let lock = lock_folder(path)?;
        let folder = StoreFolder::open(path, bytes_max).map_err(|error| failed("cannot use the folder", &error))?;
        let reserve = Arc::new(Reserve::open(path).map_err(|error| failed("cannot use the folder", &error))?);
        let opening = || {
            let (index, event) = Index::open(path, &reserve)?;
            let (facts, purges) = (index.facts()?, index.purges()?);
            Ok::<_, index::IndexError>((index, facts, purges, event))
        };
        let opened = std::panic::catch_unwind(opening).map_err(|_| failed("cannot open the index", &"it is damaged"));
        let opened = opened.and_then(|opened| opened.map_err(|error| failed("cannot open the index", &error)));
        if opened.is_err() {
            // Remove the index, because purges cannot be recorded in it while the volume is out of use.
            let _ = std::fs::remove_file(path.join(index::FILE_NAME));
        }
        let (index, facts, purges, event) = opened?;
        if let Some(event) = event {
            shared.notices.report(event, &path.display(), "");
        }
        let IndexStatistics { bytes, objects, generation, floor, sequence } = facts;
        folder.indexed_bytes.store(bytes, Ordering::Relaxed);
        shared.sequence.fetch_max(sequence, Ordering::Relaxed);
        let volume = Arc::new(Self {
            folder: Arc::new(folder),
            reserve: Arc::clone(&reserve),
            shared: Arc::clone(shared),
            index: RwLock::new(Some(Arc::new(index))),
            lock: Mutex::new(Some(lock)),
            pending: Mutex::default(),
            orders: Mutex::default(),
            drops: Mutex::default(),
            lookups: Mutex::new(Lookups { waiting: VecDeque::new(), is_over: false }),
            lookup_wakeup: Condvar::new(),
            known: ShortKeys::new(),
            is_loaded: AtomicBool::new(false),
            warm: Mutex::default(),
            objects: AtomicU64::new(objects),
            evicted: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            orphans: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let log = PurgeLog::default();
        log.restore(purges, generation, floor);
        volume.start().map_err(|error| failed("cannot start a thread", &error))?;
        Ok((volume, log))
    }

    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        type Part<M> = fn(&Volume<M>);
        let parts: [(&str, Part<M>, Part<M>); 4] = [
            ("store-write", Self::write_behind, Self::stop_writing),
            ("store-read", Self::read_on, |_| ()),
            ("store-load", Self::load, |_| ()),
            ("store-check", Self::check_on, Self::stop_checking),
        ];
        for (name, part, end) in parts {
            let volume = Arc::clone(self);
            let guarded = move || {
                let run = std::panic::AssertUnwindSafe(|| part(&volume));
                if std::panic::catch_unwind(run).is_err() {
                    volume.fail("a thread exited unexpectedly", &"the index is damaged");
                }
                end(&volume);
            };
            hold(&self.threads).push(std::thread::Builder::new().name(name.to_owned()).spawn(guarded)?);
        }
        Ok(())
    }

    /// Returns the index, if the volume is in use.
    fn index(&self) -> Option<Arc<Index>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| self.folder.is_good())
    }

    /// Takes the volume out of use permanently. Its content will not be used again.
    fn fail(&self, doing: &str, error: &dyn std::fmt::Display) {
        self.folder.degrade(doing, error);
        self.lookup_wakeup.notify_all();
        self.folder.ring_checks();
    }

    /// Returns whether the volume is in use and accepts objects.
    pub(crate) fn is_usable(&self) -> bool {
        self.folder.is_good() && !self.is_ending.load(Ordering::Acquire)
    }

    /// Returns whether the volume may have the key. Does not read from disk.
    pub(crate) fn may_have(&self, primary: &Primary) -> bool {
        self.folder.is_good() && (!self.is_loaded.load(Ordering::Acquire) || self.has(primary))
    }

    /// Returns whether the volume is known to have the key. Keys that have not been loaded yet are not known.
    ///
    /// Queued changes are checked first, since their keys become known before they leave the queue.
    pub(crate) fn has(&self, primary: &Primary) -> bool {
        hold(&self.pending).names(primary) || self.known.has(primary)
    }

    /// Queues `object` for writing. It replaces the record with the same key and variant.
    pub(crate) fn write(&self, id: Id, object: &Arc<Object<M>>) {
        let (is_queued, is_long) = {
            let mut pending = hold(&self.pending);
            let is_queued = pending.write(id, object);
            if !is_queued && (pending.names(&primary_in(&id)) || self.may_have_record(&primary_in(&id))) {
                // The object will not be written, so the outdated record must be removed.
                pending.remove(id);
            }
            (is_queued, pending.is_long())
        };
        if !is_queued {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if is_long {
            self.folder.ring();
        }
    }

    /// Returns whether the index may have a record of the key, ignoring queued changes.
    fn may_have_record(&self, primary: &Primary) -> bool {
        !self.is_loaded.load(Ordering::Acquire) || self.known.has(primary)
    }

    /// Queues the removal of a variant.
    pub(crate) fn remove(&self, id: Id) {
        hold(&self.pending).remove(id);
    }

    /// Queues the removal of all variants of a key.
    pub(crate) fn remove_key(&self, primary: Primary) {
        hold(&self.pending).remove_key(primary);
    }

    /// Queues a lookup of a key. Returns `None` if the queue is full or the volume is being released.
    pub(crate) fn ask(&self, hash: u64, key: &[u8]) -> Option<oneshot::Receiver<VolumeObjects<M>>> {
        let (reply, receiver) = oneshot::channel();
        {
            let mut lookups = hold(&self.lookups);
            if lookups.is_over || lookups.waiting.len() >= LOOKUPS_MAX {
                return None;
            }
            lookups.waiting.push_back(Lookup { key: key.into(), hash, reply });
        }
        self.lookup_wakeup.notify_one();
        Some(receiver)
    }

    /// Records that a key was requested since it was written, so that its objects get a second chance at eviction.
    fn note_warm(&self, primary: &Primary) {
        let mut warm = hold(&self.warm);
        if warm.len() >= WARM_MAX {
            warm.clear();
        }
        warm.insert(short(primary));
    }

    /// Returns the names and realm numbers of all objects that match `target` and have not been purged, and the
    /// sequence numbers of their records.
    ///
    /// Returns `None` if the index cannot be read.
    pub(crate) fn names_of(&self, target: &PurgeTarget, realms: &mut Realms) -> Option<NamedRecords> {
        let index = self.index()?;
        let (mut ids, mut sequences) = (Vec::new(), Vec::new());
        let mut look = |sequence: u64, record: &Record<'_>| {
            let subject = record.subject();
            if target.names(&subject) && self.shared.log.verdict(&subject).0 != Purged::Hard {
                ids.push((
                    record::id_of(&record::primary_of(record.key), record.variant),
                    realms.number_of(record.key),
                ));
                sequences.push(sequence);
            }
        };
        let searched = if let PurgeTarget::Key(key) = target {
            index.read(&record::primary_of(key)).map(|all| {
                for stored in all {
                    if let Some(record) = Record::decode(&stored.record) {
                        look(stored.sequence, &record);
                    }
                }
            })
        } else {
            index.each_record(look)
        };
        if let Err(error) = searched {
            self.fail("cannot read the index", &error);
            return None;
        }
        // Queued changes replace records, so the tags of queued objects apply.
        let waiting = {
            let pending = hold(&self.pending);
            ids.retain(|(id, _)| !pending.replaces(id));
            pending.objects()
        };
        let named = waiting.iter().filter(|(_, object)| target.names(&object.subject()));
        let alive = named.filter(|(_, object)| self.shared.log.verdict(&object.subject()).0 != Purged::Hard);
        ids.extend(alive.map(|(id, object)| (*id, realms.number_of(object.key().as_bytes()))));
        Some((ids, sequences))
    }

    /// Queues a command and waits until it has been carried out. Returns whether that succeeded in time.
    fn order(&self, timeout: Duration, order: impl FnOnce(SyncSender<()>) -> VolumeCommand) -> bool {
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        {
            let mut orders = hold(&self.orders);
            if orders.is_over {
                return false;
            }
            orders.waiting.push_back(order(done));
        }
        self.folder.ring();
        match wait.recv_timeout(timeout) {
            Ok(()) => true,
            // The writing thread has ended.
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => {
                self.fail("cannot write the index", &"the disk does not respond");
                // The writing thread might still carry it out, but possibly too late.
                let _ = std::fs::remove_file(self.folder.path.join(index::FILE_NAME));
                false
            }
        }
    }

    /// Records purges, and queues the removal of the records in `dropped`. Returns whether the purges will survive a
    /// restart.
    pub(crate) fn put_purges(
        &self,
        purges: Vec<(PurgeTarget, LastPurges)>,
        generation: u64,
        dropped: Vec<u64>,
    ) -> bool {
        self.order(PURGE_TIMEOUT, |done| VolumeCommand::Purges { purges, generation, dropped, done })
    }

    /// Removes all purged objects, and the log entries up to `generation`. Returns whether that succeeded.
    pub(crate) fn forget_purges(&self, generation: u64) -> bool {
        self.order(SWEEP_TIMEOUT, |done| VolumeCommand::Forget { generation, done })
    }

    /// Removes all objects. Returns whether that succeeded.
    pub(crate) fn wipe(&self) -> bool {
        self.order(SWEEP_TIMEOUT, |done| VolumeCommand::Wipe { done })
    }

    /// Returns all objects of a key on the volume. Reads from disk on the calling thread.
    pub(crate) fn inspect(&self, hash: u64, key: &[u8]) -> VolumeObjects<M> {
        self.read_key(hash, key).unwrap_or_default()
    }

    /// Writes queued changes, stops the threads and unlocks the folder.
    pub(crate) fn release(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.folder.ring();
        hold(&self.lookups).is_over = true;
        self.lookup_wakeup.notify_all();
        self.folder.end_checks();
        let threads = std::mem::take(&mut *hold(&self.threads));
        for thread in threads {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
        self.folder.set_released();
        *self.index.write().unwrap_or_else(PoisonError::into_inner) = None;
        *hold(&self.lock) = None;
    }

    pub(crate) fn stats(&self) -> VolumeStats {
        VolumeStats {
            folder: self.folder.path.clone(),
            state: match self.folder.state() {
                VolumeState::Good if self.folder.is_full() => VolumeState::Full,
                state => state,
            },
            problem: self.problem(),
            objects: self.objects.load(Ordering::Relaxed),
            bytes: self.folder.used_bytes(),
            bytes_max: self.folder.bytes_max,
            evicted: self.evicted.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            errors: self.folder.errors.load(Ordering::Relaxed),
            queued: hold(&self.pending).writes() as u64,
            orphans: self.orphans.load(Ordering::Relaxed),
            is_loaded: self.is_loaded.load(Ordering::Acquire),
        }
    }

    /// Returns the reason why the volume is not written or not in use, as text.
    fn problem(&self) -> String {
        if self.folder.is_good() && self.folder.is_full() {
            return "its file system is full; the volume keeps its stored responses, but stores no new ones".to_owned();
        }
        self.folder.problem()
    }

    /// Loads the names of all keys from the index, so that lookups of unknown keys skip the volume. Then removes files
    /// that are not in the index.
    fn load(&self) {
        let Some(index) = self.index() else { return };
        let read = index.each_id(|id| {
            self.known.add(&primary_in(&id));
            !self.is_over()
        });
        if self.is_over() {
            return;
        }
        if let Err(error) = read {
            return self.fail("cannot read the index", &error);
        }
        self.is_loaded.store(true, Ordering::Release);
        let removed = match index.known_files() {
            Ok(is_known) => self.folder.remove_orphans(|id: FileId| self.is_over() || is_known(id)),
            Err(error) => return self.fail("cannot read the index", &error),
        };
        match removed {
            Ok(count) => self.orphans.store(count, Ordering::Relaxed),
            Err(error) => self.fail("cannot read the folder", &error),
        }
    }

    /// Returns whether changes are queued.
    #[cfg(test)]
    pub(crate) fn has_pending(&self) -> bool {
        self.folder.is_good() && !hold(&self.pending).is_idle()
    }

    fn is_over(&self) -> bool {
        self.is_ending.load(Ordering::Acquire) || self.folder.state() != VolumeState::Good
    }
}

/// Locks the folder for this process.
fn lock_folder(path: &Path) -> Result<OwnedFd, OpenError> {
    let open = create_private_file(&path.join("lock"));
    let file: OwnedFd = open.map_err(|error| OpenError::Failed(format!("cannot create a file: {error}")))?.into();
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Locked),
        Err(error) => Err(OpenError::Failed(format!("cannot lock the folder: {error}"))),
    }
}

#[cfg(test)]
mod tests;
