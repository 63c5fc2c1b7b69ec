//! Delivery of request content to the handler that took it.

use super::pace::Pace;
use flatout_handler::content::ContentWriter;
use flatout_handler::ending::CloseReason;
use flatout_handler::shared::SharedBytes;
use std::rc::Rc;
use std::task::Context;

/// Delivers content to the handler, and divides the wait for it into rounds, each of which has a timeout. Time during
/// which the handler has no room does not count.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// `None` after the end of the content.
    writer: Option<ContentWriter>,
    /// True if the handler has room, so that the client is expected to send more.
    waits_for_client: bool,
    pace: Pace,
    /// True if the client waits for 100 (Continue), which is sent when the content is first polled.
    owes_continue: bool,
}

impl Intake {
    /// Creates an intake. `owes_continue` is true if the client waits for 100 (Continue).
    pub(crate) const fn new(writer: ContentWriter, pace: Pace, owes_continue: bool) -> Self {
        Self { writer: Some(writer), waits_for_client: !owes_continue, pace, owes_continue }
    }

    /// Returns whether the client waits for 100 (Continue).
    pub(crate) const fn owes_continue(&self) -> bool {
        self.owes_continue
    }

    /// Returns whether to send 100 (Continue) now, because the client waits for it and the handler has polled the
    /// content (RFC 9110 §10.1.1). Returns true only once.
    pub(crate) fn take_continue(&mut self) -> bool {
        let is_due = self.owes_continue && self.is_read() && !self.was_never_asked();
        if is_due {
            self.owes_continue = false;
            self.set_waiting(true);
        }
        is_due
    }

    /// Returns whether the handler has room for more content; otherwise wakes `context` when it has. Also returns true
    /// if the handler has dropped the reader.
    pub(crate) fn poll_room(&mut self, context: &mut Context<'_>) -> bool {
        let has_room = self.writer.as_ref().is_none_or(|writer| writer.poll_room(context).is_ready());
        self.set_waiting(has_room);
        has_room
    }

    /// Starts or ends waiting for the client.
    pub(crate) const fn set_waiting(&mut self, waits: bool) {
        // A client that waits for 100 (Continue) is not slow.
        let waits = waits && !self.owes_continue;
        if waits && !self.waits_for_client {
            self.begin_round();
        }
        self.waits_for_client = waits;
    }

    /// Starts a new round.
    pub(crate) const fn begin_round(&mut self) {
        self.pace.begin_round();
    }

    /// Delivers `bytes` of content to the handler.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.pace.add(bytes.len());
        // RFC 9110 §10.1.1: a client that sends content is no longer waiting.
        self.owes_continue = false;
        if let Some(writer) = self.writer.as_ref().filter(|writer| !bytes.is_empty() && !writer.is_abandoned()) {
            writer.write(SharedBytes::from(bytes));
        }
    }

    /// Marks the content as complete.
    pub(crate) fn end(&mut self, trailers: Option<Rc<[u8]>>) {
        if let Some(writer) = self.writer.take() {
            writer.end(trailers);
        }
    }

    /// Marks the content as incomplete, for `reason`.
    pub(crate) fn cut(&mut self, reason: CloseReason) {
        if let Some(writer) = self.writer.take() {
            writer.cut(reason);
        }
    }

    /// Returns whether the handler may still read content.
    pub(crate) fn is_read(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| !writer.is_abandoned())
    }

    /// Returns whether the handler that took the content has never polled it.
    pub(crate) fn was_never_asked(&self) -> bool {
        self.writer.as_ref().is_some_and(ContentWriter::was_never_asked)
    }

    /// Returns the number of the current round, or `None` if the handler has no room or needs no more content.
    pub(crate) fn wait(&self) -> Option<u32> {
        (self.waits_for_client && self.writer.is_some()).then_some(self.pace.rounds())
    }

    /// Returns the number of the last round.
    pub(crate) const fn rounds(&self) -> u32 {
        self.pace.rounds()
    }
}
