//! Content of objects: in memory, in a memory file, or in a file on a volume.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Content up to this many bytes is kept as bytes; more goes to a file and is sent by sendfile.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The content of an object.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// None.
    Empty,
    /// All of it as bytes, up to `INLINE_BYTES_MAX`.
    Memory(Arc<[u8]>),
    /// A file that nobody writes any more.
    File {
        /// The file; read by position only.
        fd: Arc<OwnedFd>,
        /// How long it is.
        bytes: u64,
        /// What keeps the file on its volume; `None` for a memory file.
        place: Option<Arc<BodyFile>>,
    },
}

/// A file on a volume. It is removed when the last object with it is gone without having been indexed.
#[derive(Debug)]
pub struct BodyFile {
    _private: (),
}

impl StoredBody {
    /// How long the content is, in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::File { place: Some(_), .. } => 0,
            _ => self.len(),
        }
    }
}

/// Content that arrives. One worker writes; all may read what has been written, by position.
#[derive(Debug)]
pub struct NewBody {
    _private: (),
}

/// Why content is not kept. What has been written so far stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// It is larger than what any tier may hold, or than what is free of it while others fill.
    NoRoom,
    /// The kernel refused to write, even to memory.
    Failed,
}

impl NewBody {
    /// Appends `bytes`. Call `fd` again after each write: when a volume fails, all that was written is moved to a memory
    /// file, and the old file stays readable as far as it was.
    ///
    /// # Errors
    /// When the content cannot be kept. Nothing of `bytes` was written then.
    pub fn write(&mut self, _bytes: &[u8]) -> Result<(), NotKept> {
        unimplemented!()
    }

    /// The file, of which `len()` bytes may be read at any time by anybody.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        unimplemented!()
    }

    /// How much has been written, in bytes.
    pub fn len(&self) -> u64 {
        unimplemented!()
    }

    /// Whether nothing has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the volume has fallen behind, so that more writes might have to wait for its disk: a good moment to read
    /// less from the origin for a few milliseconds.
    pub fn is_behind(&self) -> bool {
        unimplemented!()
    }

    /// Gives back the space of all that lies before `offset`, which nobody will read any more. The content cannot be
    /// stored afterwards; the file serves as a window between an origin and its readers.
    pub fn forget_before(&mut self, _offset: u64) {
        unimplemented!()
    }

    /// The content is whole. `None` when part of it was forgotten.
    #[must_use]
    pub fn finish(self) -> Option<StoredBody> {
        unimplemented!()
    }
}
