//! Content that is held in memory while small, then in an unnamed file that is deleted with its last reference.

use crate::file::{create_nameless, create_nameless_in_memory, write_all_at};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pread};
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Largest size of a spool in the process's memory, in bytes. Larger content is written to the file.
pub const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// The unnamed file for large spools, created on first use. Spools that are filled one after the other may share a
/// file, and thus a descriptor.
#[derive(Debug)]
pub struct SpoolFile {
    folder: Option<PathBuf>,
    file: OnceCell<OwnedFd>,
    bytes: Cell<u64>,
}

impl SpoolFile {
    /// A file that will be created in `folder`. Without a folder, or if the folder cannot hold unnamed files, the file
    /// is in memory, which the kernel may swap out.
    pub fn new(folder: Option<&Path>) -> Rc<Self> {
        Rc::new(Self { folder: folder.map(Path::to_owned), file: OnceCell::new(), bytes: Cell::new(0) })
    }

    fn file(&self) -> Result<&OwnedFd, Errno> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let created = self.folder.as_deref().map_or_else(create_nameless_in_memory, create_nameless)?;
        Ok(self.file.get_or_init(|| created))
    }

    fn append(&self, bytes: &[u8]) -> Result<(), Errno> {
        write_all_at(self.file()?, bytes, self.bytes.get())?;
        self.bytes.set(self.bytes.get() + bytes.len() as u64);
        Ok(())
    }
}

/// Content that is appended, then read any number of times.
#[derive(Debug, Default)]
pub struct Spool(RefCell<Place>);

#[derive(Debug)]
enum Place {
    Memory(Vec<u8>),
    /// A range of the file.
    File {
        file: Rc<SpoolFile>,
        start: u64,
        bytes: u64,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Spool {
    /// Appends `bytes`, which are written to `file` if the content is large. No other spool may append to that file
    /// before this spool is complete.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn append(&self, bytes: &[u8], file: &Rc<SpoolFile>) -> Result<(), Errno> {
        let mut place = self.0.borrow_mut();
        if let Place::Memory(memory) = &mut *place {
            if memory.len() + bytes.len() <= MEMORY_BYTES_MAX {
                memory.extend_from_slice(bytes);
                return Ok(());
            }
            let start = file.bytes.get();
            file.append(memory)?;
            *place = Place::File { start, bytes: memory.len() as u64, file: Rc::clone(file) };
        }
        if let Place::File { file, bytes: length, .. } = &mut *place {
            file.append(bytes)?;
            *length += bytes.len() as u64;
        }
        Ok(())
    }

    /// Frees the space that `range` of the content occupies in the file. Its bytes read as zeros afterwards. Content in
    /// the process's memory is unaffected.
    ///
    /// # Errors
    /// If the file system cannot free a part of a file.
    pub fn discard(&self, range: Range<u64>) -> Result<(), Errno> {
        match &*self.0.borrow() {
            Place::File { file, start, bytes } if range.start < range.end.min(*bytes) => {
                let count = range.end.min(*bytes) - range.start;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file.file()?, flags, start + range.start, count)
            }
            Place::Memory(_) | Place::File { .. } => Ok(()),
        }
    }

    /// Number of bytes of the content in the process's memory.
    pub fn held_bytes(&self) -> usize {
        match &*self.0.borrow() {
            Place::Memory(memory) => memory.len(),
            Place::File { .. } => 0,
        }
    }

    /// Length of the content in bytes.
    pub fn len(&self) -> u64 {
        match &*self.0.borrow() {
            Place::Memory(memory) => memory.len() as u64,
            Place::File { bytes, .. } => *bytes,
        }
    }

    /// Returns whether the content is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to `count` bytes starting at `offset`; fewer only at the end.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>, Errno> {
        match &*self.0.borrow() {
            Place::Memory(memory) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(memory.len());
                let end = start.saturating_add(count).min(memory.len());
                Ok(memory[start..end].to_vec())
            }
            Place::File { file, start, bytes } => {
                let count = u64::try_from(count).unwrap_or(u64::MAX).min(bytes.saturating_sub(offset));
                let mut read = vec![0; usize::try_from(count).unwrap_or(0)];
                let mut filled = 0;
                while filled < read.len() {
                    match pread(file.file()?, &mut read[filled..], start + offset + filled as u64) {
                        Ok(0) => break,
                        Ok(more) => filled += more,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error),
                    }
                }
                read.truncate(filled);
                Ok(read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_BYTES_MAX, Spool, SpoolFile};
    use std::path::Path;

    #[test]
    fn spooled_content_reads_back_from_memory_and_files() {
        let temporary = std::env::temp_dir();
        for folder in [Some(&*temporary), Some(Path::new("/does/not/exist")), None] {
            for length in [0, 10, MEMORY_BYTES_MAX, MEMORY_BYTES_MAX + 1, 3 * MEMORY_BYTES_MAX] {
                let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                let (spool, file) = (Spool::default(), SpoolFile::new(folder));
                for piece in content.chunks(1000) {
                    spool.append(piece, &file).unwrap();
                }
                assert_eq!(spool.held_bytes(), if length > MEMORY_BYTES_MAX { 0 } else { length });
                assert_eq!((spool.len(), spool.is_empty()), (length as u64, length == 0));
                assert_eq!(spool.read(0, usize::MAX).unwrap(), content);
                assert_eq!(spool.read(5, 3).unwrap(), content.get(5..8).unwrap_or_default());
                assert!(spool.read(length as u64, 10).unwrap().is_empty());
                assert!(spool.read(u64::MAX, 10).unwrap().is_empty());
            }
        }
    }

    #[test]
    fn discarded_content_occupies_no_space() {
        // A file system may account for its space later, but a file in memory does so at once.
        let (spool, file) = (Spool::default(), SpoolFile::new(None));
        let length = 32 * MEMORY_BYTES_MAX;
        spool.append(&vec![b'a'; length], &file).unwrap();
        let occupied = || rustix::fs::fstat(file.file().unwrap()).unwrap().st_blocks.unsigned_abs() * 512;
        assert_eq!(occupied(), length as u64);
        spool.discard(0..length as u64 / 2).unwrap();
        assert_eq!(occupied(), length as u64 / 2);
        assert_eq!((spool.len(), spool.read(0, 1).unwrap()), (length as u64, vec![0]));
        assert_eq!(spool.read(length as u64 / 2, usize::MAX).unwrap(), vec![b'a'; length / 2]);
        spool.discard(0..u64::MAX).unwrap();
        assert_eq!(occupied(), 0);
        let (spool, file) = (Spool::default(), SpoolFile::new(None));
        spool.append(b"abc", &file).unwrap();
        spool.discard(0..3).unwrap();
        assert_eq!(spool.read(0, 3).unwrap(), b"abc");
    }

    #[test]
    fn large_files_of_a_form_share_one() {
        let file = SpoolFile::new(Some(&std::env::temp_dir()));
        let spools: Vec<_> = (0..4_usize)
            .map(|number| {
                let spool = Spool::default();
                // The third is small.
                let length = if number == 2 { 10 } else { MEMORY_BYTES_MAX + number + 1 };
                for piece in vec![number as u8; length].chunks(30_000) {
                    spool.append(piece, &file).unwrap();
                }
                (spool, length)
            })
            .collect();
        for (number, (spool, length)) in spools.iter().enumerate() {
            assert_eq!(spool.read(0, usize::MAX).unwrap(), vec![number as u8; *length]);
            assert_eq!(spool.read(*length as u64 - 1, 5).unwrap(), [number as u8]);
        }
        let bytes: usize = [0, 1, 3].iter().map(|number| MEMORY_BYTES_MAX + number + 1).sum();
        assert_eq!(file.bytes.get(), bytes as u64);
    }
}
