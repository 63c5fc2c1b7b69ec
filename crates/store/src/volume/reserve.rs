//! Disk space reserved for the index.
//!
//! The index must not run out of disk space within a transaction: a database that was refused a page is unusable.
//! Therefore a file of some MiB reserves space. If the file system refuses the index a write, the file frees its space
//! and the write is retried. The volume is then full; its remaining writes, removals and purges, fit. The file is
//! refilled once there is space.
//!
//! If the file system gives the space to another process at that moment, the second write fails too. The volume then
//! goes out of use, as after any other failure.

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

/// File name in the volume's folder.
pub(super) const FILE_NAME: &str = "reserve";

/// Its size: some hundred pages for each of the index's tables, the amount that a step of a full volume changes.
pub(super) const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// The file that reserves space.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    spent: AtomicU64,
}

impl Reserve {
    /// Opens the reserve of the volume in `folder` in its last state; empty if it is missing.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        Ok(Self { file: create_private_file(&folder.join(FILE_NAME))?, spent: AtomicU64::new(0) })
    }

    /// Reserves the space if necessary. Stays empty if the file system cannot reserve space or has none.
    pub(super) fn fill(&self) {
        if self.file.metadata().is_ok_and(|data| data.len() >= RESERVE_BYTES) {
            return;
        }
        if rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, RESERVE_BYTES).is_err() {
            // Part of it may have been allocated.
            let _ = self.file.set_len(0);
        }
    }

    /// Frees the space. Returns whether there was any.
    fn spend(&self) -> bool {
        let is_filled = self.file.metadata().is_ok_and(|data| data.len() > 0);
        self.spent.fetch_add(u64::from(is_filled), Ordering::Release);
        is_filled && self.file.set_len(0).is_ok()
    }

    /// Number of times that it was spent.
    pub(super) fn spent(&self) -> u64 {
        self.spent.load(Ordering::Acquire)
    }

    /// Performs a write, and if it is refused, once more with the reserve's space.
    fn with_room<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match work() {
            Err(error) if is_no_room(&error) && self.spend() => work(),
            outcome => outcome,
        }
    }
}

/// File of the index, which uses the reserve if the file system is full.
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
