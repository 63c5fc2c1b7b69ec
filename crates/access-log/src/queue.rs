//! The bounded queue between the workers and the writer, one per process.

use super::failure::OpenError;
use flatout_http::access::{LogDestination, LogSettings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// Upper bound of queued chunks, of at most 32 KiB and one batch of pipelined lines each: a guess at what a briefly
/// stalled disk needs; not measured.
pub(super) const CHUNKS_MAX: usize = 128;

/// Polling interval for room in the queue, for messages that must not be lost.
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// Totals of all logs of a process, including closed ones.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) lines_lost: AtomicU64,
    /// Set when the files are to be reopened.
    pub(super) reopen: AtomicBool,
}

/// One target, as its senders see it.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) target: LogDestination,
    pub(super) lines_written: AtomicU64,
    pub(super) lines_lost: AtomicU64,
    pub(super) rotations: AtomicU64,
    pub(super) totals: Arc<Totals>,
}

impl Channel {
    pub(super) fn count_lost(&self, lines: u64) {
        self.lines_lost.fetch_add(lines, Ordering::Relaxed);
        self.totals.lines_lost.fetch_add(lines, Ordering::Relaxed);
    }
}

/// Whole lines for one target.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) channel: Arc<Channel>,
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
    /// Destination of the buffer once it is empty.
    pub(super) home: SyncSender<Vec<u8>>,
}

/// A message to the writer.
#[derive(Debug)]
pub(super) enum Message {
    Chunk(Chunk),
    /// Replaces the logs; the reply has a channel for each, in order.
    Replace(Vec<LogSettings>, SyncSender<Result<Vec<Arc<Channel>>, OpenError>>),
    /// A flag has changed.
    Wake,
    /// Write the queued lines until this time, and stop.
    Close(Instant),
}

/// Waits for room until `deadline`. Returns the message if there was none.
pub(super) fn send_until(queue: &SyncSender<Message>, mut message: Message, deadline: Instant) -> Result<(), Message> {
    loop {
        match queue.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(full)) if Instant::now() < deadline => message = full,
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => return Err(message),
        }
        thread::sleep(ROOM_INTERVAL);
    }
}
