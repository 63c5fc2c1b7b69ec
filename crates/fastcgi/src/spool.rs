//! Buffering of request content before the FastCGI request is sent.
//!
//! A script needs CONTENT_LENGTH before its content, so content of unknown length is buffered completely. Other content
//! is buffered as far as the limits allow: an application server such as PHP-FPM uses a process per connection, which a
//! slow upload would block.

use crate::outcome::PhpOutcome;
use flatout_handler::budget::{Budget, BudgetUser, Held};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::shared::SharedBytes;
use flatout_os::spool::{Spool, SpoolFile};
use std::future::poll_fn;
use std::sync::Arc;

/// Number of bytes per read.
const PIECE_BYTES: usize = 32 * 1024;

/// Maximum number of bytes buffered for all requests of a step, over all workers; each request may exceed this by one
/// receive.
const BUDGET_BYTES: u64 = 256 * 1024 * 1024;

/// Creates a budget for the requests of one step. Content in flight may use half of a budget.
pub(crate) fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(2 * BUDGET_BYTES))
}

/// Buffered content, which can be read from its beginning for each attempt to send the request.
#[derive(Debug)]
pub(crate) struct SpooledContent {
    spool: Spool,
    /// Number of bytes returned so far.
    at: u64,
    /// The share of the budget, which equals the length of the content.
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
    /// Buffers up to `bytes_max` bytes of `content` plus one receive. Content of unknown length, which is at most that
    /// long, is buffered completely.
    pub(crate) async fn fill(
        content: RequestContent,
        bytes_max: u64,
        budget: &Arc<Budget>,
    ) -> Result<Filled, PhpOutcome> {
        let (spool, file) = (Spool::default(), SpoolFile::new(None));
        let mut share = Held::new(Arc::clone(budget), BudgetUser::Pieces);
        let mut rest = None;
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(_) => break,
                ContentPiece::Cut(reason) => {
                    return Err(reason.content_fault(PhpOutcome::ContentTooLarge, PhpOutcome::ContentCut));
                }
            };
            share.set(share.bytes() + bytes.len() as u64);
            let has_room = budget.has_room(0);
            spool.append(&bytes, &file).map_err(|_| PhpOutcome::SpoolFailed)?;
            if share.bytes() <= bytes_max && has_room {
                continue;
            }
            match content.length() {
                // The content is complete; only its end has not been received yet.
                Some(length) if share.bytes() >= length => {}
                Some(_) => {
                    rest = Some(content);
                    break;
                }
                None => return Err(PhpOutcome::SpoolFailed),
            }
        }
        let content = Self { spool, at: 0, share };
        Ok(match rest {
            Some(rest) => Filled::Part(content, rest),
            None => Filled::Whole(content),
        })
    }

    /// Length of the buffered content, in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.share.bytes()
    }

    /// Makes the next read start from the beginning.
    pub(crate) const fn rewind(&mut self) {
        self.at = 0;
    }

    /// Returns the next piece, or `None` at the end.
    pub(crate) fn next_piece(&mut self) -> Result<Option<SharedBytes>, PhpOutcome> {
        if self.at >= self.share.bytes() {
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
    use super::{BUDGET_BYTES, Filled, SpooledContent, budget};
    use flatout_handler::budget::{BudgetUser, Held};
    use flatout_handler::content::Offers;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn the_budget_is_released() {
        let budget = budget();
        let share = |bytes| {
            let mut share = Held::new(Arc::clone(&budget), BudgetUser::Pieces);
            share.set(bytes);
            (share, budget.has_room(0))
        };
        let (first, has_room) = share(BUDGET_BYTES - 1);
        assert!(has_room);
        let (second, has_room) = share(2);
        assert!(!has_room && !share(0).1);
        drop(first);
        assert!(share(1).1);
        drop(second);
        assert_eq!(budget.held_in_all(), 0);
    }

    #[test]
    fn spooled_content_can_be_read_again() {
        for (bytes, most) in [(0, 10), (10, 10), (11, 10), (70_000, 100_000), (70_000, 1)] {
            let content: Vec<u8> = (0..bytes).map(|byte| byte as u8).collect();
            let offers = Offers::with_bytes(content.clone().into());
            let budget = budget();
            let fill = pin!(SpooledContent::fill(offers.take_content().unwrap(), most, &budget));
            let Poll::Ready(Ok(Filled::Whole(mut spool))) = fill.poll(&mut Context::from_waker(Waker::noop())) else {
                panic!("{bytes} bytes are here whole");
            };
            assert_eq!((spool.length(), budget.held_in_all()), (bytes, bytes));
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
