//! Buffering of request content before the FastCGI request is sent, and of response content that the client cannot take
//! yet.
//!
//! A script needs CONTENT_LENGTH before its content, so content of unknown length is buffered completely. Other content
//! is buffered as far as the limits allow: an application server such as PHP-FPM uses a process per connection, which a
//! slow client would block.

use crate::outcome::PhpOutcome;
use flatout_handler::budget::{Budget, BudgetUser, Held};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::shared::SharedBytes;
use flatout_os::spool::{Spool, SpoolFile};
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Number of bytes per read.
const PIECE_BYTES: usize = 32 * 1024;

/// Number of bytes that were read after which their space in the file is freed, so that this costs few system calls.
const FREED_BYTES_MIN: u64 = 1024 * 1024;

/// Where a step buffers content, and how much of it, in both directions and over all workers.
#[derive(Debug)]
pub(crate) struct Spools {
    budget: Arc<Budget>,
    folder: Option<PathBuf>,
}

impl Spools {
    /// Buffers up to `bytes_max` bytes in files in `folder`, or in memory files. Each request may exceed this by one
    /// receive.
    pub(crate) fn new(bytes_max: u64, folder: Option<PathBuf>) -> Arc<Self> {
        // Content in flight may use half of a budget.
        Arc::new(Self { budget: Arc::new(Budget::new(bytes_max.saturating_mul(2))), folder })
    }

    /// Returns the number of bytes that are buffered.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.budget.held_in_all()
    }
}

/// Buffered content. It can be read from its beginning for each attempt to send the request, or freed as it is read.
#[derive(Debug)]
pub(crate) struct SpooledContent {
    spool: Spool,
    file: Rc<SpoolFile>,
    /// Number of bytes returned so far.
    at: u64,
    /// Number of bytes whose space has been freed.
    freed: u64,
    /// False if the file system cannot free parts of a file.
    can_free: bool,
    /// The share of the budget: the length of the content without the bytes that have been freed.
    share: Held,
}

/// The result of buffering content.
#[derive(Debug)]
pub(crate) enum Filled {
    /// The whole content.
    Whole(SpooledContent),
    /// The beginning of the content, and the rest, which has not been received yet.
    Part(SpooledContent, RequestContent),
}

impl SpooledContent {
    /// Creates a buffer without content.
    pub(crate) fn new(spools: &Spools) -> Self {
        Self {
            spool: Spool::default(),
            file: SpoolFile::new(spools.folder.as_deref()),
            at: 0,
            freed: 0,
            can_free: true,
            share: Held::new(Arc::clone(&spools.budget), BudgetUser::Pieces),
        }
    }

    /// Buffers up to `bytes_max` bytes of `content` plus one receive. Content of unknown length is buffered completely.
    pub(crate) async fn fill(content: RequestContent, bytes_max: u64, spools: &Spools) -> Result<Filled, PhpOutcome> {
        let mut spooled = Self::new(spools);
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(_) => return Ok(Filled::Whole(spooled)),
                ContentPiece::Cut(reason) => {
                    return Err(reason.content_fault(PhpOutcome::ContentTooLarge, PhpOutcome::ContentCut));
                }
            };
            spooled.append(&bytes).map_err(|_| PhpOutcome::SpoolFailed)?;
            let has_room = spools.budget.has_room(0);
            match content.length() {
                None if has_room => {}
                None => return Err(PhpOutcome::SpoolFailed),
                // If the content is complete, only its end has not been received yet.
                Some(length) if has_room && spooled.length() <= bytes_max || spooled.length() >= length => {}
                Some(_) => return Ok(Filled::Part(spooled, content)),
            }
        }
    }

    /// Appends `bytes`. If this fails, the content is unchanged.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.spool.append(bytes, &self.file)?;
        self.share.set(self.share.bytes() + bytes.len() as u64);
        Ok(())
    }

    /// Returns whether `bytes` more may be buffered if this buffer may occupy `bytes_max` bytes.
    pub(crate) fn has_room(&self, bytes: u64, bytes_max: u64) -> bool {
        self.share.bytes().saturating_add(bytes) <= bytes_max && self.share.budget().has_room(bytes)
    }

    /// Length of the buffered content, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.spool.len()
    }

    /// Returns whether all content has been read.
    pub(crate) fn is_drained(&self) -> bool {
        self.at >= self.length()
    }

    /// Makes the next read start from the beginning.
    pub(crate) const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Returns the next piece, or `None` at the end.
    pub(crate) fn next_piece(&mut self) -> Result<Option<SharedBytes>, PhpOutcome> {
        if self.is_drained() {
            return Ok(None);
        }
        let piece = self.read().map_err(|_| PhpOutcome::SpoolFailed)?;
        Ok(Some(SharedBytes::from_buffer(piece)))
    }

    /// Returns the next piece, and frees what has been read from time to time. There must be more content.
    pub(crate) fn take_piece(&mut self) -> io::Result<Vec<u8>> {
        let piece = self.read()?;
        if self.can_free && self.at - self.freed >= FREED_BYTES_MIN {
            self.can_free = self.spool.discard(self.freed..self.at).is_ok();
            if self.can_free {
                self.share.set(self.share.bytes() - (self.at - self.freed));
                self.freed = self.at;
            }
        }
        Ok(piece)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let piece = self.spool.read(self.at, PIECE_BYTES)?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += piece.len() as u64;
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::{FREED_BYTES_MIN, Filled, PIECE_BYTES, SpooledContent, Spools};
    use flatout_handler::content::Offers;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn content_is_buffered_within_both_limits_and_freed_as_it_is_read() {
        const LENGTH: u64 = 4 * FREED_BYTES_MIN;
        let spools = Spools::new(LENGTH + 10, None);
        let (mut content, mut other) = (SpooledContent::new(&spools), SpooledContent::new(&spools));
        assert!(content.has_room(LENGTH, LENGTH) && !content.has_room(LENGTH + 1, LENGTH));
        for piece in (0..LENGTH).map(|byte| (byte % 251) as u8).collect::<Vec<_>>().chunks(PIECE_BYTES + 1) {
            content.append(piece).unwrap();
        }
        assert!(!content.has_room(1, LENGTH) && other.has_room(10, LENGTH) && !other.has_room(11, LENGTH));
        other.append(b"0123456789").unwrap();
        assert!(!other.has_room(1, LENGTH) && spools.held_bytes() == LENGTH + 10);
        let mut read = Vec::new();
        while !content.is_drained() {
            read.extend_from_slice(&content.take_piece().unwrap());
            assert!(spools.held_bytes() <= 10 + LENGTH + FREED_BYTES_MIN - read.len() as u64);
        }
        assert!(read.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8) && read.len() as u64 == LENGTH);
        assert!(content.has_room(LENGTH, LENGTH) && content.take_piece().is_err());
        drop((content, other));
        assert_eq!(spools.held_bytes(), 0);
    }

    #[test]
    fn spooled_content_can_be_read_again() {
        for (bytes, most) in [(0, 10), (10, 10), (11, 10), (70_000, 100_000), (70_000, 1)] {
            let content: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let offers = Offers::with_bytes(content.clone().into());
            let spools = Spools::new(100_000, None);
            let fill = pin!(SpooledContent::fill(offers.take_content().unwrap(), most, &spools));
            let Poll::Ready(Ok(Filled::Whole(mut spool))) = fill.poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("{bytes} bytes are here whole");
            };
            assert_eq!((spool.length(), spools.held_bytes()), (bytes, bytes));
            for _ in 0..2 {
                let mut found = Vec::new();
                while let Some(piece) = spool.next_piece().unwrap() {
                    found.extend_from_slice(&piece);
                }
                assert_eq!(found, content);
                spool.rewind();
            }
        }
    }
}
