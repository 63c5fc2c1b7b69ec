//! Record of which ranges of a body file have been verified since it was opened.
//!
//! Verification reads the file on the calling thread, which must be the volume's verification thread.

use crate::hold;
use crate::notice::VolumeEvent;
use crate::seal::{CHUNK_BYTES, Identity, PAGE_BYTES, chunk_count, decode, file_bytes, seal_bytes, seal_offset, sum};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Verification state of a file.
#[derive(Debug)]
pub(crate) struct Proof {
    identity: Identity,
    state: Mutex<ProofState>,
    is_whole: AtomicBool,
}

#[derive(Debug, Default)]
struct ProofState {
    /// Checksums of the chunks; `None` until the seal has been read.
    sums: Option<Arc<[u32]>>,
    /// Bit set of the chunks that have been verified.
    intact: Vec<u64>,
    intact_count: u64,
}

impl ProofState {
    fn is_intact(&self, chunk: u64) -> bool {
        self.intact.get((chunk / 64) as usize).is_some_and(|word| word >> (chunk % 64) & 1 == 1)
    }

    fn set_intact(&mut self, chunk: u64) {
        let index = (chunk / 64) as usize;
        if self.intact.len() <= index {
            self.intact.resize(index + 1, 0);
        }
        if !self.is_intact(chunk) {
            self.intact[index] |= 1 << (chunk % 64);
            self.intact_count += 1;
        }
    }
}

impl Proof {
    /// Creates the initial state of a file that is expected to contain `identity`.
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, state: Mutex::default(), is_whole: AtomicBool::new(false) }
    }

    /// Returns whether all content has been verified.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Returns the end of the verified content that begins at `offset`, or `offset` itself if its chunk has not been
    /// verified.
    pub(crate) fn intact_until(&self, offset: u64) -> u64 {
        if self.is_whole() {
            return self.identity.bytes;
        }
        let state = hold(&self.state);
        let first = offset / CHUNK_BYTES;
        let end = (first..chunk_count(self.identity.bytes)).find(|chunk| !state.is_intact(*chunk));
        let end = end.map_or(self.identity.bytes, |chunk| chunk * CHUNK_BYTES);
        end.min(self.identity.bytes).max(offset)
    }

    /// Verifies the chunks of `range` that have not been verified yet. For an empty range, verifies only the seal.
    ///
    /// # Errors
    /// Returns the kind of damage. The file must then no longer be used.
    pub(crate) fn verify(&self, fd: &OwnedFd, range: Range<u64>, buffer: &mut Buffer) -> Result<(), VolumeEvent> {
        let sums = self.sums(fd, buffer)?;
        let range = range.start..range.end.min(self.identity.bytes);
        if range.is_empty() {
            return Ok(());
        }
        for chunk in range.start / CHUNK_BYTES..chunk_count(range.end) {
            if hold(&self.state).is_intact(chunk) {
                continue;
            }
            let start = chunk * CHUNK_BYTES;
            let length = CHUNK_BYTES.min(self.identity.bytes - start);
            let bytes = buffer.read(fd, start, length)?;
            if sums.get(chunk as usize) != Some(&sum(bytes)) {
                return Err(VolumeEvent::BodyCorrupt);
            }
            let mut state = hold(&self.state);
            state.set_intact(chunk);
            if state.intact_count == chunk_count(self.identity.bytes) {
                self.is_whole.store(true, Ordering::Release);
                *state = ProofState { sums: state.sums.take(), ..ProofState::default() };
            }
        }
        Ok(())
    }

    /// Returns the checksums, which are read from the seal on first use.
    fn sums(&self, fd: &OwnedFd, buffer: &mut Buffer) -> Result<Arc<[u32]>, VolumeEvent> {
        if let Some(sums) = &hold(&self.state).sums {
            return Ok(Arc::clone(sums));
        }
        let bytes = self.identity.bytes;
        let length = rustix::fs::fstat(fd).map_err(|_| VolumeEvent::BodyUnreadable)?.st_size;
        if u64::try_from(length) != Ok(file_bytes(bytes)) {
            return Err(VolumeEvent::BodyTruncated);
        }
        let seal = buffer.read(fd, seal_offset(bytes), seal_bytes(bytes))?;
        let sums: Arc<[u32]> = decode(seal, &self.identity)?.into();
        hold(&self.state).sums = Some(Arc::clone(&sums));
        Ok(sums)
    }
}

/// Read buffer, aligned for direct I/O.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Reads `length` bytes from `fd` at `offset`, which must be a multiple of the page size.
    fn read(&mut self, fd: &OwnedFd, offset: u64, length: u64) -> Result<&[u8], VolumeEvent> {
        let page = PAGE_BYTES as usize;
        let length = length as usize;
        let room = length.next_multiple_of(page);
        if self.0.len() < room + page {
            self.0.resize(room + page, 0);
        }
        let start = self.0.as_ptr().align_offset(page).min(page);
        let room = &mut self.0[start..start + room];
        let mut filled = 0;
        while filled < length {
            match rustix::io::pread(fd, &mut room[filled..], offset + filled as u64) {
                Ok(0) => return Err(VolumeEvent::BodyTruncated),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(_) => return Err(VolumeEvent::BodyUnreadable),
            }
        }
        Ok(&room[..length])
    }
}
