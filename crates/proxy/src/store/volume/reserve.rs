//! Room on the file system that belongs to the index.
//!
//! The index must not meet the end of the file system within a transaction: a database that was refused a page cannot be
//! used any more. So a file of some MiB holds room for it. When the file system refuses the index a write, the file gives
//! its room back and the write is tried again; the volume is full from then on, and what it still writes, removals and
//! purges, fits. The file is filled again when there is room.
//!
//! A file system that gives the room to somebody else in that moment refuses the second write as well. Then the volume is
//! given up, as after any other failure.

use crate::store::folder::is_no_room;
use crate::store::private::create_private_file;
use redb::{BackendError, StorageBackend, backends::FileBackend};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The file's name in the volume's folder.
pub(super) const FILE_NAME: &str = "reserve";

/// Bytes of it: some hundred pages of each of the index's tables, which is what a step of a full volume changes.
pub(super) const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// The file that holds room.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    spent: AtomicU64,
}

impl Reserve {
    /// The reserve of the volume in `folder`, as it was left; empty where there was none.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: create_private_file(&folder.join(FILE_NAME))?, spent: AtomicU64::new(0) })
    }

    /// Takes the room, unless it has it already. A file system that cannot promise room, or has none, leaves it empty.
    pub(super) fn fill(&self) {
        if self.file.metadata().is_ok_and(|data| data.len() >= RESERVE_BYTES) {
            return;
        }
        if rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err() {
            // Part of it may have been taken.
            let _ = self.file.set_len(0);
        }
    }

    /// Gives the room back. Returns whether there was any.
    fn spend(&self) -> bool {
        let is_filled = self.file.metadata().is_ok_and(|data| data.len() > 0);
        self.spent.fetch_add(u64::from(is_filled), Ordering::Release);
        is_filled && self.file.set_len(0).is_ok()
    }

    /// How often it was spent.
    pub(super) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Acquire)
    }

    /// Does something that takes room, a second time with the reserve's where it is refused.
    fn with_room<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_no_room(&error) && self.spend() => work(),
            outcome => outcome,
        }
    }
}

/// The index's file, which takes room from the reserve where the file system has none.
#[derive(Debug)]
pub(super) struct IndexFile {
    file: FileBackend,
    reserve: Arc<Reserve>,
}

impl IndexFile {
    pub(super) const fn new(file: FileBackend, reserve: Arc<Reserve>) -> Self {
        Self { file, reserve }
    }
}

impl StorageBackend for IndexFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.reserve.with_room(|| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.reserve.with_room(|| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
