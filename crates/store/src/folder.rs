//! Folder of a volume, with a file for each large body, and accounting of its space.
//!
//! Only the volume's writing thread creates, syncs and removes files. Workers take a file created in advance and write
//! to its descriptor, so they need no access to any path (they may be sandboxed) and never wait for directory
//! operations.
//!
//! Workers write to the page cache, which costs a memory copy, like a write to a memory file. The kernel makes writers
//! wait only if dirty pages accumulate, so the thread syncs each body in steps while it grows, and a volume that falls
//! behind receives no new bodies.

use crate::hold;
use crate::notice::VolumeEvent;
use crate::private::create_private_folder;
use crate::proof::{Buffer, Proof};
use crate::seal::{self, Identity};
use crate::stats::VolumeState;
use crate::volume::record::Primary;
use flatout_os::random;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Number of subfolders over which bodies are spread.
const SUBFOLDERS: u64 = 64;

/// Number of files created in advance.
const SPARES: usize = 32;

/// Number of bytes of a body after which it is synced again.
pub(crate) const SYNC_BYTES: u64 = 8 * 1024 * 1024;

/// Number of unsynced bytes above which a volume receives no new bodies. The kernel's threshold for making writers wait
/// is a fifth of the available memory by default.
const UNSYNCED_BYTES_MAX: u64 = 192 * 1024 * 1024;

/// Identifier and name of a body's file. Never reused, even across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
#[display("bodies/{}", self.name())]
pub(crate) struct FileId {
    /// Random number chosen when the volume is opened.
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

    /// Parses the name of a file within a subfolder.
    fn parse(name: &str) -> Option<Self> {
        let (stamp, number) = name.split_once('-')?;
        let parse = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { stamp: parse(stamp)?, number: parse(number)? })
    }
}

/// Request to verify a range of a file against its checksums.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) file: Arc<BodyFile>,
    pub(crate) range: Range<u64>,
    /// Receives true if the range is intact.
    pub(crate) reply: oneshot::Sender<bool>,
}

/// Maximum number of queued checks, for the case of an unresponsive disk. Usually, the number of connections is the
/// bound, since each check is for a client.
const CHECKS_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct Checks {
    waiting: VecDeque<Check>,
    is_over: bool,
}

/// The folder of a volume, with its state and statistics.
#[derive(Debug)]
pub(crate) struct StoreFolder {
    pub(crate) path: PathBuf,
    bodies: OwnedFd,
    stamp: u64,
    number: AtomicU64,
    pub(crate) bytes_max: u64,
    /// Bytes of all records and bodies in the index.
    pub(crate) indexed_bytes: AtomicU64,
    /// Bytes in files that are not yet in the index.
    loose_bytes: AtomicU64,
    unsynced_bytes: AtomicU64,
    state: AtomicU8,
    problem: Mutex<String>,
    pub(crate) errors: AtomicU64,
    /// True if the file system is full.
    is_full: AtomicBool,
    /// Number of writes refused for lack of space.
    refusals: AtomicU64,
    work: Mutex<VolumeWork>,
    wakeup: Condvar,
    checks: Mutex<Checks>,
    check_wakeup: Condvar,
}

/// Work for the volume's writing thread.
#[derive(Debug, Default)]
struct VolumeWork {
    spares: Vec<(FileId, OwnedFd)>,
    obsolete: Vec<FileId>,
    unsynced: Vec<Arc<BodyFile>>,
    is_notified: bool,
}

impl StoreFolder {
    /// Opens the folder `path` for at most `bytes_max` bytes. Creates folders that are missing.
    pub(crate) fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        let bodies = path.join("bodies");
        create_private_folder(&bodies)?;
        for subfolder in 0..SUBFOLDERS {
            create_private_folder(&bodies.join(format!("{subfolder:02x}")))?;
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            bodies: rustix::fs::open(&bodies, flags, Mode::empty())?,
            stamp: u64::from_be_bytes(random::bytes()?),
            number: AtomicU64::new(0),
            bytes_max,
            indexed_bytes: AtomicU64::new(0),
            loose_bytes: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            state: AtomicU8::new(0),
            problem: Mutex::default(),
            errors: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            work: Mutex::default(),
            wakeup: Condvar::new(),
            checks: Mutex::default(),
            check_wakeup: Condvar::new(),
        })
    }

    pub(crate) fn state(&self) -> VolumeState {
        match self.state.load(Ordering::Acquire) {
            0 => VolumeState::Good,
            1 => VolumeState::Degraded,
            _ => VolumeState::Released,
        }
    }

    /// Returns whether the file system is full.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Release);
    }

    /// Records that the file system refused a write for lack of space.
    pub(crate) fn note_refusal(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.refusals.fetch_add(1, Ordering::Release);
        self.ring();
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Acquire)
    }

    pub(crate) fn is_good(&self) -> bool {
        self.state.load(Ordering::Acquire) == 0
    }

    pub(crate) fn problem(&self) -> String {
        hold(&self.problem).clone()
    }

    /// Takes the volume out of use because `doing` failed with `error`.
    pub(crate) fn degrade(&self, doing: &str, error: &dyn fmt::Display) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if self.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            *hold(&self.problem) = format!("{doing}: {error}");
            self.ring();
        }
    }

    pub(crate) fn set_released(&self) {
        let _ = self.state.compare_exchange(0, 2, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Wakes the volume's writing thread.
    pub(crate) fn ring(&self) {
        hold(&self.work).is_notified = true;
        self.wakeup.notify_one();
    }

    /// Waits until the writing thread is woken or `timeout` has passed.
    pub(crate) fn wait(&self, timeout: Duration) {
        let work = hold(&self.work);
        let notified = self.wakeup.wait_timeout_while(work, timeout, |work| !work.is_notified);
        notified.unwrap_or_else(PoisonError::into_inner).0.is_notified = false;
    }

    /// Takes the oldest check from the queue. If there is none, waits for up to `timeout`.
    pub(crate) fn next_check(&self, timeout: Duration) -> Option<Check> {
        let checks = hold(&self.checks);
        let checks = self
            .check_wakeup
            .wait_timeout_while(checks, timeout, |checks| checks.waiting.is_empty() && !checks.is_over);
        checks.unwrap_or_else(PoisonError::into_inner).0.waiting.pop_front()
    }

    /// Discards queued checks and refuses further ones.
    pub(crate) fn end_checks(&self) {
        let mut checks = hold(&self.checks);
        checks.is_over = true;
        checks.waiting.clear();
        self.check_wakeup.notify_all();
    }

    /// Wakes the verification thread.
    pub(crate) fn ring_checks(&self) {
        self.check_wakeup.notify_all();
    }

    /// Returns the number of bytes used by the index and all files.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.indexed_bytes.load(Ordering::Relaxed) + self.loose_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes in files that are not in the index.
    pub(crate) fn loose_bytes(&self) -> u64 {
        self.loose_bytes.load(Ordering::Relaxed)
    }

    /// Returns the remaining space in bytes, for the choice between volumes, or `None` if this volume must not receive
    /// another body of `expected` bytes.
    pub(crate) fn room_for(&self, expected: u64) -> Option<u64> {
        let loose = self.loose_bytes.load(Ordering::Relaxed);
        let fits = self.is_good()
            && !self.is_full()
            && !self.is_behind()
            && loose.saturating_add(expected) <= self.body_bytes_max();
        fits.then(|| self.bytes_max.saturating_sub(self.used_bytes()))
    }

    /// Returns the maximum size of a body in bytes, which prevents a single body from displacing everything else.
    pub(super) const fn body_bytes_max(&self) -> u64 {
        self.bytes_max / 2
    }

    /// Returns whether too many bytes have not been synced.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsynced_bytes.load(Ordering::Relaxed) > UNSYNCED_BYTES_MAX
    }

    #[cfg(test)]
    pub(crate) fn has_spares(&self) -> bool {
        hold(&self.work).spares.len() == SPARES
    }

    /// Takes a file created in advance. Returns `None` if there is none.
    pub(crate) fn take_spare(self: &Arc<Self>) -> Option<(Arc<BodyFile>, Arc<OwnedFd>)> {
        let spare = hold(&self.work).spares.pop();
        self.ring();
        let (id, fd) = spare?;
        let fd = Arc::new(fd);
        Some((BodyFile::new(self, id, &fd, BodyOrigin::Written(Mutex::default())), fd))
    }

    /// Creates a file. For the volume's writing thread.
    pub(crate) fn create(self: &Arc<Self>) -> io::Result<(Arc<BodyFile>, Arc<OwnedFd>)> {
        let (id, fd) = self.create_file()?;
        let fd = Arc::new(fd);
        Ok((BodyFile::new(self, id, &fd, BodyOrigin::Written(Mutex::default())), fd))
    }

    fn create_file(&self) -> io::Result<(FileId, OwnedFd)> {
        let id = FileId { stamp: self.stamp, number: self.number.fetch_add(1, Ordering::Relaxed) };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        Ok((id, rustix::fs::openat(&self.bodies, id.name(), flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Creates files in advance, removes unreferenced files and syncs growing files. For the volume's writing thread.
    pub(crate) fn tend(&self) {
        let (obsolete, unsynced) = {
            let mut work = hold(&self.work);
            (std::mem::take(&mut work.obsolete), std::mem::take(&mut work.unsynced))
        };
        for id in obsolete {
            self.unlink(id);
        }
        for file in unsynced {
            if let Err(error) = file.sync() {
                self.degrade("cannot write content", &error);
            }
        }
        while self.is_good() && !self.is_full() && hold(&self.work).spares.len() < SPARES {
            match self.create_file() {
                Ok(spare) => hold(&self.work).spares.push(spare),
                // A full disk does not take the volume out of use, since space may be freed.
                Err(error) if is_no_room(&error) => return self.note_refusal(),
                Err(error) => self.degrade("cannot create a file", &error),
            }
        }
    }

    /// Removes files created in advance and unreferenced files. For the volume's writing thread when it ends.
    pub(crate) fn tidy_up(&self) {
        let (spares, obsolete) = {
            let mut work = hold(&self.work);
            (std::mem::take(&mut work.spares), std::mem::take(&mut work.obsolete))
        };
        for id in spares.into_iter().map(|(id, _)| id).chain(obsolete) {
            self.unlink(id);
        }
    }

    pub(crate) fn open_file(&self, id: FileId) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.bodies, id.name(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Opens a file for direct I/O, or for reads through the page cache if direct I/O is unsupported.
    pub(crate) fn open_file_directly(&self, id: FileId) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.bodies, id.name(), flags | OFlags::DIRECT, Mode::empty()) {
            Err(rustix::io::Errno::INVAL) => self.open_file(id),
            opened => Ok(opened?),
        }
    }

    /// Removes a file. A missing file is not an error.
    pub(crate) fn unlink(&self, id: FileId) {
        match rustix::fs::unlinkat(&self.bodies, id.name(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(_) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Syncs the directory entries of new files, so that they survive a power loss.
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

    /// Removes files written by previous processes for which `is_known` returns false. Returns the number of files
    /// removed. Stops if the volume goes out of use.
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

/// Returns whether `error` means that the file system is full or a quota is exceeded.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A file on a volume. If it has not been indexed when the last reference is dropped, the file is removed.
#[derive(Debug)]
pub struct BodyFile {
    folder: Arc<StoreFolder>,
    id: FileId,
    /// Descriptor used for syncing and verification.
    fd: Arc<OwnedFd>,
    loose_bytes: AtomicU64,
    unsynced_bytes: AtomicU64,
    is_indexed: AtomicBool,
    origin: BodyOrigin,
}

/// Origin of a file's content.
#[derive(Debug)]
enum BodyOrigin {
    /// Written by this process. Contains the checksums from completion until the file is indexed.
    Written(Mutex<Option<Box<[u32]>>>),
    /// Restored from the index. Must be verified against the seal in the file before use.
    Restored(Proof),
}

impl BodyFile {
    fn new(folder: &Arc<StoreFolder>, id: FileId, fd: &Arc<OwnedFd>, origin: BodyOrigin) -> Arc<Self> {
        Arc::new(Self {
            folder: Arc::clone(folder),
            id,
            fd: Arc::clone(fd),
            loose_bytes: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            is_indexed: AtomicBool::new(matches!(origin, BodyOrigin::Restored(_))),
            origin,
        })
    }

    /// Creates the handle of a file that is in the index, with `bytes` bytes of content of the key `primary`.
    pub(crate) fn indexed(
        folder: &Arc<StoreFolder>,
        (id, fd): (FileId, &Arc<OwnedFd>),
        primary: Primary,
        bytes: u64,
    ) -> Arc<Self> {
        Self::new(folder, id, fd, BodyOrigin::Restored(Proof::new(Identity { primary, file: id, bytes })))
    }

    /// Returns whether the content may be used without verification, because this process wrote it or has verified all
    /// of it.
    #[inline]
    pub fn is_verified(&self) -> bool {
        match &self.origin {
            BodyOrigin::Written(_) => true,
            BodyOrigin::Restored(proof) => proof.is_whole(),
        }
    }

    /// Returns the end of the verified content that begins at `offset`, or `offset` itself if that byte must be
    /// verified first.
    pub fn verified_until(&self, offset: u64) -> u64 {
        match &self.origin {
            BodyOrigin::Written(_) => u64::MAX,
            BodyOrigin::Restored(proof) => proof.intact_until(offset),
        }
    }

    /// Queues verification of `range`, or of only the seal if `range` is empty. The reply is true if everything is
    /// intact. If the sender is dropped without a reply, the volume is no longer in use, and the content must not be
    /// used.
    pub fn check(self: &Arc<Self>, range: Range<u64>) -> oneshot::Receiver<bool> {
        let (reply, receiver) = oneshot::channel();
        let mut checks = hold(&self.folder.checks);
        if !checks.is_over && checks.waiting.len() < CHECKS_MAX {
            checks.waiting.push_back(Check { file: Arc::clone(self), range, reply });
            self.folder.check_wakeup.notify_one();
        }
        receiver
    }

    /// Verifies `range` immediately. For the verification thread.
    pub(crate) fn verify(&self, range: Range<u64>, buffer: &mut Buffer) -> Result<(), VolumeEvent> {
        match &self.origin {
            BodyOrigin::Written(_) => Ok(()),
            BodyOrigin::Restored(proof) => proof.verify(&self.fd, range, buffer),
        }
    }

    /// Sets the checksums of the content, which must be complete.
    pub(crate) fn set_sums(&self, sums: Box<[u32]>) {
        if let BodyOrigin::Written(written) = &self.origin {
            *hold(written) = Some(sums);
        }
    }

    /// Writes the seal for `bytes` bytes of content of the key `primary`. For the writing thread, before the file is
    /// indexed.
    pub(crate) fn seal(self: &Arc<Self>, primary: Primary, bytes: u64) -> io::Result<()> {
        let BodyOrigin::Written(sums) = &self.origin else { return Ok(()) };
        let encoded = {
            let sums = hold(sums);
            let sums = sums.as_ref().ok_or_else(|| io::Error::other("the content has no checksums"))?;
            seal::encode(&Identity { primary, file: self.id, bytes }, sums)
        };
        crate::body::write_at(&self.fd, &encoded, seal::seal_offset(bytes))?;
        self.grow(seal::file_bytes(bytes) - bytes);
        Ok(())
    }

    pub(crate) const fn id(&self) -> FileId {
        self.id
    }

    pub(crate) const fn folder(&self) -> &Arc<StoreFolder> {
        &self.folder
    }

    /// Returns whether `count` more bytes may be written within the limits.
    pub(crate) fn may_grow(&self, count: u64) -> bool {
        let bytes = self.loose_bytes.load(Ordering::Relaxed).saturating_add(count);
        let all = self.folder.loose_bytes.load(Ordering::Relaxed).saturating_add(count);
        bytes <= self.folder.body_bytes_max() && all <= self.folder.bytes_max
    }

    /// Accounts for `count` bytes written to the file.
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

    /// Accounts for `count` bytes freed in the file.
    pub(crate) fn shrink(&self, count: u64) {
        self.loose_bytes.fetch_sub(count, Ordering::Relaxed);
        self.folder.loose_bytes.fetch_sub(count, Ordering::Relaxed);
    }

    /// Syncs all bytes written so far to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let bytes = self.unsynced_bytes.load(Ordering::Acquire);
        rustix::fs::fdatasync(&*self.fd)?;
        self.unsynced_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.folder.unsynced_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Records that the index references the file, whose bytes from now on count as indexed.
    pub(crate) fn set_indexed(&self) {
        if !self.is_indexed.swap(true, Ordering::AcqRel) {
            let bytes = self.loose_bytes.swap(0, Ordering::Relaxed);
            self.folder.loose_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if let BodyOrigin::Written(sums) = &self.origin {
                // The checksums are in the file's seal now.
                *hold(sums) = None;
            }
        }
    }

    /// Returns whether the index references the file or has referenced it.
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
            hold(&self.folder.work).obsolete.push(self.id);
            self.folder.ring();
        }
    }
}
