//! A request's content, kept before the application server is asked.
//!
//! A script must be told CONTENT_LENGTH before its content, so content whose length is not told is kept until it is known.
//! Any other is kept as well, as far as it may be: an application server such as PHP-FPM has a process for each connection,
//! and one that waits for a slow client's content is missed by everybody else.

use crate::outcome::Outcome;
use flatout_net::content::{Content, ContentPiece};
use flatout_net::shared::SharedBytes;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, write};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are kept as they came. More go to a file without a name, which the kernel may swap out.
const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// Bytes read from the file at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Bytes that all requests of one step keep at the most, of all workers; one receive more for each request.
const BUDGET_BYTES: u64 = 256 * 1024 * 1024;

/// What all requests of a step keep.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicU64);

/// What one of them keeps.
#[derive(Debug)]
struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Share {
    /// Keeps `bytes` more. Whether more may be kept.
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

/// Content that is here.
#[derive(Debug)]
pub(crate) struct Spool {
    place: Place,
    /// Bytes given out.
    at: u64,
    /// As many as it holds.
    share: Share,
}

#[derive(Debug)]
enum Place {
    Memory(SharedBytes),
    File(OwnedFd),
}

/// What was kept, and what is still to come.
#[derive(Debug)]
pub(crate) enum Filled {
    /// All of the content.
    Whole(Spool),
    /// Its beginning, and the rest of it.
    Part(Spool, Content),
}

impl Spool {
    /// Takes `content`, up to `bytes_max` and one receive more. Content whose length is not told is taken whole, or not at
    /// all.
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
                // Nothing is to come but its end.
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

    /// Bytes in all.
    pub(crate) const fn length(&self) -> u64 {
        self.share.bytes
    }

    /// From the beginning again.
    pub(crate) const fn rewind(&mut self) {
        self.at = 0;
    }

    /// The next piece; `None` at the end.
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
