//! The folder of a volume: one file for each large body, and what is known of the room there.
//!
//! Files are made, synced and removed by the volume's own thread alone. Workers take a file that was made beforehand
//! and write to it by descriptor, so they need no right to any path (they may be confined) and wait for no directory.
//!
//! What workers write goes to the page cache: a copy of memory, as a write to a memory file would be. A kernel makes
//! writers wait only when dirty pages pile up, so the thread syncs each body in steps while it grows, and a volume that
//! has fallen behind gets no new bodies.

use crate::store::hold;
use crate::store::stats::VolumeState;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Subfolders that bodies are spread over.
const SUBFOLDERS: u64 = 64;

/// Files that are made beforehand.
const SPARES: usize = 32;

/// Bytes of a body between two syncs.
pub(crate) const SYNC_BYTES: u64 = 8 * 1024 * 1024;

/// Bytes that wait to be synced above which a volume gets no new body. The kernel's own threshold for making writers
/// wait is a fifth of free memory.
const UNSYNCED_BYTES_MAX: u64 = 192 * 1024 * 1024;

/// The name of a body's file: never used twice, over restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId {
    /// Chosen by chance at each start.
    pub(crate) stamp: u64,
    pub(crate) number: u64,
}

impl FileId {
    pub(crate) fn encode(self) -> u128 {
        u128::from(self.stamp) << 64 | u128::from(self.number)
    }

    pub(crate) const fn decode(id: u128) -> Self {
        Self { stamp: (id >> 64) as u64, number: id as u64 }
    }

    fn name(self) -> String {
        format!("{:02x}/{:016x}-{:x}", self.number % SUBFOLDERS, self.stamp, self.number)
    }

    /// The file with this name in a subfolder.
    fn parse(name: &str) -> Option<Self> {
        let (stamp, number) = name.split_once('-')?;
        let parse = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { stamp: parse(stamp)?, number: parse(number)? })
    }
}

/// The folder and its books.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    bodies: OwnedFd,
    stamp: u64,
    number: AtomicU64,
    pub(crate) bytes_max: u64,
    /// Bytes of all that the index names.
    pub(crate) indexed_bytes: AtomicU64,
    /// Bytes in files that the index does not name at this moment.
    loose_bytes: AtomicU64,
    unsynced_bytes: AtomicU64,
    state: AtomicU8,
    problem: Mutex<String>,
    pub(crate) errors: AtomicU64,
    work: Mutex<Work>,
    bell: Condvar,
}

/// What the thread has to do.
#[derive(Debug, Default)]
struct Work {
    spares: Vec<(FileId, OwnedFd)>,
    doomed: Vec<FileId>,
    unsynced: Vec<Arc<BodyFile>>,
    has_rung: bool,
}

impl Folder {
    /// The folder `path` on which `bytes_max` bytes may be held. Makes what is missing.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let bodies = path.join("bodies");
        for subfolder in 0..SUBFOLDERS {
            std::fs::create_dir_all(bodies.join(format!("{subfolder:02x}")))?;
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut stamp = [0; 8];
        aws_lc_rs::rand::fill(&mut stamp).map_err(|_| io::Error::other("no random bytes"))?;
        Ok(Self {
            path: path.to_owned(),
            bodies: rustix::fs::open(&bodies, flags, Mode::empty())?,
            stamp: u64::from_be_bytes(stamp),
            number: AtomicU64::new(0),
            bytes_max,
            indexed_bytes: AtomicU64::new(0),
            loose_bytes: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            state: AtomicU8::new(0),
            problem: Mutex::default(),
            errors: AtomicU64::new(0),
            work: Mutex::default(),
            bell: Condvar::new(),
        })
    }

    pub(crate) fn state(&self) -> VolumeState {
        match self.state.load(Ordering::Acquire) {
            0 => VolumeState::Good,
            1 => VolumeState::Degraded,
            _ => VolumeState::Released,
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    pub(crate) fn problem(&self) -> String {
        hold(&self.problem).clone()
    }

    /// The volume is left alone from now on.
    pub(crate) fn degrade(&self, doing: &str, error: &dyn std::fmt::Display) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if self.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            *hold(&self.problem) = format!("{doing}: {error}");
            self.ring();
        }
    }

    pub(crate) fn set_released(&self) {
        let _ = self.state.compare_exchange(0, 2, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        hold(&self.work).has_rung = true;
        self.bell.notify_one();
    }

    /// Waits for a ring, `patience` at the most.
    pub(crate) fn wait(&self, patience: Duration) {
        let work = hold(&self.work);
        let rung = self.bell.wait_timeout_while(work, patience, |work| !work.has_rung);
        rung.unwrap_or_else(PoisonError::into_inner).0.has_rung = false;
    }

    /// Bytes in use, index and files.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.indexed_bytes.load(Ordering::Relaxed) + self.loose_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in files that the index does not name.
    pub(crate) fn loose_bytes(&self) -> u64 {
        self.loose_bytes.load(Ordering::Relaxed)
    }

    /// Room for one more body of `expected` bytes, for choosing between volumes; `None` when it must not come here.
    pub(crate) fn room_for(&self, expected: u64) -> Option<u64> {
        let loose = self.loose_bytes.load(Ordering::Relaxed);
        let fits = self.is_good() && !self.is_behind() && loose.saturating_add(expected) <= self.body_bytes_max();
        fits.then(|| self.bytes_max.saturating_sub(self.used_bytes()))
    }

    /// What one body may have: the rest of the volume must be able to stay.
    fn body_bytes_max(&self) -> u64 {
        self.bytes_max / 2
    }

    /// Whether more waits to be synced than should.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsynced_bytes.load(Ordering::Relaxed) > UNSYNCED_BYTES_MAX
    }

    #[cfg(test)]
    pub(crate) fn has_spares(&self) -> bool {
        hold(&self.work).spares.len() == SPARES
    }

    /// A file that was made beforehand; `None` when there is none.
    pub(crate) fn take_spare(self: &Arc<Self>) -> Option<(Arc<BodyFile>, Arc<OwnedFd>)> {
        let spare = hold(&self.work).spares.pop();
        self.ring();
        let (id, fd) = spare?;
        let fd = Arc::new(fd);
        Some((BodyFile::new(self, id, &fd, false), fd))
    }

    /// A file made now. For the volume's thread.
    pub(crate) fn create(self: &Arc<Self>) -> io::Result<(Arc<BodyFile>, Arc<OwnedFd>)> {
        let (id, fd) = self.create_file()?;
        let fd = Arc::new(fd);
        Ok((BodyFile::new(self, id, &fd, false), fd))
    }

    fn create_file(&self) -> io::Result<(FileId, OwnedFd)> {
        let id = FileId { stamp: self.stamp, number: self.number.fetch_add(1, Ordering::Relaxed) };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        Ok((id, rustix::fs::openat(&self.bodies, id.name(), flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Makes files beforehand, removes those that nobody names and syncs what has grown. For the volume's thread.
    pub(crate) fn tend(&self) {
        let (doomed, unsynced) = {
            let mut work = hold(&self.work);
            (std::mem::take(&mut work.doomed), std::mem::take(&mut work.unsynced))
        };
        for id in doomed {
            self.unlink(id);
        }
        for file in unsynced {
            if let Err(error) = file.sync() {
                self.degrade("cannot write content", &error);
            }
        }
        while self.is_good() && hold(&self.work).spares.len() < SPARES {
            match self.create_file() {
                Ok(spare) => hold(&self.work).spares.push(spare),
                // Full is not broken: room may come.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error()) => {
                    self.errors.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(error) => self.degrade("cannot make a file", &error),
            }
        }
    }

    /// Removes the files that were made beforehand, and those that nobody names. For the volume's thread at its end.
    pub(crate) fn tidy_up(&self) {
        let (spares, doomed) = {
            let mut work = hold(&self.work);
            (std::mem::take(&mut work.spares), std::mem::take(&mut work.doomed))
        };
        for id in spares.into_iter().map(|(id, _)| id).chain(doomed) {
            self.unlink(id);
        }
    }

    pub(crate) fn open_file(&self, id: FileId) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.bodies, id.name(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Removes a file; one that is not there is no failure.
    pub(crate) fn unlink(&self, id: FileId) {
        match rustix::fs::unlinkat(&self.bodies, id.name(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(_) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes the names of new files outlive a power loss.
    pub(crate) fn sync_names(&self, files: impl Iterator<Item = FileId>) -> io::Result<()> {
        let mut subfolders: Vec<_> = files.map(|id| id.number % SUBFOLDERS).collect();
        subfolders.sort_unstable();
        subfolders.dedup();
        for subfolder in subfolders {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(&self.bodies, format!("{subfolder:02x}"), flags, Mode::empty())?;
            rustix::fs::fsync(folder)?;
        }
        Ok(())
    }

    /// Files of former processes that `is_known` does not know are removed. Returns how many; stops when the volume is
    /// left alone.
    pub(crate) fn remove_orphans(&self, is_known: impl Fn(FileId) -> bool) -> io::Result<u64> {
        let mut count = 0;
        for subfolder in 0..SUBFOLDERS {
            for entry in std::fs::read_dir(self.path.join("bodies").join(format!("{subfolder:02x}")))? {
                let name = entry?.file_name();
                let Some(id) = name.to_str().and_then(FileId::parse) else { continue };
                if id.stamp != self.stamp && self.is_good() && !is_known(id) {
                    self.unlink(id);
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// A file on a volume. It is removed when the last object with it is gone without having been indexed.
#[derive(Debug)]
pub struct BodyFile {
    folder: Arc<Folder>,
    id: FileId,
    /// For syncing.
    fd: Arc<OwnedFd>,
    loose_bytes: AtomicU64,
    unsynced_bytes: AtomicU64,
    is_indexed: AtomicBool,
}

impl BodyFile {
    fn new(folder: &Arc<Folder>, id: FileId, fd: &Arc<OwnedFd>, is_indexed: bool) -> Arc<Self> {
        Arc::new(Self {
            folder: Arc::clone(folder),
            id,
            fd: Arc::clone(fd),
            loose_bytes: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            is_indexed: AtomicBool::new(is_indexed),
        })
    }

    /// A file that the index names already.
    pub(crate) fn indexed(folder: &Arc<Folder>, id: FileId, fd: &Arc<OwnedFd>) -> Arc<Self> {
        Self::new(folder, id, fd, true)
    }

    pub(crate) const fn id(&self) -> FileId {
        self.id
    }

    pub(crate) const fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Whether `count` more bytes may follow.
    pub(crate) fn may_grow(&self, count: u64) -> bool {
        let bytes = self.loose_bytes.load(Ordering::Relaxed).saturating_add(count);
        let all = self.folder.loose_bytes.load(Ordering::Relaxed).saturating_add(count);
        bytes <= self.folder.body_bytes_max() && all <= self.folder.bytes_max
    }

    /// `count` bytes were written.
    pub(crate) fn grow(self: &Arc<Self>, count: u64) {
        let before = self.loose_bytes.fetch_add(count, Ordering::Relaxed);
        self.folder.loose_bytes.fetch_add(count, Ordering::Relaxed);
        self.unsynced_bytes.fetch_add(count, Ordering::Relaxed);
        self.folder.unsynced_bytes.fetch_add(count, Ordering::Relaxed);
        if before / SYNC_BYTES != (before + count) / SYNC_BYTES {
            hold(&self.folder.work).unsynced.push(Arc::clone(self));
            self.folder.ring();
        }
    }

    /// `count` bytes were given back.
    pub(crate) fn shrink(&self, count: u64) {
        self.loose_bytes.fetch_sub(count, Ordering::Relaxed);
        self.folder.loose_bytes.fetch_sub(count, Ordering::Relaxed);
    }

    /// Waits until all that was written so far is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let bytes = self.unsynced_bytes.load(Ordering::Acquire);
        rustix::fs::fdatasync(&*self.fd)?;
        self.unsynced_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.folder.unsynced_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The index names the file from now on, and its bytes count as the index's.
    pub(crate) fn set_indexed(&self) {
        if !self.is_indexed.swap(true, Ordering::AcqRel) {
            let bytes = self.loose_bytes.swap(0, Ordering::Relaxed);
            self.folder.loose_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether the index names the file, or has named it.
    pub(crate) fn is_indexed(&self) -> bool {
        self.is_indexed.load(Ordering::Acquire)
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        let unsynced = *self.unsynced_bytes.get_mut();
        self.folder.unsynced_bytes.fetch_sub(unsynced, Ordering::Relaxed);
        if !*self.is_indexed.get_mut() {
            self.folder.loose_bytes.fetch_sub(*self.loose_bytes.get_mut(), Ordering::Relaxed);
            hold(&self.folder.work).doomed.push(self.id);
            self.folder.ring();
        }
    }
}
