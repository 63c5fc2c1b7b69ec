//! Pipes, FIFOs, terminals, devices and sockets: targets whose reader may be slow.

use super::sink::{IncompleteWrite, Written};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;

/// Bytes of one write. A pipe takes this much atomically (PIPE_BUF), and reports that it is writable once it has this
/// much room: so lines are never interleaved with those of other writers, and the writer never blocks, even on a
/// shared, blocking pipe.
const PIECE_BYTES_MAX: usize = 4096;

/// A target that is written piece by piece while it accepts pieces.
#[derive(Debug)]
pub(super) struct StreamTarget {
    file: File,
    /// The last line written is incomplete for good.
    torn: bool,
}

impl StreamTarget {
    pub(super) const fn new(file: File) -> Self {
        Self { file, torn: false }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Written {
        let mut taken = 0;
        while taken < bytes.len() {
            let piece = if self.torn { b"\n" } else { piece_of(&bytes[taken..]) };
            match if self.is_writable() { self.write_piece(piece) } else { Err(Errno::AGAIN) } {
                Ok(_) if self.torn => self.torn = false,
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Written { bytes: taken, stop: Some(IncompleteWrite::Blocked) },
                Err(errno) => {
                    // A partial write cannot be undone: that line is lost, and the next must not become its end.
                    self.torn |= taken > 0 && bytes[taken - 1] != b'\n';
                    return Written { bytes: taken, stop: Some(IncompleteWrite::Failed(errno.into())) };
                }
            }
        }
        Written { bytes: taken, stop: None }
    }

    fn write_piece(&self, piece: &[u8]) -> Result<usize, Errno> {
        match rustix::io::write(&self.file, piece)? {
            0 => Err(Errno::IO),
            count => Ok(count),
        }
    }

    fn is_writable(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        // A descriptor that cannot be polled is tried by writing.
        !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }
}

/// Whole lines as far as they fit; of a longer line, the part that fits.
fn piece_of(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= PIECE_BYTES_MAX {
        return bytes;
    }
    let fitting = &bytes[..PIECE_BYTES_MAX];
    let end = fitting.iter().rposition(|&byte| byte == b'\n').map_or(PIECE_BYTES_MAX, |last| last + 1);
    &fitting[..end]
}
