//! Buffering of request content before the FastCGI request.
//!
//! A script needs CONTENT_LENGTH before its content, so content of unknown length is buffered completely. Other
//! content is buffered as far as limits permit: an application server such as PHP-FPM uses a process per connection,
//! and a slow upload would block it.

use crate::outcome::PhpOutcome;
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::shared::SharedBytes;
use flatout_os::spool::{Spool, SpoolFile};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes per read.
const PIECE_BYTES: usize = 32 * 1024;

/// Maximum bytes buffered for all requests of one step, over all workers; plus one receive per request.
const BUDGET_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes buffered for all requests of a step.
#[derive(Debug, Default)]
pub(crate) struct SpoolBudget(AtomicU64);

/// Bytes buffered for one request.
#[derive(Debug)]
struct SpoolShare {
    budget: Arc<SpoolBudget>,
    bytes: u64,
}

impl SpoolShare {
    /// Adds `bytes`. Returns whether more may be buffered.
    fn grow(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.budget.0.fetch_add(bytes, Ordering::Relaxed) + bytes < BUDGET_BYTES
    }
}

impl Drop for SpoolShare {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Content read from its beginning, as often as the request is sent.
#[derive(Debug)]
pub(crate) struct SpooledContent {
    spool: Spool,
    /// Bytes returned so far.
    at: u64,
    /// Share of the budget, equal to its length.
    share: SpoolShare,
}

/// Result of buffering.
#[derive(Debug)]
pub(crate) enum Filled {
    /// The whole content.
    Whole(SpooledContent),
    /// The beginning, and the unread rest.
    Part(SpooledContent, RequestContent),
}

impl SpooledContent {
    /// Buffers `content` up to `bytes_max` plus one receive. Content of unknown length is buffered completely or
    /// refused.
    pub(crate) async fn fill(
        content: RequestContent,
        bytes_max: u64,
        budget: &Arc<SpoolBudget>,
    ) -> Result<Filled, PhpOutcome> {
        let (spool, file) = (Spool::default(), SpoolFile::new(None));
        let mut share = SpoolShare { budget: Arc::clone(budget), bytes: 0 };
        let mut rest = None;
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(_) => break,
                ContentPiece::Cut(_) => return Err(PhpOutcome::ContentCut),
            };
            let has_room = share.grow(bytes.len() as u64);
            spool.append(&bytes, &file).map_err(|_| PhpOutcome::SpoolFailed)?;
            if share.bytes <= bytes_max && has_room {
                continue;
            }
            match content.length() {
                // Only the end marker is missing.
                Some(length) if share.bytes >= length => {}
                Some(_) => {
                    rest = Some(content);
                    break;
                }
                None if share.bytes > bytes_max => return Err(PhpOutcome::ContentTooLarge),
                None => return Err(PhpOutcome::SpoolFailed),
            }
        }
        let content = Self { spool, at: 0, share };
        Ok(match rest {
            Some(rest) => Filled::Part(content, rest),
            None => Filled::Whole(content),
        })
    }

    /// Length in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.share.bytes
    }

    /// Restarts from the beginning.
    pub(crate) const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Returns the next piece; `None` at the end.
    pub(crate) fn next_piece(&mut self) -> Result<Option<SharedBytes>, PhpOutcome> {
        if self.at >= self.share.bytes {
            return Ok(None);
        }
        let piece = self.spool.read(self.at, PIECE_BYTES).map_err(|_| PhpOutcome::SpoolFailed)?;
        if piece.is_empty() {
            return Err(PhpOutcome::SpoolFailed);
        }
        self.at += piece.len() as u64;
        Ok(Some(SharedBytes::from_buffer(piece)))
    }
}

#[cfg(test)]
mod tests {
    use super::{BUDGET_BYTES, Filled, SpoolBudget, SpoolShare, SpooledContent};
    use flatout_handler::content::Offers;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn what_was_kept_is_given_back() {
        let budget = Arc::new(SpoolBudget::default());
        let share = |bytes| {
            let mut share = SpoolShare { budget: Arc::clone(&budget), bytes: 0 };
            let has_room = share.grow(bytes);
            (share, has_room)
        };
        let (first, has_room) = share(BUDGET_BYTES - 1);
        assert!(has_room);
        let (second, has_room) = share(2);
        assert!(!has_room && !share(0).1);
        drop(first);
        assert!(share(1).1);
        drop(second);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn content_is_kept_from_its_beginning() {
        for (bytes, most) in [(0, 10), (10, 10), (11, 10), (70_000, 100_000), (70_000, 1)] {
            let content: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let offers = Offers::with_bytes(content.clone().into());
            let budget = Arc::new(SpoolBudget::default());
            let fill = pin!(SpooledContent::fill(offers.take_content().unwrap(), most, &budget));
            let Poll::Ready(Ok(Filled::Whole(mut spool))) = fill.poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("{bytes} bytes are here whole");
            };
            assert_eq!((spool.length(), budget.0.load(Ordering::Relaxed)), (bytes, bytes));
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
