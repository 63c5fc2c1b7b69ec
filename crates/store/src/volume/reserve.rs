//! Disk space reserved for the index.
//!
//! The index must not run out of disk space during a transaction, because a database that cannot allocate a page
//! becomes unusable. Therefore, a file of a few MiB reserves space. If the file system refuses a write to the index,
//! the space of this file is freed and the write is retried. The volume is then full, but the writes that are still
//! necessary (removals and purges) fit. The space is reserved again when the file system has room.
//!
//! If another process takes the space at that moment, the second write fails too. The volume then goes out of use, as
//! after any other failure.

use crate::folder::is_no_room;
use crate::private::create_private_file;
use redb::{BackendError, StorageBackend, backends::FileBackend};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the reserve file in the volume's folder.
pub(super) const FILE_NAME: &str = "reserve";

/// Size of the reserve in bytes: some hundred pages for each table of the index, which is what a step of a full volume
/// changes.
pub(super) const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// The file that reserves space.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    spent: AtomicU64,
}

impl Reserve {
    /// Opens the reserve of the volume in `folder` in its last state. If the file is missing, creates an empty one.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: create_private_file(&folder.join(FILE_NAME))?, spent: AtomicU64::new(0) })
    }

    /// Reserves the space unless it is already reserved. If the file system is full or cannot reserve space, leaves the
    /// file empty.
    pub(super) fn fill(&self) {
        if self.file.metadata().is_ok_and(|data| data.len() >= RESERVE_BYTES) {
            return;
        }
        if rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err() {
            // Some of the space may have been allocated.
            let _ = self.file.set_len(0);
        }
    }

    /// Frees the space. Returns whether any was reserved.
    fn spend(&self) -> bool {
        let is_filled = self.file.metadata().is_ok_and(|data| data.len() > 0);
        self.spent.fetch_add(u64::from(is_filled), Ordering::Release);
        is_filled && self.file.set_len(0).is_ok()
    }

    /// Returns the number of times that the space was freed.
    pub(super) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Acquire)
    }

    /// Performs a write. If it is refused for lack of space, frees the reserved space and retries.
    fn with_room<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_no_room(&error) && self.spend() => work(),
            outcome => outcome,
        }
    }
}

/// File of the index, whose writes use the reserve if the file system is full.
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
