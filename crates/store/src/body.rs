//! Content of objects: bytes in memory, a memory file (memfd), or a file on a volume.

pub use crate::folder::BodyFile;

use crate::seal::ChunkSums;
use flatout_handler::budget::{Budget, BudgetUser, Held};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Maximum size in bytes of content that is stored as bytes in memory. Larger content is stored in a file and sent with
/// sendfile.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Content of an object.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// The body has no content.
    Empty,
    /// Content as bytes in memory, up to `INLINE_BYTES_MAX`.
    Memory(Arc<[u8]>),
    /// Content in a file that is complete and no longer written.
    File {
        /// The file. Readers must specify the position of each read.
        fd: Arc<OwnedFd>,
        /// Length of the content in bytes.
        bytes: u64,
        /// Handle of the file on its volume, or `None` for a memory file.
        place: Option<Arc<BodyFile>>,
    },
}

impl StoredBody {
    /// Returns the length of the content in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }

    /// Returns whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether both bodies are the same file.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        matches!((self, other), (Self::File { fd, .. }, Self::File { fd: other, .. }) if Arc::ptr_eq(fd, other))
    }

    /// Returns whether the body holds a file descriptor.
    pub(crate) const fn has_descriptor(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Returns the handle of the file on a volume, if the content is in one.
    pub(crate) const fn place(&self) -> Option<&Arc<BodyFile>> {
        match self {
            Self::File { place, .. } => place.as_ref(),
            _ => None,
        }
    }

    /// Returns whether all content may be sent without verification. Content restored from a volume must first be
    /// verified against its checksums.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.place().is_none_or(|place| place.is_verified())
    }

    /// Verifies the seal of the file, and `ranges` against their checksums. The volume's verification thread reads the
    /// file. Returns whether everything is intact. A damaged object is removed from the store.
    pub async fn verify(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> bool {
        let Some(place) = self.place().filter(|place| !place.is_verified()) else { return true };
        for range in std::iter::once(0..0).chain(ranges) {
            if !matches!(place.check(range).await, Ok(true)) {
                return false;
            }
        }
        true
    }

    /// Returns the number of bytes that the content uses in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::File { place: Some(_), .. } => 0,
            _ => self.len(),
        }
    }
}

/// Reason for not storing content. Bytes written before the failure stay readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The content is too large for all tiers, or other content uses the space.
    NoRoom,
    /// The kernel refused a write, even to a memory file.
    Failed,
}

/// Content that is still arriving. One worker writes it; all workers may read bytes that have been written.
#[derive(Debug)]
pub struct NewBody {
    fd: Arc<OwnedFd>,
    /// Handle of the file on a volume, or `None` for a memory file.
    place: Option<Arc<BodyFile>>,
    /// Reservation in the memory budget.
    held: Held,
    len: u64,
    /// Maximum size in bytes of the reservation.
    memory_bytes_max: u64,
    /// Number of bytes at the beginning whose space has been freed, except for `retained`.
    forgotten: u64,
    /// Ranges that must stay readable.
    retained: Vec<Range<u64>>,
    /// Checksums of all bytes written to a volume.
    sums: ChunkSums,
}

fn create_memory_file() -> Result<Arc<OwnedFd>, NotKept> {
    rustix::fs::memfd_create("flatout-body", MemfdFlags::CLOEXEC).map(Arc::new).map_err(|_| NotKept::Failed)
}

impl NewBody {
    /// Creates content in a memory file.
    pub(crate) fn in_memory(budget: &Arc<Budget>) -> Result<Self, NotKept> {
        let fd = create_memory_file()?;
        Ok(Self::new(fd, None, budget))
    }

    /// Creates content in a file on a volume.
    pub(crate) fn on_volume((place, fd): (Arc<BodyFile>, Arc<OwnedFd>), budget: &Arc<Budget>) -> Self {
        Self::new(fd, Some(place), budget)
    }

    fn new(fd: Arc<OwnedFd>, place: Option<Arc<BodyFile>>, budget: &Arc<Budget>) -> Self {
        Self {
            fd,
            place,
            held: Held::new(Arc::clone(budget), BudgetUser::Fills),
            len: 0,
            memory_bytes_max: u64::MAX,
            forgotten: 0,
            retained: Vec::new(),
            sums: ChunkSums::default(),
        }
    }

    /// Limits the memory that the content may use to a quarter of the budget. This is half of what content in flight
    /// may use, so that other responses can still be stored if this one turns out to be too large.
    pub(crate) fn limit_memory(&mut self) {
        self.memory_bytes_max = self.held.budget().bytes_max() / 4;
    }

    /// Appends `bytes`. Call `fd` again after each write, because the content moves to a memory file if the volume
    /// fails. The old file stays readable up to that point.
    ///
    /// # Errors
    /// Fails if the content cannot be stored. `len` is then unchanged, and the same bytes may be written again after
    /// `forget_before` has freed space.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), NotKept> {
        if let Some(place) = self.place.clone() {
            if !place.may_grow(bytes.len() as u64) {
                return Err(NotKept::NoRoom);
            }
            match write_at(&self.fd, bytes, self.len) {
                Ok(()) => {
                    place.grow(bytes.len() as u64);
                    self.sums.add(bytes);
                    self.len += bytes.len() as u64;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    place.folder().note_refusal();
                }
                Err(error) => place.folder().degrade("cannot write content", &error),
            }
            self.move_to_memory()?;
        }
        let before = self.held.bytes();
        let count = bytes.len() as u64;
        if before.saturating_add(count) > self.memory_bytes_max || !self.held.try_grow(count) {
            return Err(NotKept::NoRoom);
        }
        if write_at(&self.fd, bytes, self.len).is_err() {
            self.held.set(before);
            return Err(NotKept::Failed);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Copies the content from a failing volume to a memory file. Most of it is still in the page cache.
    fn move_to_memory(&mut self) -> Result<(), NotKept> {
        let kept = self.len - self.forgotten;
        let before = self.held.bytes();
        if before.saturating_add(kept) > self.memory_bytes_max || !self.held.try_grow(kept) {
            return Err(NotKept::NoRoom);
        }
        let copy = || {
            let fd = create_memory_file()?;
            let mut buffer = vec![0; INLINE_BYTES_MAX];
            let mut offset = self.forgotten;
            while offset < self.len {
                let wanted = buffer.len().min((self.len - offset) as usize);
                let count = match rustix::io::pread(&self.fd, &mut buffer[..wanted], offset) {
                    Ok(0) => return Err(NotKept::Failed),
                    Ok(count) => count,
                    Err(Errno::INTR) => continue,
                    Err(_) => return Err(NotKept::Failed),
                };
                write_at(&fd, &buffer[..count], offset).map_err(|_| NotKept::Failed)?;
                offset += count as u64;
            }
            Ok(fd)
        };
        match copy() {
            Ok(fd) => {
                self.fd = fd;
                self.place = None;
                Ok(())
            }
            Err(error) => {
                self.held.set(before);
                Err(error)
            }
        }
    }

    /// Returns the file, whose first `len()` bytes may be read at any time.
    pub const fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }

    /// Returns the number of bytes written.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether nothing has been written.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the volume has fallen behind, so that writes may have to wait for its disk. The caller should
    /// then pause reading from the origin for a few milliseconds.
    pub fn is_behind(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.folder().is_behind())
    }

    /// Turns the content into a window between an origin and its readers, which will not be stored.
    pub fn become_window(&mut self) {
        self.held.move_to(BudgetUser::Windows);
    }

    /// Keeps `range` readable, whatever is freed later.
    pub fn retain(&mut self, range: Range<u64>) {
        self.retained.push(range);
        self.retained.sort_unstable_by_key(|range| range.start);
    }

    /// Frees the space of the content before `offset`, except for retained ranges. It must not be read again. The
    /// content can no longer be stored; it becomes a window between an origin and its readers. Returns whether this has
    /// freed any space.
    pub fn forget_before(&mut self, offset: u64) -> bool {
        /// Granularity in bytes, to avoid a system call for every page.
        const STEP: u64 = 64 * 1024;
        let end = offset.min(self.len) / STEP * STEP;
        let mut start = self.forgotten;
        if end <= start {
            return false;
        }
        self.forgotten = end;
        let mut has_freed = false;
        let retained = std::mem::take(&mut self.retained);
        for range in retained.iter().filter(|range| range.start < end) {
            has_freed |= self.free(start..range.start / STEP * STEP);
            start = start.max(range.end.next_multiple_of(STEP));
        }
        self.retained = retained;
        self.free(start..end) || has_freed
    }

    /// Frees the space of `range`. Returns whether it has freed any.
    fn free(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let count = range.end - range.start;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If this is unsupported, the space is freed when the file is closed.
        let is_freed = rustix::fs::fallocate(&self.fd, punch, range.start, count).is_ok();
        if is_freed {
            match &self.place {
                None => self.held.set(self.held.bytes().saturating_sub(count)),
                Some(place) => place.shrink(count),
            }
        }
        is_freed
    }

    /// Returns the memory file and the reservation for the bytes left in it, if there are any and a response is still
    /// being sent from the file.
    pub(crate) fn into_shared_memory_file(self) -> Option<(Arc<OwnedFd>, Held)> {
        (self.held.bytes() > 0 && Arc::strong_count(&self.fd) > 1).then_some((self.fd, self.held))
    }

    /// Finishes complete content. Returns `None` if some of it has been freed.
    #[must_use]
    pub fn finish(mut self) -> Option<StoredBody> {
        let is_whole = self.forgotten == 0;
        if let Some(place) = &self.place {
            place.set_sums(std::mem::take(&mut self.sums).finish());
        }
        is_whole.then(|| StoredBody::File { fd: Arc::clone(&self.fd), bytes: self.len, place: self.place.take() })
    }
}

/// Writes all of `bytes` to `fd` at `offset`.
pub(crate) fn write_at(fd: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
