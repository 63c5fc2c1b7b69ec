//! Immutable bytes that are sent often, stored in unnamed files.
//!
//! Sending 100 KiB from memory copies them into the socket; sendfile does not. A file on a disk is best: its page
//! cache has large folios, a memory file small pages ([performance](../../../docs/performance.md)). One file per text
//! would cost one descriptor each, so texts of all owners share blocks. A block is freed when its last text is freed.

use crate::file::{OpenFile, create_nameless, write_all_at};
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A block accepts texts until it holds this many bytes.
const BLOCK_BYTES: u64 = 2 * 1024 * 1024;

/// All blocks that are still referenced.
static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// One file. Only [`place`] writes to it, and it never overwrites a text.
#[derive(Debug)]
struct Block {
    /// Open as long as one of its texts is referenced or being sent.
    fd: Weak<OwnedFd>,
    /// Offset and length of each text; free space follows the last one.
    texts: Vec<(u64, u64)>,
}

impl Block {
    /// The existing copy of `text`, if another worker has placed it already.
    fn find(&self, text: &[u8]) -> Option<Placed> {
        let fd = self.fd.upgrade()?;
        let alike = self.texts.iter().filter(|(_, bytes)| *bytes == text.len() as u64);
        let offset = alike.map(|(offset, _)| *offset).find(|offset| holds(&fd, *offset, text))?;
        Some(Placed::new(fd, offset))
    }

    /// Writes `text` after all others; `None` if the block is full.
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

    /// The file that holds the text.
    pub const fn file(&self) -> &Rc<OpenFile> {
        &self.file
    }

    /// The text's offset in the file.
    pub const fn offset(&self) -> u64 {
        self.offset
    }
}

/// Puts `text` into a block, or finds the copy that is already in one.
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
