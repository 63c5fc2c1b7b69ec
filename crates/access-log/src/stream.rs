//! Pipes, FIFOs, terminals, devices and sockets: targets whose reader may be slow.

use super::sink::{IncompleteWrite, Written};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;

/// Maximum size of one write, in bytes. A pipe accepts this many bytes atomically (PIPE_BUF), and is reported as
/// writable once it has room for them. So lines are never interleaved with those of other writers, and the writer never
/// blocks, even on a shared, blocking pipe.
const PIECE_BYTES_MAX: usize = 4096;

/// A target to which pieces are written while it accepts them.
#[derive(Debug)]
pub(super) struct StreamTarget {
    file: File,
    /// True if the last line written is incomplete and cannot be completed.
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
                    // A partial write cannot be undone: that line is lost, and the next line must not be appended to
                    // it.
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
        // If a descriptor cannot be polled, a write is attempted.
        !matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
    }
}

/// Returns the whole lines that fit, or, if the first line is longer, the part of it that fits.
fn piece_of(bytes: &[u8]) -> &[u8] {
    if bytes.len() <= PIECE_BYTES_MAX {
        return bytes;
    }
    let fitting = &bytes[..PIECE_BYTES_MAX];
    let end = fitting.iter().rposition(|&byte| byte == b'\n').map_or(PIECE_BYTES_MAX, |last| last + 1);
    &fitting[..end]
}
