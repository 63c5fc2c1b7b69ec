//! Immutable byte strings that are sent often, stored in unnamed files.
//!
//! Sending 100 KiB from memory copies the bytes into the socket; sendfile does not. A file on a disk is best, because
//! its page cache consists of large folios, whereas a memory file consists of small pages
//! ([performance](../../../docs/performance.md)). One file per byte string would cost one descriptor each, so strings
//! of all owners share files, called blocks. A block is freed with the last string in it.

use crate::file::{OpenFile, PAGE_BYTES, create_nameless, write_all_at};
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Size up to which a block accepts further strings, in bytes. Only a block's first string may be larger.
const BLOCK_BYTES: u64 = 2 * 1024 * 1024;

/// All blocks that are still referenced.
static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// An unnamed file. Only [`place`] writes to it, and it never overwrites a string.
#[derive(Debug)]
struct Block {
    /// The file, open as long as one of its strings is referenced or being sent.
    fd: Weak<OwnedFd>,
    /// Offset and length of each string, in bytes. Every string starts at a page boundary, and free space follows the
    /// last one.
    texts: Vec<(u64, u64)>,
}

impl Block {
    /// Returns the existing copy of `text`, if any worker has placed it already.
    fn find(&self, text: &[u8]) -> Option<Placed> {
        let fd = self.fd.upgrade()?;
        let alike = self.texts.iter().filter(|(_, bytes)| *bytes == text.len() as u64);
        let offset = alike.map(|(offset, _)| *offset).find(|offset| holds(&fd, *offset, text))?;
        Some(Placed::new(fd, offset))
    }

    /// Writes `text` after all other strings. Returns `None` if the block is full.
    fn add(&mut self, text: &[u8]) -> io::Result<Option<Placed>> {
        let offset = self.texts.last().map_or(0, |(offset, bytes)| (offset + bytes).next_multiple_of(PAGE_BYTES));
        let Some(fd) = self.fd.upgrade() else { return Ok(None) };
        if offset > 0 && offset + text.len() as u64 > BLOCK_BYTES {
            return Ok(None);
        }
        write_all_at(&fd, text, offset)?;
        self.texts.push((offset, text.len() as u64));
        Ok(Some(Placed::new(fd, offset)))
    }
}

fn holds(fd: &OwnedFd, mut offset: u64, mut text: &[u8]) -> bool {
    let mut buffer = [0; 4096];
    while !text.is_empty() {
        let wanted = buffer.len().min(text.len());
        match pread(fd, &mut buffer[..wanted], offset) {
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

/// A byte string in a block.
#[derive(Clone, Debug)]
pub struct Placed {
    file: Rc<OpenFile>,
    offset: u64,
}

impl Placed {
    fn new(fd: Arc<OwnedFd>, offset: u64) -> Self {
        Self { file: Rc::new(OpenFile::own(fd)), offset }
    }

    /// The file that holds the string.
    pub const fn file(&self) -> &Rc<OpenFile> {
        &self.file
    }

    /// The string's offset in the file, a multiple of [`PAGE_BYTES`].
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}

/// Writes `text` into a block, or finds the copy that is already in one.
///
/// # Errors
/// If no descriptor or no space is left.
pub fn place(text: &[u8]) -> io::Result<Placed> {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    blocks.retain(|block| block.fd.strong_count() > 0);
    if let Some(placed) = blocks.iter().find_map(|block| block.find(text)) {
        return Ok(placed);
    }
    for block in blocks.iter_mut() {
        if let Some(placed) = block.add(text)? {
            return Ok(placed);
        }
    }
    let fd = Arc::new(create_nameless(&std::env::temp_dir())?);
    let mut block = Block { fd: Arc::downgrade(&fd), texts: Vec::new() };
    let placed = block.add(text)?.ok_or(io::ErrorKind::FileTooLarge)?;
    blocks.push(block);
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, PAGE_BYTES, holds, place};
    use std::sync::Arc;

    #[test]
    fn equal_texts_are_stored_once() {
        let (one, two) = (b"one text ".repeat(9_000), b"another  ".repeat(9_000));
        let placed = place(&one).unwrap();
        let again = place(&one).unwrap();
        assert!(Arc::ptr_eq(&placed.file().fd, &again.file().fd));
        assert_eq!(placed.offset(), again.offset());
        let other = place(&two).unwrap();
        assert!(holds(&placed.file().fd, placed.offset(), &one) && holds(&other.file().fd, other.offset(), &two));
        assert!(!holds(&other.file().fd, other.offset(), &one));
        assert_eq!((placed.offset() % PAGE_BYTES, other.offset() % PAGE_BYTES), (0, 0));
    }

    #[test]
    fn a_block_without_texts_is_freed() {
        let text = vec![b'l'; BLOCK_BYTES as usize + 1];
        let fd = Arc::downgrade(&place(&text).unwrap().file().fd);
        assert!(fd.upgrade().is_none());
        let again = place(&text).unwrap();
        assert!(holds(&again.file().fd, again.offset(), &text));
    }
}
