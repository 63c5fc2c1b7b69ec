//! The responder's only response, prebuilt.
//!
//! Owed responses form an endless stream with the response's length as its period. So a connection's position is one
//! number: the bytes it is still owed.

use flatout_os::socket::send_zerocopy;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// Responses are concatenated up to this many bytes, so that a few pipelined requests need one send.
const REPEATED_BYTES_MAX: usize = 64 * 1024;

/// Upper bound of the body of [`ResponderReply::Memory`], which is in memory completely.
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Upper bound of one sendfile call, slightly below the kernel's own.
const SENDFILE_BYTES_MAX: u64 = 1 << 30;

/// The response to every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResponderReply {
    /// A body of this many bytes, sent from memory together with its head.
    Memory {
        /// Length of the body, up to 1 GiB.
        body_bytes: u64,
    },
    /// The same, lent to the kernel by MSG_ZEROCOPY instead of copied.
    MemoryLent {
        /// Length of the body, up to 1 GiB.
        body_bytes: u64,
    },
    /// A body of this many bytes in a memory file, sent by sendfile.
    MemoryFile {
        /// Length of the body.
        body_bytes: u64,
    },
    /// This file, sent by sendfile.
    File(PathBuf),
}

/// Why a response cannot be built.
#[derive(Debug)]
pub(super) enum ReplyError {
    TooLarge(u64),
    Empty(PathBuf),
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
                Ok(Assembled { memory: once.repeat(times), file: None, period, lent })
            }
            Self::MemoryFile { body_bytes } => {
                let file = memfd_create("flatout-responder", MemfdFlags::CLOEXEC)?;
                fill(&file, *body_bytes)?;
                Ok(Assembled::from_file(file, *body_bytes, closes))
            }
            Self::File(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                if !metadata.is_file() || metadata.len() == 0 {
                    return Err(ReplyError::Empty(path.clone()));
                }
                Ok(Assembled::from_file(file.into(), metadata.len(), closes))
            }
        }
    }
}

fn head(body_bytes: u64, closes: bool) -> Vec<u8> {
    // The fields of a typical static server, so that both sides transfer the same number of bytes.
    let connection = if closes { "Connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {body_bytes}\r\nLast-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"0000000000000000\"\r\n\
         {connection}\r\n"
    )
    .into_bytes()
}

/// Writes real bytes: unwritten pages may be sent from one shared zero page.
fn fill(file: &OwnedFd, body_bytes: u64) -> io::Result<()> {
    let block = vec![b'x'; 64 * 1024];
    let mut left = body_bytes;
    while left > 0 {
        let part = left.min(block.len() as u64) as usize;
        left -= rustix::io::write(file, &block[..part])? as u64;
    }
    Ok(())
}

/// A prebuilt response that is sent repeatedly.
#[derive(Debug)]
pub(super) struct Assembled {
    /// The whole response, several times; or the head alone if the body is in `file`.
    memory: Vec<u8>,
    file: Option<OwnedFd>,
    /// Length of one response.
    period: u64,
    /// True if memory is lent to the kernel; it never changes, so its return needs no tracking.
    lent: bool,
}

impl Assembled {
    fn from_file(file: OwnedFd, body_bytes: u64, closes: bool) -> Self {
        let memory = head(body_bytes, closes);
        let period = memory.len() as u64 + body_bytes;
        Self { memory, file: Some(file), period, lent: false }
    }

    /// Returns whether sending leaves notifications in the socket's error queue.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Bytes owed for `heads` requests.
    pub(super) fn owed_bytes(&self, heads: u64) -> u64 {
        heads * self.period
    }

    /// Sends owed bytes as far as the socket takes them, and returns the rest.
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
            // MORE: the head shares a segment with the body's beginning.
            let flags = SendFlags::NOSIGNAL | SendFlags::MORE;
            return Ok(send(socket, &self.memory[position as usize..], flags)? as u64);
        }
        let mut offset = position - head_bytes;
        let left = (self.period - position).min(SENDFILE_BYTES_MAX) as usize;
        match sendfile(socket, file, Some(&mut offset), left)? {
            // The file became shorter than at its measurement.
            0 => Err(Errno::IO),
            sent => Ok(sent as u64),
        }
    }
}
