//! Bytes that never change and are sent often, in files without names.
//!
//! Sending 100 KiB from memory copies them into the socket; sendfile does not. A file on a disk is best: its page cache has
//! large pieces, and a memory file small ones ([performance](../../../docs/performance.md)). A file for each text would cost
//! a descriptor each, so texts stand side by side in blocks, whoever they belong to. A block goes when the last text in it
//! has gone.

use crate::file::{OpenFile, create_nameless, write_all_at};
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Texts are added to a block until it has so much.
const BLOCK_BYTES: u64 = 2 * 1024 * 1024;

/// All blocks that somebody still holds.
static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// One file. Only [`place`] writes to it, and never where something stands.
#[derive(Debug)]
struct Block {
    /// Open as long as a text in it is wanted, or is being sent.
    fd: Weak<OwnedFd>,
    /// Where each text begins, and its length; there is room behind the last one.
    texts: Vec<(u64, u64)>,
}

impl Block {
    /// Where `text` stands already, because another worker has placed it.
    fn find(&self, text: &[u8]) -> Option<Placed> {
        let fd = self.fd.upgrade()?;
        let alike = self.texts.iter().filter(|(_, bytes)| *bytes == text.len() as u64);
        let offset = alike.map(|(offset, _)| *offset).find(|offset| holds(&fd, *offset, text))?;
        Some(Placed::new(fd, offset))
    }

    /// Writes `text` behind all others; `None` when the block has enough.
    fn add(&mut self, text: &[u8]) -> io::Result<Option<Placed>> {
        let offset = self.texts.last().map_or(0, |(offset, bytes)| offset + bytes);
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

/// A text in a block.
#[derive(Clone, Debug)]
pub struct Placed {
    file: Rc<OpenFile>,
    offset: u64,
}

impl Placed {
    fn new(fd: Arc<OwnedFd>, offset: u64) -> Self {
        Self { file: Rc::new(OpenFile::own(fd)), offset }
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
    use super::{BLOCK_BYTES, holds, place};
    use std::sync::Arc;

    #[test]
    fn equal_texts_stand_once_and_others_beside_them() {
        let (one, two) = (b"one text ".repeat(9_000), b"another  ".repeat(9_000));
        let placed = place(&one).unwrap();
        let again = place(&one).unwrap();
        assert!(Arc::ptr_eq(&placed.file().fd, &again.file().fd));
        assert_eq!(placed.offset(), again.offset());
        let other = place(&two).unwrap();
        assert!(holds(&placed.file().fd, placed.offset(), &one) && holds(&other.file().fd, other.offset(), &two));
        assert!(!holds(&other.file().fd, other.offset(), &one));
    }

    #[test]
    fn a_block_without_texts_is_gone() {
        let text = vec![b'l'; BLOCK_BYTES as usize + 1];
        let fd = Arc::downgrade(&place(&text).unwrap().file().fd);
        assert!(fd.upgrade().is_none());
        let again = place(&text).unwrap();
        assert!(holds(&again.file().fd, again.offset(), &text));
    }
}
