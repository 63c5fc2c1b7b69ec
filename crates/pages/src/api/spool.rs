//! Where a file that is uploaded stays while the page looks at it: in memory while it is small, then in a file without
//! a name, which is gone with the last who holds it.

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::{Errno, pread, write};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes that are kept in memory of the process; more goes into a file.
pub const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// The bytes of one file that was uploaded.
#[derive(Debug, Default)]
pub struct Spool(RefCell<Place>);

#[derive(Debug)]
enum Place {
    Memory(Vec<u8>),
    File { file: OwnedFd, bytes: u64 },
}

impl Default for Place {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Spool {
    /// Appends `bytes`. A file is made in `folder`, or in memory of the kernel where that cannot be (a worker that is
    /// confined may make no files).
    pub fn append(&self, bytes: &[u8], folder: &Path) -> Result<(), Errno> {
        let mut place = self.0.borrow_mut();
        if let Place::Memory(memory) = &mut *place {
            if memory.len() + bytes.len() <= MEMORY_BYTES_MAX {
                memory.extend_from_slice(bytes);
                return Ok(());
            }
            let file = create(folder)?;
            write_all(&file, memory)?;
            *place = Place::File { bytes: memory.len() as u64, file };
        }
        if let Place::File { file, bytes: length } = &mut *place {
            write_all(file, bytes)?;
            *length += bytes.len() as u64;
        }
        Ok(())
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        match &*self.0.borrow() {
            Place::Memory(memory) => memory.len() as u64,
            Place::File { bytes, .. } => *bytes,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `count` bytes from `offset` on.
    pub fn read(&self, offset: u64, count: usize) -> Result<Vec<u8>, Errno> {
        match &*self.0.borrow() {
            Place::Memory(memory) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(memory.len());
                let end = start.saturating_add(count).min(memory.len());
                Ok(memory[start..end].to_vec())
            }
            Place::File { file, bytes } => {
                let count = u64::try_from(count).unwrap_or(u64::MAX).min(bytes.saturating_sub(offset));
                let mut read = vec![0; usize::try_from(count).unwrap_or(0)];
                let mut filled = 0;
                while filled < read.len() {
                    match pread(file, &mut read[filled..], offset + filled as u64) {
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

fn create(folder: &Path) -> Result<OwnedFd, Errno> {
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    open(folder, unnamed, Mode::RUSR | Mode::WUSR).or_else(|_| memfd_create(c"flatout-upload", MemfdFlags::CLOEXEC))
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MEMORY_BYTES_MAX, Spool};
    use std::path::Path;

    #[test]
    fn what_goes_in_comes_out_of_memory_and_of_files() {
        let folders = [std::env::temp_dir(), Path::new("/does/not/exist").to_owned()];
        for folder in &folders {
            for length in [0, 10, MEMORY_BYTES_MAX, MEMORY_BYTES_MAX + 1, 3 * MEMORY_BYTES_MAX] {
                let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                let spool = Spool::default();
                for piece in content.chunks(1000) {
                    spool.append(piece, folder).unwrap();
                }
                assert_eq!((spool.len(), spool.is_empty()), (length as u64, length == 0));
                assert_eq!(spool.read(0, usize::MAX).unwrap(), content);
                assert_eq!(spool.read(5, 3).unwrap(), content.get(5..8).unwrap_or_default());
                assert!(spool.read(length as u64, 10).unwrap().is_empty());
                assert!(spool.read(u64::MAX, 10).unwrap().is_empty());
            }
        }
    }
}
