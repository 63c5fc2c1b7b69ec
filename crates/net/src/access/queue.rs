//! What passes between the workers and the writer: one bounded queue for the process.

use super::settings::{LogSettings, OpenError, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

/// Chunks that may wait for the writer, of at most 32 KiB and one batch of pipelined lines each: a guess at what a disk
/// that stalls for a moment needs; not measured.
pub(super) const CHUNKS_MAX: usize = 128;

/// Whoever must not lose a message looks for room so often.
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// What a process knows of all its logs, the closed ones included.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) lines_lost: AtomicU64,
    /// The files are to be opened anew.
    pub(super) reopen: AtomicBool,
}

/// One target, as those who send to it know it.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) target: Target,
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
    /// Where the buffer goes when it is empty again.
    pub(super) home: SyncSender<Vec<u8>>,
}

/// What the writer is told.
#[derive(Debug)]
pub(super) enum Message {
    Chunk(Chunk),
    /// These are the logs from now on; the answer has a channel for each, in their order.
    Replace(Vec<LogSettings>, SyncSender<Result<Vec<Arc<Channel>>, OpenError>>),
    /// Something else has changed: look.
    Wake,
    /// Write what is there until then, and end.
    Close(Instant),
}

/// Waits for room until `deadline`. Gives the message back when there was none.
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
