//! Buffering of request content before the request is sent, and of response content that the client cannot take yet.
//!
//! Each request to a server occupies something there, such as a process of PHP-FPM, for which a slow client would
//! otherwise be responsible. Content whose length must be known before it is sent is buffered completely.

use flatout_handler::budget::{Budget, BudgetUser, Held};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::ending::CloseReason;
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

/// Where content is buffered, and how much of it, over all workers.
#[derive(Debug)]
pub struct Spools {
    budget: Arc<Budget>,
    folder: Option<PathBuf>,
}

impl Spools {
    /// Buffers up to `bytes_max` bytes in files in `folder`, or in memory files. Each request may exceed this by one
    /// receive.
    pub fn new(bytes_max: u64, folder: Option<PathBuf>) -> Arc<Self> {
        // Content in flight may use half of a budget.
        Arc::new(Self { budget: Arc::new(Budget::new(bytes_max.saturating_mul(2))), folder })
    }

    /// Returns the number of bytes that are buffered.
    pub fn held_bytes(&self) -> u64 {
        self.budget.held_in_all()
    }
}

/// Buffered content. It can be read from its beginning for each attempt to send the request, or freed as it is read.
#[derive(Debug)]
pub struct SpooledContent {
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

/// The reason content could not be buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolFault {
    /// The client did not send all of the content, or sent too much.
    Cut(CloseReason),
    /// The content is larger than its own limit.
    TooLarge,
    /// The budget is exhausted.
    Full,
    /// The content could not be written, for example because the disk is full.
    Failed,
}

/// The result of buffering content.
#[derive(Debug)]
pub enum Filled {
    /// The whole content.
    Whole(SpooledContent),
    /// The beginning of the content, and the rest, which has not been received yet.
    Part(SpooledContent, RequestContent),
}

impl SpooledContent {
    /// Creates a buffer without content.
    pub fn new(spools: &Spools) -> Self {
        Self {
            spool: Spool::default(),
            file: SpoolFile::new(spools.folder.as_deref()),
            at: 0,
            freed: 0,
            can_free: true,
            share: Held::new(Arc::clone(&spools.budget), BudgetUser::Pieces),
        }
    }

    /// Buffers `content` up to `bytes_max` bytes plus one receive, and within the budget of `spools`. If `is_whole`,
    /// content that does not fit is an error; otherwise its rest is returned.
    ///
    /// # Errors
    /// If the content is incomplete, does not fit, or cannot be written.
    pub async fn fill(
        content: RequestContent,
        bytes_max: u64,
        is_whole: bool,
        spools: &Spools,
    ) -> Result<Filled, SpoolFault> {
        let mut spooled = Self::new(spools);
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(_) => return Ok(Filled::Whole(spooled)),
                ContentPiece::Cut(reason) => return Err(SpoolFault::Cut(reason)),
            };
            spooled.append(&bytes).map_err(|_| SpoolFault::Failed)?;
            let has_room = spooled.length() <= bytes_max && spools.budget.has_room(0);
            // If the content is complete, only its end has not been received yet.
            if has_room || content.length().is_some_and(|length| spooled.length() >= length) {
                continue;
            }
            return match is_whole {
                false => Ok(Filled::Part(spooled, content)),
                true if spooled.length() > bytes_max => Err(SpoolFault::TooLarge),
                true => Err(SpoolFault::Full),
            };
        }
    }

    /// Appends `bytes`. If this fails, the content is unchanged.
    ///
    /// # Errors
    /// If the file cannot be created or written.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.spool.append(bytes, &self.file)?;
        self.share.set(self.share.bytes() + bytes.len() as u64);
        Ok(())
    }

    /// Returns whether `bytes` more may be buffered if this buffer may occupy `bytes_max` bytes.
    pub fn has_room(&self, bytes: u64, bytes_max: u64) -> bool {
        self.share.bytes().saturating_add(bytes) <= bytes_max && self.share.budget().has_room(bytes)
    }

    /// Length of the buffered content, in bytes.
    pub fn length(&self) -> u64 {
        self.spool.len()
    }

    /// Returns whether all content has been read.
    pub fn is_drained(&self) -> bool {
        self.at >= self.length()
    }

    /// Makes the next read start from the beginning.
    pub const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Returns the next piece, or `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next_piece(&mut self) -> io::Result<Option<SharedBytes>> {
        if self.is_drained() {
            return Ok(None);
        }
        self.read().map(SharedBytes::from_buffer).map(Some)
    }

    /// Returns the next piece, and frees what has been read from time to time. There must be more content.
    ///
    /// # Errors
    /// If the file cannot be read, or if there is no more content.
    pub fn take_piece(&mut self) -> io::Result<Vec<u8>> {
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
    use super::{FREED_BYTES_MIN, Filled, PIECE_BYTES, SpoolFault, SpooledContent, Spools};
    use flatout_handler::content::{ContentPiece, Offers, content_channel};
    use flatout_handler::ending::CloseReason;
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
    fn content_that_does_not_fit_is_an_error_or_continues() {
        let context = &mut Context::from_waker(Waker::noop());
        for (bytes_max, total, is_whole, expected) in [
            (3, 100, true, Some(SpoolFault::TooLarge)),
            (100, 3, true, Some(SpoolFault::Full)),
            (3, 100, false, None),
            (100, 3, false, None),
        ] {
            let (writer, content) = content_channel(None);
            for piece in ["ab", "cd", "ef"] {
                writer.write(piece.as_bytes().to_vec().into());
            }
            writer.end(None);
            let spools = Spools::new(total, None);
            let fill = pin!(SpooledContent::fill(content, bytes_max, is_whole, &spools));
            match (fill.poll(context), expected) {
                (Poll::Ready(Err(fault)), Some(expected)) => assert_eq!(fault, expected),
                (Poll::Ready(Ok(Filled::Part(spooled, rest))), None) => {
                    assert_eq!(spooled.length(), 4);
                    let piece = rest.poll_piece(context);
                    assert!(matches!(piece, Poll::Ready(ContentPiece::Bytes(bytes)) if *bytes == *b"ef"));
                }
                (filled, _) => panic!("{bytes_max} of {total}: {filled:?}"),
            }
            assert_eq!(spools.held_bytes(), 0);
        }
        let (writer, content) = content_channel(None);
        writer.cut(CloseReason::ClientReset);
        let spools = Spools::new(100, None);
        let fill = pin!(SpooledContent::fill(content, 100, true, &spools));
        assert!(matches!(fill.poll(context), Poll::Ready(Err(SpoolFault::Cut(CloseReason::ClientReset)))));
    }

    #[test]
    fn spooled_content_can_be_read_again() {
        for (bytes, most) in [(0, 10), (10, 10), (11, 10), (70_000, 100_000), (70_000, 1)] {
            let content: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let offers = Offers::with_bytes(content.clone().into());
            let spools = Spools::new(100_000, None);
            let fill = pin!(SpooledContent::fill(offers.take_content().unwrap(), most, false, &spools));
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
