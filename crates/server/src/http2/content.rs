//! Request content: discarded, or delivered to the handler that took it.

use super::stream::ServerStream;
use super::task::Http2Task;
use crate::exchange::intake::Intake;
use flatout_handler::content::ContentWriter;
use flatout_handler::ending::CloseReason;
use flatout_handler::stream::MessageEnd;
use flatout_handler::{Handler, Reply};
use flatout_http::http2::connection::ConnectionError;
use flatout_http::http2::window::StreamCount;
use flatout_http::refusal::Refusal;
use flatout_http::timeouts::Timeouts;
use std::rc::Rc;
use std::task::Context;

/// Content on its way to a handler. The client's window opens as the handler reads, so what is buffered here is at most
/// a window.
#[derive(Debug, Default)]
pub(super) struct StreamIntake {
    intake: Intake,
    /// Received, while the handler had no room.
    buffered: Vec<u8>,
    /// The end of the content, which follows the buffered part.
    ended: Option<MessageEnd>,
    count: StreamCount,
    /// True if the client may pause for long, as in gRPC.
    may_rest: bool,
    /// The wait that the deadline belongs to.
    wait: Option<u32>,
    deadline_ms: u64,
}

impl StreamIntake {
    pub(super) fn new(writer: ContentWriter, may_rest: bool) -> Self {
        Self { intake: Intake::new(writer), may_rest, deadline_ms: u64::MAX, ..Self::default() }
    }

    pub(super) const fn deadline_ms(&self) -> u64 {
        self.deadline_ms
    }

    /// Tells the handler that the content is cut.
    pub(super) fn cut(&mut self, reason: CloseReason) {
        self.intake.cut(reason);
    }

    /// Delivers content while the handler has room. Returns the bytes that were taken.
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
                // Registers for more room.
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

impl<H: Handler> Http2Task<H> {
    /// Handles `bytes` of a stream's content.
    pub(super) fn handle_content(&mut self, id: u32, bytes: &[u8], ends: bool) -> Result<(), ConnectionError> {
        let now_ms = self.now_ms();
        let Some(stream) = self.core.get_mut(id) else { return Ok(()) };
        if let Some(intake) = stream.intake_mut() {
            intake.buffered.extend_from_slice(bytes);
            intake.ended = ends.then_some(MessageEnd(None));
            return Ok(());
        }
        if let ServerStream::Receiving(receiving) = stream {
            receiving.received_bytes += bytes.len() as u64;
            let is_too_large = receiving.received_bytes > self.worker.settings.limits.body_bytes_max;
            let probes = self.windows.handle_taken(&mut receiving.count, bytes.len());
            self.probe_if(probes);
            self.core.discard_data(now_ms, id, bytes.len(), &mut self.link.output)?;
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
    pub(super) fn handle_trailers(&mut self, id: u32, trailers: Option<Rc<[u8]>>) {
        match self.core.get_mut(id) {
            Some(ServerStream::Receiving(_)) => self.end_receiving(id),
            Some(stream) => {
                if let Some(intake) = stream.intake_mut() {
                    intake.ended = Some(MessageEnd(trailers));
                }
            }
            None => {}
        }
    }

    /// Responds to a request whose content was discarded.
    fn end_receiving(&mut self, id: u32) {
        let ServerStream::Receiving(receiving) = self.take(id) else { return };
        let receiving = *receiving;
        match receiving.reply {
            Reply::Now(response) => self.respond(id, response, receiving.record, None),
            Reply::Later(response) => self.wait(id, response, receiving.interims, receiving.record, None),
        }
    }

    /// Delivers a stream's content to its handler while that has room.
    pub(super) fn poll_content(&mut self, id: u32, context: &mut Context<'_>) {
        let now_ms = self.now_ms();
        let Some(intake) = self.core.get_mut(id).and_then(ServerStream::intake_mut) else { return };
        let taken = intake.poll(now_ms, &self.worker.settings.timeouts, context);
        if taken > 0 {
            let probes = self.windows.handle_taken(&mut intake.count, taken);
            self.probe_if(probes);
            self.core.release(id, taken, &mut self.link.output);
        }
    }
}
