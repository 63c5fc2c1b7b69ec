//! Buffering of request content before the request is sent, and of response content that the client cannot take yet.
//!
//! Each request to a server occupies something there, such as a process of PHP-FPM, for which a slow client would
//! otherwise be responsible. Content whose length must be known before it is sent is buffered completely.

use flatout_handler::budget::{Budget, BudgetUser, Held};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::ending::CloseReason;
use flatout_handler::shared::SharedBytes;
use flatout_os::spool::{MEMORY_BYTES_MAX, Spool, SpoolFile};
use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// Number of bytes per read.
const PIECE_BYTES: usize = 32 * 1024;

/// Number of bytes that were read after which their space in the file is freed, so that this costs few system calls.
const FREED_BYTES_MIN: u64 = 1024 * 1024;

/// Number of bytes that a file counts as at least, so that the budget also bounds the number of files, each of which
/// occupies a descriptor.
const FILE_BYTES_MIN: u64 = 1024 * 1024;

/// The user of the budget for request content. Response content is counted as [`BudgetUser::Pieces`].
const REQUESTS: BudgetUser = BudgetUser::Retries;

/// Where content is buffered, and how much of it, over all workers.
#[derive(Debug)]
pub struct Spools {
    budget: Arc<Budget>,
    /// The part of the budget that requests may use, in bytes.
    requests_bytes_max: u64,
    folder: Option<PathBuf>,
}

impl Spools {
    /// Buffers up to `bytes_max` bytes in files in `folder`, or in memory files. Requests may use up to
    /// `requests_bytes_max` of these, so that slow uploads leave space for responses. Each file counts as at least
    /// 1 MiB. Each worker may exceed this by one receive or 1 MiB.
    pub fn new(bytes_max: u64, requests_bytes_max: u64, folder: Option<PathBuf>) -> Arc<Self> {
        // Content in flight may use half of a budget.
        let budget = Arc::new(Budget::new(bytes_max.saturating_mul(2)));
        Arc::new(Self { budget, requests_bytes_max: requests_bytes_max.min(bytes_max), folder })
    }

    /// Returns the number of bytes that are buffered. A file counts as at least 1 MiB.
    pub fn held_bytes(&self) -> u64 {
        self.budget.held_in_all()
    }

    /// Returns whether more request content may be buffered.
    fn has_room_for_requests(&self) -> bool {
        self.budget.held(REQUESTS) <= self.requests_bytes_max && self.budget.has_room(0)
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
    /// The trailer field lines of request content, if there were any.
    trailers: Option<Rc<[u8]>>,
    /// The share of the budget.
    share: Held,
}

/// The reason content could not be buffered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpoolFault {
    /// The client did not send all of the content, or sent too much.
    Cut(CloseReason),
    /// The content is larger than its own limit, or alone larger than the budget of all requests.
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
    /// Creates a buffer for response content.
    pub fn new(spools: &Spools) -> Self {
        Self::with_user(spools, BudgetUser::Pieces)
    }

    fn with_user(spools: &Spools, user: BudgetUser) -> Self {
        Self {
            spool: Spool::default(),
            file: SpoolFile::new(spools.folder.as_deref()),
            at: 0,
            freed: 0,
            can_free: true,
            trailers: None,
            share: Held::new(Arc::clone(&spools.budget), user),
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
        let mut spooled = Self::with_user(spools, REQUESTS);
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(trailers) => {
                    spooled.trailers = trailers;
                    return Ok(Filled::Whole(spooled));
                }
                ContentPiece::Cut(reason) => return Err(SpoolFault::Cut(reason)),
            };
            spooled.append(&bytes).map_err(|_| SpoolFault::Failed)?;
            let has_room = spooled.length() <= bytes_max && spools.has_room_for_requests();
            // If the content is complete, only its end has not been received yet.
            if has_room || content.length().is_some_and(|length| spooled.length() >= length) {
                continue;
            }
            // Content that would not even fit on its own does not fit later either.
            let is_too_large = spooled.length() > bytes_max || spooled.share.bytes() > spools.requests_bytes_max;
            return match is_whole {
                false => Ok(Filled::Part(spooled, content)),
                true if is_too_large => Err(SpoolFault::TooLarge),
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
        self.share.set(self.charge(0));
        Ok(())
    }

    /// Returns whether `bytes` more of response content may be buffered if this buffer may contain `bytes_max` bytes.
    pub fn has_room(&self, bytes: u64, bytes_max: u64) -> bool {
        let more = self.charge(bytes).saturating_sub(self.share.bytes());
        (self.length() - self.freed).saturating_add(bytes) <= bytes_max && self.share.budget().has_room(more)
    }

    /// The share of the budget when `more` bytes have been appended: the length of the content without the bytes that
    /// have been freed, and at least the minimum for a file if there is one.
    fn charge(&self, more: u64) -> u64 {
        let length = self.length().saturating_add(more);
        let file_bytes_min = if length > MEMORY_BYTES_MAX as u64 { FILE_BYTES_MIN } else { 0 };
        (length - self.freed).max(file_bytes_min)
    }

    /// Takes the trailer field lines of request content, each `Name: value` and CR LF, if there were any.
    pub fn take_trailers(&mut self) -> Option<Rc<[u8]>> {
        self.trailers.take()
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
                self.freed = self.at;
                self.share.set(self.charge(0));
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
    use super::{FILE_BYTES_MIN, FREED_BYTES_MIN, Filled, PIECE_BYTES, SpoolFault, SpooledContent, Spools};
    use flatout_handler::content::{ContentPiece, Offers, content_channel};
    use flatout_handler::ending::CloseReason;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn content_is_buffered_within_both_limits_and_freed_as_it_is_read() {
        const LENGTH: u64 = 4 * FREED_BYTES_MIN;
        let spools = Spools::new(LENGTH + 10, 0, None);
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
            // It would not fit on its own.
            (100, 3, true, Some(SpoolFault::TooLarge)),
            (3, 100, false, None),
            (100, 3, false, None),
        ] {
            let (writer, content) = content_channel(None);
            for piece in ["ab", "cd", "ef"] {
                writer.write(piece.as_bytes().to_vec().into());
            }
            writer.end(None);
            let spools = Spools::new(total, total, None);
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
        let spools = Spools::new(100, 100, None);
        let fill = pin!(SpooledContent::fill(content, 100, true, &spools));
        assert!(matches!(fill.poll(context), Poll::Ready(Err(SpoolFault::Cut(CloseReason::ClientReset)))));
    }

    #[test]
    fn files_count_as_at_least_a_mebibyte() {
        let spools = Spools::new(2 * FILE_BYTES_MIN + 65_536, 0, None);
        let mut contents: Vec<_> = (0..4).map(|_| SpooledContent::new(&spools)).collect();
        contents[3].append(&vec![0; 65_536]).unwrap();
        assert_eq!(spools.held_bytes(), 65_536);
        for content in &mut contents[..2] {
            assert!(content.has_room(65_537, u64::MAX));
            content.append(&vec![0; 65_537]).unwrap();
            // The rest of the minimum is free.
            assert!(content.has_room(FILE_BYTES_MIN - 65_537, FILE_BYTES_MIN));
        }
        assert_eq!(spools.held_bytes(), 2 * FILE_BYTES_MIN + 65_536);
        assert!(!contents[2].has_room(65_537, u64::MAX) && !contents[3].has_room(1, u64::MAX));
        drop(contents);
        assert_eq!(spools.held_bytes(), 0);
    }

    #[test]
    fn requests_leave_space_for_responses() {
        let spools = Spools::new(100, 50, None);
        let fill = |bytes: usize| {
            let (writer, content) = content_channel(None);
            for _ in 0..bytes {
                writer.write(b"a".to_vec().into());
            }
            writer.end(Some(b"A: b\r\n".as_slice().into()));
            let fill = pin!(SpooledContent::fill(content, 100, true, &spools));
            match fill.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(filled) => filled,
                Poll::Pending => panic!("the content is here whole"),
            }
        };
        let Ok(Filled::Whole(mut first)) = fill(50) else { panic!("there is space") };
        assert_eq!(first.take_trailers().as_deref(), Some(&b"A: b\r\n"[..]));
        // Another request may fit later, unless it is too large on its own.
        assert!(matches!(fill(1), Err(SpoolFault::Full)));
        let mut response = SpooledContent::new(&spools);
        assert!(response.has_room(50, 100) && !response.has_room(51, 100));
        response.append(&[0; 100]).unwrap();
        drop(first);
        assert!(matches!(fill(1), Err(SpoolFault::Full)));
        drop(response);
        assert!(matches!(fill(51), Err(SpoolFault::TooLarge)) && matches!(fill(50), Ok(Filled::Whole(_))));
    }

    #[test]
    fn spooled_content_can_be_read_again() {
        for (bytes, most) in [(0, 10), (10, 10), (11, 10), (70_000, 100_000), (70_000, 1)] {
            let content: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let offers = Offers::with_bytes(content.clone().into());
            let spools = Spools::new(FILE_BYTES_MIN, FILE_BYTES_MIN, None);
            let fill = pin!(SpooledContent::fill(offers.take_content().unwrap(), most, false, &spools));
            let Poll::Ready(Ok(Filled::Whole(mut spool))) = fill.poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("{bytes} bytes are here whole");
            };
            let charged = if bytes > 65_536 { FILE_BYTES_MIN } else { bytes };
            assert_eq!((spool.length(), spools.held_bytes()), (bytes, charged));
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
