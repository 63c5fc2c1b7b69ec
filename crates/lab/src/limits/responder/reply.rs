//! The responder's prebuilt response.
//!
//! The responses still to be sent form a periodic stream whose period is the length of the response. So the position of
//! a connection is a single number: the bytes still to be sent.

use flatout_os::file::PAGE_BYTES;
use flatout_os::socket::send_zerocopy;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Up to this many bytes of copies of the response are concatenated, so that a few pipelined requests need only one
/// send.
const REPEATED_BYTES_MAX: usize = 64 * 1024;

/// The line that [`ResponderReply::FileInParts`] inserts. It is as long as the time of day in a page.
pub(super) const INSERTION: &[u8] = b"Fri 08 May 1998 12:00:00 UTC";

/// Maximum length of the body of [`ResponderReply::Memory`], which is completely in memory, in bytes.
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of bytes in one sendfile call, slightly below the kernel's own limit.
const SENDFILE_BYTES_MAX: u64 = 1 << 30;

/// The response to every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponderReply {
    /// A body of this many bytes, sent from memory together with its head.
    Memory {
        /// Length of the body in bytes, up to 1 GiB.
        body_bytes: u64,
    },
    /// A body of this many bytes, sent from memory with its head and passed to the kernel by MSG_ZEROCOPY instead of
    /// copied.
    MemoryLent {
        /// Length of the body in bytes, up to 1 GiB.
        body_bytes: u64,
    },
    /// A body of this many bytes in a memory file, sent by sendfile.
    MemoryFile {
        /// Length of the body in bytes.
        body_bytes: u64,
    },
    /// This file, sent by sendfile.
    File(PathBuf),
    /// This file with a line inserted in its middle, as in a page with a server-side include: two calls of sendfile and
    /// one send.
    FileInParts(PathBuf),
    /// The response of the origin server at this address, to which the request is forwarded.
    Origin(SocketAddr),
}

/// The reason a response cannot be built.
#[derive(Debug)]
pub(super) enum ReplyError {
    TooLarge(u64),
    Empty(PathBuf),
    NotPrebuilt,
    Io(io::Error),
}

impl ReplyError {
    pub(super) fn into_io(self) -> io::Error {
        match self {
            Self::TooLarge(bytes) => {
                let text =
                    format!("a body of {bytes} bytes is larger than the maximum of {MEMORY_BYTES_MAX} in memory");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            }
            Self::Empty(path) => {
                let text = format!("{} is empty or not a regular file", path.display());
                io::Error::new(io::ErrorKind::InvalidInput, text)
            }
            Self::NotPrebuilt => {
                io::Error::new(io::ErrorKind::InvalidInput, "the response of an origin is not prebuilt")
            }
            Self::Io(error) => error,
        }
    }
}

impl From<io::Error> for ReplyError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for ReplyError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl ResponderReply {
    /// Builds the response.
    pub(super) fn assemble(&self, closes: bool) -> Result<Assembled, ReplyError> {
        match self {
            Self::Memory { body_bytes } | Self::MemoryLent { body_bytes } if *body_bytes > MEMORY_BYTES_MAX => {
                Err(ReplyError::TooLarge(*body_bytes))
            }
            Self::Memory { body_bytes } | Self::MemoryLent { body_bytes } => {
                let mut once = head(*body_bytes, closes);
                once.resize(once.len() + *body_bytes as usize, b'x');
                let period = once.len() as u64;
                let times = if closes { 1 } else { (REPEATED_BYTES_MAX / once.len()).max(1) };
                let lent = matches!(self, Self::MemoryLent { .. });
                Ok(Assembled { memory: once.repeat(times), file: None, insertion: None, period, lent })
            }
            Self::MemoryFile { body_bytes } => {
                let file = memfd_create("flatout-responder", MemfdFlags::CLOEXEC)?;
                fill(&file, *body_bytes)?;
                Ok(Assembled::from_file(file, *body_bytes, closes))
            }
            Self::File(path) | Self::FileInParts(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                if !metadata.is_file() || metadata.len() == 0 {
                    return Err(ReplyError::Empty(path.clone()));
                }
                let mut assembled = Assembled::from_file(file.into(), metadata.len(), closes);
                if matches!(self, Self::FileInParts(_)) {
                    assembled.insert(INSERTION, closes);
                }
                Ok(assembled)
            }
            Self::Origin(_) => Err(ReplyError::NotPrebuilt),
        }
    }
}

fn head(body_bytes: u64, closes: bool) -> Vec<u8> {
    // Send the fields of a typical static server, so that both transfer the same number of bytes.
    let connection = if closes { "Connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {body_bytes}\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"0000000000000000\"\r\n\
         {connection}\r\n"
    )
    .into_bytes()
}

/// Writes bytes that are not zero: pages that were never written may all be sent from one shared zero page.
fn fill(file: &OwnedFd, body_bytes: u64) -> io::Result<()> {
    let block = vec![b'x'; 64 * 1024];
    let mut left = body_bytes;
    while left > 0 {
        let part = left.min(block.len() as u64) as usize;
        left -= rustix::io::write(file, &block[..part])? as u64;
    }
    Ok(())
}

/// A prebuilt response that is sent again and again.
#[derive(Debug)]
pub(super) struct Assembled {
    /// The whole response, repeated; or only the head, if the body is in `file`.
    memory: Vec<u8>,
    file: Option<OwnedFd>,
    /// Bytes to send between two parts of the file, and the length of the first part.
    insertion: Option<(&'static [u8], u64)>,
    /// Length of one response, in bytes.
    period: u64,
    /// True if memory is passed to the kernel without copying. The memory never changes, so completions need no
    /// tracking.
    lent: bool,
}

impl Assembled {
    fn from_file(file: OwnedFd, body_bytes: u64, closes: bool) -> Self {
        let memory = head(body_bytes, closes);
        let period = memory.len() as u64 + body_bytes;
        Self { memory, file: Some(file), insertion: None, period, lent: false }
    }

    /// Sends `bytes` after the first half of the file. That half ends at a page boundary, because sendfile costs more
    /// if it starts within a page of the page cache.
    fn insert(&mut self, bytes: &'static [u8], closes: bool) {
        let file_bytes = self.period - self.memory.len() as u64;
        self.memory = head(file_bytes + bytes.len() as u64, closes);
        self.period = self.memory.len() as u64 + file_bytes + bytes.len() as u64;
        self.insertion = Some((bytes, file_bytes / 2 / PAGE_BYTES * PAGE_BYTES));
    }

    /// Returns whether sending leaves notifications in the error queue of the socket.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Returns the number of bytes to be sent for `heads` requests.
    pub(super) fn owed_bytes(&self, heads: u64) -> u64 {
        heads * self.period
    }

    /// Sends as many pending bytes as the socket accepts. Returns the number of bytes that remain.
    pub(super) fn send(&self, socket: BorrowedFd<'_>, mut owed_bytes: u64) -> Result<u64, Errno> {
        while owed_bytes > 0 {
            let position = (self.period - owed_bytes % self.period) % self.period;
            match self.send_once(socket, position, owed_bytes) {
                Ok(sent) => owed_bytes -= sent,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(owed_bytes)
    }

    fn send_once(&self, socket: BorrowedFd<'_>, position: u64, owed_bytes: u64) -> Result<u64, Errno> {
        let Some(file) = &self.file else {
            let end = (position + owed_bytes).min(self.memory.len() as u64);
            let bytes = &self.memory[position as usize..end as usize];
            if self.lent {
                return Ok(send_zerocopy(socket, bytes)? as u64);
            }
            return Ok(send(socket, bytes, SendFlags::NOSIGNAL)? as u64);
        };
        let head_bytes = self.memory.len() as u64;
        if position < head_bytes {
            // With MORE, the head shares a segment with the beginning of the body.
            let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
            return Ok(send(socket, &self.memory[position as usize..], flags)? as u64);
        }
        let mut offset = position - head_bytes;
        let mut left = self.period - position;
        if let Some((insertion, first_bytes)) = self.insertion {
            let insertion_end = first_bytes + insertion.len() as u64;
            if offset < first_bytes {
                left = first_bytes - offset;
            } else if offset < insertion_end {
                let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
                return Ok(send(socket, &insertion[(offset - first_bytes) as usize..], flags)? as u64);
            } else {
                offset -= insertion.len() as u64;
            }
        }
        let left = left.min(SENDFILE_BYTES_MAX) as usize;
        match sendfile(socket, file, Some(&mut offset), left)? {
            // The file is now shorter than when its size was determined.
            0 => Err(Errno::IO),
            sent => Ok(sent as u64),
        }
    }
}
