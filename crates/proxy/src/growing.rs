//! Buffer for content that is still arriving while readers stream it.
//!
//! At first, the content is a list of pieces in memory. Above [`MEMORY_BYTES_MAX`], it moves to a file, from which the
//! kernel sends it to the readers' sockets. Bytes never change once written.

use flatout_handler::budget::{BudgetUser, Held};
use flatout_handler::response::{FileBody, Segment};
use flatout_os::file::OpenFile;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// Maximum size in bytes of content that stays in memory. Larger content is written to a file and sent with sendfile,
/// like static files.
pub const MEMORY_BYTES_MAX: u64 = 64 * 1024;

/// Maximum size in bytes of a segment for a reader. Small enough that all readers of a fetch finish at about the same
/// time.
pub const SEGMENT_BYTES_MAX: u64 = 128 * 1024;

/// Maximum lag in bytes of the slowest of several readers of content that is not stored. Beyond that, reading from the
/// origin pauses. Not available if memory is short.
pub const WINDOW_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Content to which pieces are appended as they arrive.
#[derive(Debug, Default)]
pub struct Growing {
    /// Offset and bytes of each piece. Empty if the content is in a file.
    pieces: Vec<(u64, Arc<[u8]>)>,
    file: Option<Arc<OwnedFd>>,
    bytes: u64,
    /// Reservation for the pieces in the memory budget; `None` if they are not counted.
    held: Option<Held>,
}

/// A range of the content. Can be sent to any thread.
#[derive(Clone, Debug)]
pub enum FillPiece {
    /// The bytes of this piece from this offset on.
    Bytes(Arc<[u8]>, usize),
    /// This number of bytes of the file.
    File(Arc<OwnedFd>, u64),
}

impl Growing {
    /// Returns the number of bytes received so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts the pieces in the reservation `held` from now on.
    pub fn count_by(&mut self, mut held: Held) {
        held.set(self.pieces_bytes());
        self.held = Some(held);
    }

    /// Counts the pieces under the budget user `share` from now on.
    pub fn move_count_to(&mut self, share: BudgetUser) {
        if let Some(held) = &mut self.held {
            held.move_to(share);
        }
    }

    /// Returns the total size of the pieces in memory, in bytes.
    fn pieces_bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| piece.len() as u64).sum()
    }

    fn count(&mut self) {
        let bytes = self.pieces_bytes();
        if let Some(held) = &mut self.held {
            held.set(bytes);
        }
    }

    /// Appends `piece` to the content in memory.
    pub fn push(&mut self, piece: Arc<[u8]>) {
        if !piece.is_empty() {
            let length = piece.len() as u64;
            self.pieces.push((self.bytes, piece));
            self.bytes += length;
            self.count();
        }
    }

    /// Returns the content as one piece, or `None` if it is in a file.
    pub fn join(&self) -> Option<Arc<[u8]>> {
        if self.file.is_some() {
            return None;
        }
        if let [(_, piece)] = &self.pieces[..] {
            return Some(Arc::clone(piece));
        }
        let mut whole = Vec::with_capacity(usize::try_from(self.bytes).ok()?);
        for (_, piece) in &self.pieces {
            whole.extend_from_slice(piece);
        }
        Some(whole.into())
    }

    /// Iterates over the pieces in memory, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|(_, piece)| &piece[..])
    }

    /// Switches to `file`, which contains all `bytes` bytes of the content, and drops the pieces in memory.
    pub fn move_to(&mut self, file: Arc<OwnedFd>, bytes: u64) {
        self.file = Some(file);
        self.pieces = Vec::new();
        self.bytes = bytes;
        self.count();
    }

    /// Continues in memory without the file. All readers must have read the content of the file.
    pub fn leave_file(&mut self) {
        self.file = None;
    }

    /// Drops the pieces in memory that end at or before `offset`.
    pub fn forget_before(&mut self, offset: u64) {
        let gone = self.pieces.iter().take_while(|(start, piece)| start + piece.len() as u64 <= offset).count();
        if gone > 0 {
            self.pieces.drain(..gone);
            self.count();
        }
    }

    /// Returns the content available from `offset` on, or `None` if there is none yet.
    pub fn part(&self, offset: u64) -> Option<FillPiece> {
        if offset >= self.bytes {
            return None;
        }
        if let Some(file) = &self.file {
            return Some(FillPiece::File(Arc::clone(file), self.bytes - offset));
        }
        let index = self.pieces.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
        let (start, piece) = self.pieces.get(index)?;
        Some(FillPiece::Bytes(Arc::clone(piece), usize::try_from(offset - start).ok()?))
    }
}

/// Converts ranges of content to segments for one reader. Reuses the open file between segments.
#[derive(Debug, Default)]
pub struct Cutter {
    /// The last file used. It is replaced if a different file appears.
    file: Option<Rc<OpenFile>>,
}

impl Cutter {
    /// Returns a segment of up to `bytes_max` bytes from `part`, which begins at `offset`.
    pub fn cut(&mut self, part: FillPiece, offset: u64, bytes_max: u64) -> Segment {
        match part {
            FillPiece::Bytes(piece, from) => {
                let length = ((piece.len() - from) as u64).min(bytes_max);
                let whole = flatout_handler::shared::SharedBytes::from(piece);
                Segment::Bytes(whole.slice(from..from + length as usize))
            }
            FillPiece::File(fd, bytes) => {
                let opened = self.file.take().filter(|opened| Arc::ptr_eq(&opened.fd, &fd));
                let file = self.file.insert(opened.unwrap_or_else(|| Rc::new(OpenFile::own(fd))));
                let bytes = bytes.min(bytes_max).min(SEGMENT_BYTES_MAX);
                Segment::File(FileBody { file: Rc::clone(file), offset, bytes })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cutter, FillPiece, Growing};
    use flatout_handler::response::Segment;
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::{pread, pwrite};
    use std::sync::Arc;

    #[test]
    fn parts_are_found_wherever_a_reader_is() {
        let mut growing = Growing::default();
        assert!(growing.part(0).is_none());
        growing.push(Arc::from(&b"abc"[..]));
        growing.push(Arc::from(&b""[..]));
        growing.push(Arc::from(&b"defgh"[..]));
        let mut cutter = Cutter::default();
        let mut read = |growing: &Growing, offset| match cutter.cut(growing.part(offset)?, offset, 3) {
            Segment::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Segment::File(file) => Some(format!("{}+{}", file.offset, file.bytes)),
        };
        for (offset, expected) in [(0, "abc"), (1, "bc"), (2, "c"), (3, "def"), (6, "gh"), (7, "h")] {
            assert_eq!(read(&growing, offset).as_deref(), Some(expected));
        }
        assert_eq!(read(&growing, 8), None);
        assert_eq!(growing.join().as_deref(), Some(&b"abcdefgh"[..]));
        let file = Arc::new(memfd_create("growing", MemfdFlags::CLOEXEC).unwrap());
        assert_eq!(pwrite(&file, b"abcdefghij", 0), Ok(10));
        growing.move_to(file, 10);
        assert!(matches!(growing.part(4), Some(FillPiece::File(_, 6))));
        assert_eq!(read(&growing, 4).as_deref(), Some("4+3"));
        assert!(growing.join().is_none() && growing.part(10).is_none());
    }

    /// Simulates a full volume: the written bytes are copied to memory.
    #[test]
    fn a_reader_follows_the_content_to_another_file() {
        let mut growing = Growing::default();
        let mut cutter = Cutter::default();
        let mut read = |growing: &Growing, offset| match cutter.cut(growing.part(offset)?, offset, 3) {
            Segment::Bytes(_) => None,
            Segment::File(body) => {
                let mut bytes = [0; 3];
                let count = pread(&body.file.fd, &mut bytes, body.offset).unwrap();
                Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
            }
        };
        let old = Arc::new(memfd_create("old", MemfdFlags::CLOEXEC).unwrap());
        assert_eq!(pwrite(&old, b"abcd", 0), Ok(4));
        growing.move_to(old, 4);
        assert_eq!(read(&growing, 0).as_deref(), Some("abc"));
        let new = Arc::new(memfd_create("new", MemfdFlags::CLOEXEC).unwrap());
        assert_eq!(pwrite(&new, b"abcdefgh", 0), Ok(8));
        growing.move_to(new, 8);
        assert_eq!(read(&growing, 3).as_deref(), Some("def"));
    }
}
