//! Buffering of request content before the FastCGI request.
//!
//! A script needs CONTENT_LENGTH before its content, so content of unknown length is buffered completely. Other
//! content is buffered as far as limits permit: an application server such as PHP-FPM uses a process per connection,
//! and a slow upload would block it.

use crate::outcome::Outcome;
use flatout_net::content::{Content, ContentPiece};
use flatout_net::shared::SharedBytes;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, write};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum bytes buffered in memory. More go to an unnamed file, which the kernel may swap out.
const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// Bytes per read from the file.
const PIECE_BYTES: usize = 32 * 1024;

/// Maximum bytes buffered for all requests of one step, over all workers; plus one receive per request.
const BUDGET_BYTES: u64 = 256 * 1024 * 1024;

/// Bytes buffered for all requests of a step.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicU64);

/// Bytes buffered for one request.
#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Share {
    /// Adds `bytes`. Returns whether more may be buffered.
    fn grow(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        self.budget.0.fetch_add(bytes, Ordering::Relaxed) + bytes < BUDGET_BYTES
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Buffered content.
#[derive(Debug)]
pub(crate) struct Spool {
    place: Place,
    /// Bytes returned so far.
    at: u64,
    /// Share of the budget, equal to its length.
    share: Share,
}

#[derive(Debug)]
enum Place {
    Memory(SharedBytes),
    File(OwnedFd),
}

/// Result of buffering.
#[derive(Debug)]
pub(crate) enum Filled {
    /// The whole content.
    Whole(Spool),
    /// The beginning, and the unread rest.
    Part(Spool, Content),
}

impl Spool {
    /// Buffers `content` up to `bytes_max` plus one receive. Content of unknown length is buffered completely or
    /// refused.
    pub(crate) async fn fill(content: Content, bytes_max: u64, budget: &Arc<Budget>) -> Result<Filled, Outcome> {
        let (mut memory, mut file) = (Vec::new(), None);
        let mut share = Share { budget: Arc::clone(budget), bytes: 0 };
        let mut rest = None;
        loop {
            let bytes = match poll_fn(|context| content.poll_piece(context)).await {
                ContentPiece::Bytes(bytes) => bytes,
                ContentPiece::End(_) => break,
                ContentPiece::Cut(_) => return Err(Outcome::ContentCut),
            };
            let has_room = share.grow(bytes.len() as u64);
            if file.is_none() && memory.len() + bytes.len() <= MEMORY_BYTES_MAX {
                memory.extend_from_slice(&bytes);
            } else {
                if file.is_none() {
                    let created =
                        memfd_create("flatout-content", MemfdFlags::CLOEXEC).map_err(|_| Outcome::SpoolFailed)?;
                    write_all(&created, &memory)?;
                    memory = Vec::new();
                    file = Some(created);
                }
                if let Some(file) = &file {
                    write_all(file, &bytes)?;
                }
            }
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
                None if share.bytes > bytes_max => return Err(Outcome::ContentTooLarge),
                None => return Err(Outcome::SpoolFailed),
            }
        }
        let place = file.map_or_else(|| Place::Memory(memory.into()), Place::File);
        let spool = Self { place, at: 0, share };
        Ok(match rest {
            Some(rest) => Filled::Part(spool, rest),
            None => Filled::Whole(spool),
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
    pub(crate) fn next_piece(&mut self) -> Result<Option<SharedBytes>, Outcome> {
        if self.at >= self.share.bytes {
            return Ok(None);
        }
        let piece = match &self.place {
            Place::Memory(bytes) => bytes.clone(),
            Place::File(file) => {
                let mut buffer = vec![0; PIECE_BYTES];
                let count = loop {
                    match pread(file, &mut buffer[..], self.at) {
                        Err(Errno::INTR) => {}
                        other => break other.map_err(|_| Outcome::SpoolFailed)?,
                    }
                };
                if count == 0 {
                    return Err(Outcome::SpoolFailed);
                }
                buffer.truncate(count);
                SharedBytes::from_buffer(buffer)
            }
        };
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Outcome> {
    while !bytes.is_empty() {
        match write(file, bytes) {
            Ok(0) => return Err(Outcome::SpoolFailed),
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(_) => return Err(Outcome::SpoolFailed),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BUDGET_BYTES, Budget, Filled, Share, Spool};
    use flatout_net::content::Offers;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn what_was_kept_is_given_back() {
        let budget = Arc::new(Budget::default());
        let share = |bytes| {
            let mut share = Share { budget: Arc::clone(&budget), bytes: 0 };
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
            let budget = Arc::new(Budget::default());
            let fill = pin!(Spool::fill(offers.take_content().unwrap(), most, &budget));
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
