//! Bytes that never change and are sent often, in memory files of whole huge pages.
//!
//! Sending 100 KiB from memory copies them into the socket; sendfile does not. A memory file for each text would cost a
//! descriptor and whole pages, and none would be large enough for a huge page, so texts stand side by side in blocks of
//! one, whoever they belong to. A block goes when the last text in it has gone.

use crate::file::OpenFile;
use crate::huge::{HUGE_PAGE_BYTES, Joiner};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A block that has been sent from so often is worth the 0.3 ms a MiB that joining its pages takes. A guess: a text that
/// is asked for once a minute is not, one that carries a site is after a second.
const SENT_OFTEN: u32 = 256;

/// All blocks that somebody still holds.
static BLOCKS: Mutex<Vec<Weak<Block>>> = Mutex::new(Vec::new());

/// One memory file. Only [`place`] writes to it, and never where something stands.
#[derive(Debug)]
struct Block {
    fd: Arc<OwnedFd>,
    bytes: u64,
    /// Where each text begins, and its length; the last one's end is where there is room.
    texts: Mutex<Vec<(u64, u64)>>,
    sent: AtomicU32,
}

impl Block {
    fn create(bytes: u64) -> io::Result<Self> {
        let fd = memfd_create("flatout-text", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, bytes)?;
        Ok(Self { fd: Arc::new(fd), bytes, texts: Mutex::default(), sent: AtomicU32::new(0) })
    }

    fn texts(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where `text` stands already, because another worker has placed it.
    fn find(&self, text: &[u8]) -> Option<u64> {
        let alike = self.texts().iter().filter(|(_, bytes)| *bytes == text.len() as u64).copied().collect::<Vec<_>>();
        alike.into_iter().map(|(offset, _)| offset).find(|offset| self.holds(*offset, text))
    }

    fn holds(&self, mut offset: u64, mut text: &[u8]) -> bool {
        let mut buffer = [0; 4096];
        while !text.is_empty() {
            let wanted = buffer.len().min(text.len());
            match pread(&self.fd, &mut buffer[..wanted], offset) {
                Ok(count) if count > 0 && buffer[..count] == text[..count] => {
                    offset += count as u64;
                    text = &text[count..];
                }
                Err(Errno::INTR) => {}
                _ => return false,
            }
        }
        true
    }

    /// Writes `text` behind all others; `None` when there is no room.
    fn add(&self, text: &[u8]) -> io::Result<Option<u64>> {
        let mut texts = self.texts();
        let offset = texts.last().map_or(0, |(offset, bytes)| offset + bytes);
        if self.bytes - offset < text.len() as u64 {
            return Ok(None);
        }
        let mut written = 0;
        while written < text.len() {
            match pwrite(&self.fd, &text[written..], offset + written as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        texts.push((offset, text.len() as u64));
        Ok(Some(offset))
    }
}

/// A text in a block.
#[derive(Clone, Debug)]
pub struct Placed {
    block: Arc<Block>,
    file: Rc<OpenFile>,
    offset: u64,
}

impl Placed {
    fn new(block: Arc<Block>, offset: u64) -> Self {
        let file = Rc::new(OpenFile::own(Arc::clone(&block.fd)));
        Self { block, file, offset }
    }

    /// The file that holds it.
    pub const fn file(&self) -> &Rc<OpenFile> {
        &self.file
    }

    /// Where it begins in the file.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Notes that it is being sent. What is sent often moves into huge pages.
    pub fn handle_sent(&self) {
        let sent = self.block.sent.load(Ordering::Relaxed);
        if sent < SENT_OFTEN {
            // Two workers may count one; it is only a guess that they count for.
            self.block.sent.store(sent + 1, Ordering::Relaxed);
        } else if sent == SENT_OFTEN
            && let Some(joiner) = Joiner::take()
        {
            self.block.sent.store(sent + 1, Ordering::Relaxed);
            joiner.join(Arc::clone(&self.block.fd), self.block.bytes);
        }
    }
}

/// Puts `text` into a block, or finds it in one.
///
/// # Errors
/// When the kernel has no descriptor or no memory to give.
pub fn place(text: &[u8]) -> io::Result<Placed> {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    blocks.retain(|block| block.strong_count() > 0);
    for block in blocks.iter().filter_map(Weak::upgrade) {
        if let Some(offset) = block.find(text) {
            return Ok(Placed::new(block, offset));
        }
    }
    for block in blocks.iter().filter_map(Weak::upgrade) {
        if let Some(offset) = block.add(text)? {
            return Ok(Placed::new(block, offset));
        }
    }
    let block = Arc::new(Block::create((text.len() as u64).next_multiple_of(HUGE_PAGE_BYTES).max(HUGE_PAGE_BYTES))?);
    let offset = block.add(text)?.ok_or(io::ErrorKind::FileTooLarge)?;
    blocks.push(Arc::downgrade(&block));
    Ok(Placed::new(block, offset))
}

#[cfg(test)]
mod tests {
    use super::{HUGE_PAGE_BYTES, place};
    use std::sync::Arc;

    #[test]
    fn equal_texts_stand_once_and_others_beside_them() {
        let one = place(&b"one text ".repeat(9_000)).unwrap();
        let again = place(&b"one text ".repeat(9_000)).unwrap();
        assert!(Arc::ptr_eq(&one.block, &again.block));
        assert_eq!(one.offset(), again.offset());
        let other = place(&b"another  ".repeat(9_000)).unwrap();
        assert!(one.block.holds(one.offset(), &b"one text ".repeat(9_000)));
        assert!(other.block.holds(other.offset(), &b"another  ".repeat(9_000)));
        let large = place(&vec![b'l'; HUGE_PAGE_BYTES as usize + 1]).unwrap();
        assert_eq!(large.block.bytes, 2 * HUGE_PAGE_BYTES);
    }

    #[test]
    fn a_block_without_texts_is_gone() {
        let text = b"nobody else has this ".repeat(100_000);
        let block = Arc::downgrade(&place(&text).unwrap().block);
        assert!(block.upgrade().is_none());
        let again = place(&text).unwrap();
        assert!(again.block.holds(again.offset(), &text));
    }
}
