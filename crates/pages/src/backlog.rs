//! Output of pages that is buffered for slow clients: in memory within one budget for all pages, then in unnamed files
//! within another budget. If both budgets are exhausted, no further page is started.

use crate::api::budget::{ContentBudget, RequestBudget};
use flatout_config::model::PageOutputBudget;
use flatout_handler::response::{FileBody, Segment};
use flatout_handler::shared::SharedBytes;
use flatout_os::file::{OpenFile, create_nameless_on_disk, write_all_at};
use flatout_os::memory::note_released;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Size below which output is not written to a file, in bytes, because each file costs a descriptor.
const FILE_BYTES_MIN: usize = 64 * 1024;

/// The budgets for the buffered output of the pages of all sites.
#[derive(Debug)]
pub struct Backlog {
    memory: Arc<ContentBudget>,
    disk: Arc<ContentBudget>,
    folder: PathBuf,
}

impl Default for Backlog {
    fn default() -> Self {
        let PageOutputBudget { memory_bytes_max, disk_bytes_max } = PageOutputBudget::default();
        Self {
            memory: Arc::new(ContentBudget::new(memory_bytes_max)),
            disk: Arc::new(ContentBudget::new(disk_bytes_max)),
            folder: std::env::temp_dir(),
        }
    }
}

/// The error if both budgets, or the client's shares of them, are exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BacklogFull;

impl Backlog {
    /// Changes the limits. Output that is already buffered is not affected.
    pub fn set_bounds(&self, bounds: PageOutputBudget) {
        self.memory.set_bytes_max(bounds.memory_bytes_max);
        self.disk.set_bytes_max(bounds.disk_bytes_max);
    }

    /// The budget for memory.
    pub const fn memory(&self) -> &Arc<ContentBudget> {
        &self.memory
    }

    /// The budget for files.
    pub const fn disk(&self) -> &Arc<ContentBudget> {
        &self.disk
    }

    /// Returns whether more output may be buffered for the client at this address.
    pub(crate) fn has_room_for(&self, client: Option<IpAddr>) -> bool {
        self.memory.has_room_for(client) || self.disk.has_room_for(client)
    }

    /// Buffers `buffer` until it has been sent to the client.
    pub(crate) fn keep(&self, mut buffer: Vec<u8>, client: Option<IpAddr>) -> Result<BufferedOutput, BacklogFull> {
        buffer.shrink_to_fit();
        let mut share = self.memory.share(client);
        if share.grow(buffer.capacity()).is_ok() {
            return Ok(BufferedOutput::Memory(SharedBytes::with_guard(buffer, Box::new(Released(share)))));
        }
        let mut share = self.disk.share(client);
        note_released(buffer.capacity() as u64);
        if buffer.len() < FILE_BYTES_MIN || share.grow(buffer.len()).is_err() {
            return Err(BacklogFull);
        }
        let written = create_nameless_on_disk(&self.folder).and_then(|fd| {
            write_all_at(&fd, &buffer, 0)?;
            Ok(fd)
        });
        let fd = written.map_err(|_| BacklogFull)?;
        Ok(BufferedOutput::File(Rc::new(OpenFile::own(Arc::new(fd)).with_guard(Box::new(share)))))
    }
}

pub(crate) enum BufferedOutput {
    Memory(SharedBytes),
    File(Rc<OpenFile>),
}

impl BufferedOutput {
    /// Returns a range of the buffered output.
    pub(crate) fn part(&self, range: Range<usize>) -> Segment {
        match self {
            Self::Memory(bytes) => Segment::Bytes(bytes.slice(range)),
            Self::File(file) => {
                let (offset, bytes) = (range.start as u64, range.len() as u64);
                Segment::File(FileBody { file: Rc::clone(file), offset, bytes })
            }
        }
    }
}

/// A share of the memory budget whose release also counts towards trimming the heap.
#[derive(Debug)]
struct Released(RequestBudget);

impl Drop for Released {
    fn drop(&mut self) {
        note_released(self.0.taken_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::{Backlog, BacklogFull, BufferedOutput, ContentBudget};
    use flatout_handler::response::Segment;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn backlog(memory: u64, disk: u64, folder: &str) -> Backlog {
        Backlog {
            memory: Arc::new(ContentBudget::new(memory)),
            disk: Arc::new(ContentBudget::new(disk)),
            folder: PathBuf::from(folder),
        }
    }

    #[test]
    fn output_goes_to_memory_then_to_files_then_nowhere() {
        let backlog = backlog(4 << 20, 8 << 20, "/tmp");
        let (one, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        let buffer = || (0..1 << 20).map(|at: u32| (at % 251) as u8).collect::<Vec<u8>>();
        let first = backlog.keep(buffer(), one).unwrap();
        assert!(matches!(&first, BufferedOutput::Memory(bytes) if **bytes == buffer()));
        let second = backlog.keep(buffer(), one).unwrap();
        let Segment::File(part) = second.part(1000..2000) else { panic!("in memory") };
        let mut read = vec![0; 1000];
        rustix::io::pread(&part.file.fd, &mut read, part.offset).unwrap();
        assert!(read == buffer()[1000..2000] && part.bytes == 1000);
        // What is small never costs a descriptor.
        assert_eq!(backlog.keep(vec![0; 1000], one).err(), Some(BacklogFull));
        let third = backlog.keep(buffer(), one).unwrap();
        assert_eq!(backlog.keep(buffer(), one).err(), Some(BacklogFull));
        assert!(!backlog.has_room_for(one) && backlog.has_room_for(other));
        assert!(matches!(backlog.keep(buffer(), other), Ok(BufferedOutput::Memory(_))));
        drop((first, second, third));
        // A part under way holds the file.
        assert_eq!((backlog.memory().held_bytes(), backlog.disk().held_bytes()), (0, 1 << 20));
        drop(part);
        assert_eq!(backlog.disk().held_bytes(), 0);
    }

    #[test]
    fn where_no_file_can_be_there_is_memory_alone() {
        let backlog = backlog(4 << 20, 8 << 20, "/does/not/exist");
        let _first = backlog.keep(vec![0; 1 << 20], None).unwrap();
        assert_eq!(backlog.keep(vec![0; 1 << 20], None).err(), Some(BacklogFull));
        assert_eq!(backlog.disk().held_bytes(), 0);
    }
}
