//! Content whose length is not told, kept until it is known: a script must be told CONTENT_LENGTH before its content.

use crate::outcome::Outcome;
use flatout_net::content::{Content, ContentPiece};
use flatout_net::shared::SharedBytes;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, write};
use std::future::poll_fn;
use std::os::fd::OwnedFd;

/// Bytes that are kept as they came. More go to a file without a name, which the kernel may swap out.
const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// Bytes read from the file at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Content that is whole.
#[derive(Debug)]
pub(crate) struct Spool {
    place: Place,
    length: u64,
    /// Bytes given out.
    at: u64,
}

#[derive(Debug)]
enum Place {
    Memory(SharedBytes),
    File(OwnedFd),
}

impl Spool {
    /// Takes all of `content`, of `bytes_max` at the most.
    pub(crate) async fn fill(content: Content, bytes_max: u64) -> Result<Self, Outcome> {
        let (mut memory, mut file, mut length) = (Vec::new(), None, 0_u64);
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(_) => break,
                ContentPiece::Cut(_) => return Err(Outcome::ContentCut),
            };
            length += bytes.len() as u64;
            if length > bytes_max {
                return Err(Outcome::ContentTooLarge);
            }
            if file.is_none() && memory.len() + bytes.len() <= MEMORY_BYTES_MAX {
                memory.extend_from_slice(&bytes);
                continue;
            }
            if file.is_none() {
                let created = memfd_create("flatout-content", MemfdFlags::CLOEXEC).map_err(|_| Outcome::SpoolFailed)?;
                write_all(&created, &memory)?;
                memory = Vec::new();
                file = Some(created);
            }
            if let Some(file) = &file {
                write_all(file, &bytes)?;
            }
        }
        let place = file.map_or_else(|| Place::Memory(memory.into()), Place::File);
        Ok(Self { place, length, at: 0 })
    }

    /// Bytes in all.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// From the beginning again.
    pub(crate) const fn rewind(&mut self) {
        self.at = 0;
    }

    /// The next piece; `None` at the end.
    pub(crate) fn next_piece(&mut self) -> Result<Option<SharedBytes>, Outcome> {
        if self.at >= self.length {
            return Ok(None);
        }
        let piece = match &self.place {
            Place::Memory(bytes) => bytes.clone(),
            Place::File(file) => {
                let mut buffer = vec![0; PIECE_BYTES];
                let count = loop {
                    match pread(file, &mut buffer[..], self.at) {
                        Err(Errno::INTR) => {}
                        other => break other.map_err(|_| Outcome::SpoolFailed)?,
                    }
                };
                if count == 0 {
                    return Err(Outcome::SpoolFailed);
                }
                buffer.truncate(count);
                SharedBytes::from_buffer(buffer)
            }
        };
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Outcome> {
    while !bytes.is_empty() {
        match write(file, bytes) {
            Ok(0) => return Err(Outcome::SpoolFailed),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(_) => return Err(Outcome::SpoolFailed),
        }
    }
    Ok(())
}
