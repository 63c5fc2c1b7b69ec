//! The bounded queue between the workers and the writer, one per process.

use super::failure::OpenError;
use flatout_http::access::{LogDestination, LogSettings};
use flatout_os::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// Maximum number of queued chunks. Each chunk contains at most 32 KiB plus one batch of pipelined lines. The number is
/// a guess at what a briefly stalled disk needs; it was not measured.
pub(super) const CHUNKS_MAX: usize = 128;

/// Interval for checking for room in the queue, for messages that must not be lost.
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// Totals of all logs of a process, including closed ones.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) lines_lost: AtomicU64,
    /// True if the files are to be reopened.
    pub(super) reopen: AtomicBool,
}

/// One target, as seen by the threads that send lines to it.
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
    /// Where the buffer is returned once it is empty.
    pub(super) home: SyncSender<Vec<u8>>,
}

/// A message to the writer.
#[derive(Debug)]
pub(super) enum Message {
    Chunk(Chunk),
    /// Replaces the logs. The reply has a channel for each log, in the same order.
    Replace(Vec<LogSettings>, SyncSender<Result<Vec<Arc<Channel>>, OpenError>>),
    /// Wakes the writer after a flag has changed.
    Wake,
    /// Makes the writer write the queued lines until this time, and then stop.
    Close(Instant),
}

/// Sends a message, waiting for room in the queue until `deadline`. Returns the message if there was no room.
pub(super) fn send_until(queue: &SyncSender<Message>, mut message: Message, deadline: Instant) -> Result<(), Message> {
    loop {
        match queue.try_send(message) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(full)) if clock::now() < deadline => message = full,
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => return Err(message),
        }
        clock::sleep(ROOM_INTERVAL);
    }
}
