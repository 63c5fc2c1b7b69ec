//! Content on its way to the handler that took it.

use flatout_handler::content::ContentWriter;
use flatout_handler::ending::CloseReason;
use flatout_handler::shared::SharedBytes;
use std::rc::Rc;
use std::task::Context;

/// Bytes that a client must send within each body timeout, unless its content ends: 2 KiB a second with the default.
/// Time in which the handler has no room does not count.
const ROUND_BYTES: u64 = 64 * 1024;

/// Delivers content, and divides the waits for it into rounds, each of which has a timeout.
#[derive(Debug)]
pub(crate) struct Intake {
    /// `None` after the end.
    writer: Option<ContentWriter>,
    /// The reader has room, so the client has to send more.
    waits_for_client: bool,
    /// Bytes delivered in the current round.
    round_bytes: u64,
    /// Distinguishes successive waits.
    rounds: u32,
}

impl Intake {
    pub(crate) const fn new(writer: ContentWriter) -> Self {
        Self { writer: Some(writer), waits_for_client: true, round_bytes: 0, rounds: 0 }
    }

    /// Returns whether the reader has room now; otherwise wakes `context` later. A reader that is gone has room.
    pub(crate) fn poll_room(&mut self, context: &mut Context<'_>) -> bool {
        let has_room = self.writer.as_ref().is_none_or(|writer| writer.poll_room(context).is_ready());
        self.set_waiting(has_room);
        has_room
    }

    /// Starts or ends a wait for the client.
    pub(crate) const fn set_waiting(&mut self, waits: bool) {
        if waits && !self.waits_for_client {
            self.begin_round();
        }
        self.waits_for_client = waits;
    }

    /// Starts a new wait.
    pub(crate) const fn begin_round(&mut self) {
        self.round_bytes = 0;
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Delivers `bytes` of content.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.round_bytes += bytes.len() as u64;
        if let Some(writer) = self.writer.as_ref().filter(|writer| !bytes.is_empty() && !writer.is_abandoned()) {
            writer.write(SharedBytes::from(bytes));
        }
        if self.round_bytes >= ROUND_BYTES {
            self.begin_round();
        }
    }

    /// Marks the content as complete.
    pub(crate) fn end(&mut self, trailers: Option<Rc<[u8]>>) {
        if let Some(writer) = self.writer.take() {
            writer.end(trailers);
        }
    }

    /// Marks the content as cut.
    pub(crate) fn cut(&mut self, reason: CloseReason) {
        if let Some(writer) = self.writer.take() {
            writer.cut(reason);
        }
    }

    /// Returns whether more content may be read.
    pub(crate) fn is_read(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| !writer.is_abandoned())
    }

    /// Returns whether the content was never polled: the handler that took it did not read it.
    pub(crate) fn was_never_asked(&self) -> bool {
        self.writer.as_ref().is_some_and(ContentWriter::was_never_asked)
    }

    /// The current wait for the client; `None` if the handler has no room, or needs no more.
    pub(crate) fn wait(&self) -> Option<u32> {
        (self.waits_for_client && self.writer.is_some()).then_some(self.rounds)
    }

    /// Number of waits so far.
    pub(crate) const fn rounds(&self) -> u32 {
        self.rounds
    }
}

impl Default for Intake {
    /// An intake that has ended.
    fn default() -> Self {
        Self { writer: None, waits_for_client: false, round_bytes: 0, rounds: 0 }
    }
}
