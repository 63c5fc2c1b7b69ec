//! Bytes that never change and are sent often, in files without names.
//!
//! Sending 100 KiB from memory copies them into the socket; sendfile does not. A file on a disk is best: its page cache has
//! large pieces, and a memory file small ones ([performance](../../../docs/performance.md)). A file for each text would cost
//! a descriptor each, so texts stand side by side in blocks, whoever they belong to. A block goes when the last text in it
//! has gone.

use crate::file::OpenFile;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::{Errno, pread, pwrite};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Texts are added to a block until it has so much.
const BLOCK_BYTES: u64 = 2 * 1024 * 1024;

/// All blocks that somebody still holds.
static BLOCKS: Mutex<Vec<Weak<Block>>> = Mutex::new(Vec::new());

/// One file. Only [`place`] writes to it, and never where something stands.
#[derive(Debug)]
struct Block {
    fd: Arc<OwnedFd>,
    /// Where each text begins, and its length; there is room behind the last one.
    texts: Mutex<Vec<(u64, u64)>>,
}

impl Block {
    /// In the folder for temporary files where that takes files without names, and lets us; else in memory.
    fn create() -> io::Result<Self> {
        let on_disk = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = open(std::env::temp_dir(), on_disk, Mode::RUSR | Mode::WUSR)
            .or_else(|_| memfd_create("flatout-text", MemfdFlags::CLOEXEC))?;
        Ok(Self { fd: Arc::new(fd), texts: Mutex::default() })
    }

    fn texts(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where `text` stands already, because another worker has placed it.
    fn find(&self, text: &[u8]) -> Option<u64> {
        let alike: Vec<_> = self.texts().iter().filter(|(_, bytes)| *bytes == text.len() as u64).copied().collect();
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

    /// Writes `text` behind all others; `None` when the block has enough.
    fn add(&self, text: &[u8]) -> io::Result<Option<u64>> {
        let mut texts = self.texts();
        let offset = texts.last().map_or(0, |(offset, bytes)| offset + bytes);
        if offset > 0 && offset + text.len() as u64 > BLOCK_BYTES {
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
    /// Open as long as a text in it is wanted, so that others find it.
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
}

/// Puts `text` into a block, or finds it in one.
///
/// # Errors
/// When there is no descriptor to be had, or no room.
pub fn place(text: &[u8]) -> io::Result<Placed> {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    blocks.retain(|block| block.strong_count() > 0);
    let known: Vec<_> = blocks.iter().filter_map(Weak::upgrade).collect();
    if let Some((block, offset)) = known.iter().find_map(|block| Some((block, block.find(text)?))) {
        return Ok(Placed::new(Arc::clone(block), offset));
    }
    for block in known {
        if let Some(offset) = block.add(text)? {
            return Ok(Placed::new(block, offset));
        }
    }
    let block = Arc::new(Block::create()?);
    let offset = block.add(text)?.ok_or(io::ErrorKind::FileTooLarge)?;
    blocks.push(Arc::downgrade(&block));
    Ok(Placed::new(block, offset))
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, place};
    use std::sync::Arc;

    #[test]
    fn equal_texts_stand_once_and_others_beside_them() {
        let (one, two) = (b"one text ".repeat(9_000), b"another  ".repeat(9_000));
        let placed = place(&one).unwrap();
        let again = place(&one).unwrap();
        assert!(Arc::ptr_eq(&placed.block, &again.block));
        assert_eq!(placed.offset(), again.offset());
        let other = place(&two).unwrap();
        assert!(placed.block.holds(placed.offset(), &one) && other.block.holds(other.offset(), &two));
        assert!(!other.block.holds(other.offset(), &one));
    }

    #[test]
    fn a_block_without_texts_is_gone() {
        let text = vec![b'l'; BLOCK_BYTES as usize + 1];
        let block = Arc::downgrade(&place(&text).unwrap().block);
        assert!(block.upgrade().is_none());
        let again = place(&text).unwrap();
        assert!(again.block.holds(again.offset(), &text));
    }
}
