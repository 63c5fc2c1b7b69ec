//! Request content, which is discarded or delivered to the handler that took it.

use super::state::ServerStream;
use super::{StreamTransport, Streams};
use crate::exchange::intake::Intake;
use crate::exchange::pace::Pace;
use flatout_handler::content::ContentWriter;
use flatout_handler::ending::CloseReason;
use flatout_handler::stream::MessageEnd;
use flatout_handler::{Handler, Reply};
use flatout_http::refusal::Refusal;
use flatout_http::timeouts::Timeouts;
use std::rc::Rc;
use std::task::Context;

/// Content on its way to a handler. The client's window opens as the handler reads, so at most one window of content is
/// buffered here.
#[derive(Debug, Default)]
pub(crate) struct StreamIntake {
    intake: Intake,
    /// Content that was received while the handler had no room.
    buffered: Vec<u8>,
    /// The end of the content, after the buffered part.
    ended: Option<MessageEnd>,
    /// True if the client may pause for a long time, as in gRPC.
    may_rest: bool,
    /// The wait for which the deadline was set.
    wait: Option<u32>,
    deadline_ms: u64,
}

impl StreamIntake {
    pub(super) fn new(writer: ContentWriter, pace: Pace, may_rest: bool, owes_continue: bool) -> Self {
        Self { intake: Intake::new(writer, pace, owes_continue), may_rest, deadline_ms: u64::MAX, ..Self::default() }
    }

    /// Returns whether to send 100 (Continue) now. Returns true only once.
    pub(super) fn take_continue(&mut self) -> bool {
        self.intake.take_continue()
    }

    /// Returns whether the client waits for 100 (Continue) before it sends content that may still be read.
    pub(super) fn owes_continue(&self) -> bool {
        self.intake.owes_continue() && self.intake.is_read()
    }

    pub(super) const fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Marks the content as incomplete, for `reason`.
    pub(super) fn cut(&mut self, reason: CloseReason) {
        self.intake.cut(reason);
    }

    /// Delivers content while the handler has room. Returns the number of bytes delivered.
    fn poll(&mut self, now_ms: u64, timeouts: &Timeouts, context: &mut Context<'_>) -> usize {
        let mut taken = 0;
        if self.intake.poll_room(context) {
            if !self.buffered.is_empty() {
                let bytes = std::mem::take(&mut self.buffered);
                self.intake.write(&bytes);
                taken = bytes.len();
                if self.may_rest {
                    // Each message starts a new wait.
                    self.intake.begin_round();
                }
            }
            if let Some(MessageEnd(trailers)) = self.ended.take() {
                self.intake.end(trailers);
            } else if taken > 0 {
                // Registers the task to be woken when there is more room.
                self.intake.poll_room(context);
            }
        }
        let wait = if self.intake.is_read() { self.intake.wait() } else { None };
        if wait != self.wait {
            self.wait = wait;
            let timeout_ms = if self.may_rest { timeouts.stream_timeout_ms } else { timeouts.body_timeout_ms };
            self.deadline_ms = if wait.is_some() { now_ms.saturating_add(timeout_ms) } else { u64::MAX };
        }
        taken
    }
}

impl<H: Handler, T: StreamTransport> Streams<H, T> {
    /// Handles `bytes` of a stream's content. `ends` is true if they are the last.
    pub(crate) fn handle_content(&mut self, id: u64, bytes: &[u8], ends: bool) -> Result<(), CloseReason> {
        let now_ms = self.now_ms();
        let Some(stream) = self.transport.stream_mut(id) else { return Ok(()) };
        if let Some(intake) = stream.intake_mut() {
            intake.buffered.extend_from_slice(bytes);
            intake.ended = ends.then_some(MessageEnd(None));
            return Ok(());
        }
        if let Some(input) = stream.tunnel_input_mut() {
            input.add(bytes, ends);
            return Ok(());
        }
        if let ServerStream::Receiving(receiving) = stream {
            receiving.received_bytes += bytes.len() as u64;
            if receiving.pace.add(bytes.len()) {
                receiving.deadline_ms = now_ms.saturating_add(self.worker.settings.timeouts.body_timeout_ms);
            }
            let is_too_large = receiving.received_bytes > self.worker.settings.limits.body_bytes_max;
            self.transport.handle_discarded(now_ms, id, bytes.len())?;
            if is_too_large {
                let ServerStream::Receiving(receiving) = self.take(id) else { return Ok(()) };
                self.refuse(id, Refusal::BodyTooLarge, &receiving.record);
            } else if ends {
                self.end_receiving(id);
            }
        }
        Ok(())
    }

    /// Handles the trailers of a request, which end it.
    pub(crate) fn handle_trailers(&mut self, id: u64, trailers: Option<Rc<[u8]>>) {
        match self.transport.stream_mut(id) {
            Some(ServerStream::Receiving(_)) => self.end_receiving(id),
            Some(stream) => {
                if let Some(intake) = stream.intake_mut() {
                    intake.ended = Some(MessageEnd(trailers));
                } else if let Some(input) = stream.tunnel_input_mut() {
                    input.add(b"", true);
                }
            }
            None => {}
        }
    }

    /// Responds to a request whose content has been discarded completely.
    fn end_receiving(&mut self, id: u64) {
        let ServerStream::Receiving(receiving) = self.take(id) else { return };
        let receiving = *receiving;
        match receiving.reply {
            Reply::Now(response) => self.respond(id, response, receiving.record, None),
            Reply::Later(response) => self.wait(id, response, receiving.interims, receiving.record, None),
        }
    }

    /// Delivers a stream's content to its handler while the handler has room.
    pub(super) fn poll_content(&mut self, id: u64, context: &mut Context<'_>) {
        let now_ms = self.now_ms();
        let Some(intake) = self.transport.stream_mut(id).and_then(ServerStream::intake_mut) else { return };
        let taken = intake.poll(now_ms, &self.worker.settings.timeouts, context);
        if taken > 0 {
            self.transport.handle_taken(id, taken);
        }
    }
}
