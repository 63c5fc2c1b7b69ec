//! Request content, which is either received to its end and discarded, or delivered to the handler that took it.

use super::exchanges::{Exchanges, Turn};
use crate::exchange::intake::Intake;
use crate::exchange::pace::Pace;
use crate::exchange::record::ExchangeRecord;
use flatout_handler::content::{ContentWriter, Interims};
use flatout_handler::ending::CloseReason;
use flatout_handler::{Handler, Reply};
use flatout_http::body::BodyDecoder;
use flatout_http::connection::ConnectionEvent;
use flatout_http::refusal::Refusal;
use std::rc::Rc;
use std::task::Context;

/// A request whose content is discarded, and the reply that follows.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) decoder: BodyDecoder,
    pub(super) body_bytes: u64,
    pub(super) pace: Pace,
    pub(super) reply: Reply,
    pub(super) request: ExchangeRecord,
    /// Interim responses that precede the reply.
    pub(super) interims: Option<Interims>,
}

/// Request content on its way to the handler that took it.
#[derive(Debug)]
pub(super) struct DecodedIntake {
    decoder: BodyDecoder,
    intake: Intake,
    /// Number of bytes discarded since the reader was dropped.
    discarded_bytes: u64,
}

impl DecodedIntake {
    pub(super) const fn new(decoder: BodyDecoder, writer: ContentWriter, pace: Pace, owes_continue: bool) -> Self {
        Self { decoder, intake: Intake::new(writer, pace, owes_continue), discarded_bytes: 0 }
    }

    /// Returns whether more content should be received now; otherwise wakes `context` later. Content that the handler
    /// does not read is discarded, up to the limit on unread content. Beyond the limit, the response is sent first, and
    /// then the connection is closed.
    fn poll_wanted(&mut self, discarded_bytes_max: u64, context: &mut Context<'_>) -> bool {
        if self.intake.is_read() {
            return self.intake.poll_room(context);
        }
        let wanted = self.discarded_bytes <= discarded_bytes_max;
        self.intake.set_waiting(wanted);
        wanted
    }

    /// Delivers the content in `input` to the reader. Returns the number of bytes used, and whether the content is
    /// complete.
    fn give(&mut self, input: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut used = 0;
        while used < input.len() {
            let step = self.decoder.decode(&input[used..])?;
            let data = &input[used + step.data_start..][..step.data_bytes];
            used += step.consumed;
            if !self.intake.is_read() {
                self.discarded_bytes += data.len() as u64;
            }
            self.intake.write(data);
            if step.done {
                return Ok((used, true));
            }
        }
        Ok((used, false))
    }

    /// Returns whether the handler may still read the content.
    pub(super) fn is_read(&self) -> bool {
        self.intake.is_read()
    }

    /// Returns whether the client waits for 100 (Continue).
    pub(super) const fn owes_continue(&self) -> bool {
        self.intake.owes_continue()
    }

    /// Returns the decoder with which to discard the content, if the handler never polled the content and the rest is
    /// short enough to be received before the response.
    fn unwanted(self, body_bytes_max: u64) -> Result<BodyDecoder, Self> {
        let near = matches!(self.decoder, BodyDecoder::Length(remaining) if remaining <= body_bytes_max);
        let is_coming = !self.intake.owes_continue();
        if near && is_coming && self.intake.was_never_asked() { Ok(self.decoder) } else { Err(self) }
    }
}

impl Exchanges {
    /// Continues to discard content, to find its end and to refuse malformed content. Returns the number of bytes used.
    pub(super) fn discard<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let Some(receiving) = self.receiving.as_mut() else { return 0 };
        let mut used = 0;
        while used < input.len() {
            match receiving.decoder.decode(&input[used..]) {
                Ok(step) => {
                    used += step.consumed;
                    receiving.body_bytes += step.data_bytes as u64;
                    receiving.pace.add(step.data_bytes);
                    if receiving.body_bytes > turn.worker.settings.limits.body_bytes_max {
                        self.refuse(turn, Refusal::BodyTooLarge, b"");
                        break;
                    }
                    if step.done {
                        self.end_discarding(turn);
                        break;
                    }
                }
                Err(refusal) => {
                    self.refuse(turn, refusal, b"");
                    break;
                }
            }
        }
        used
    }

    fn end_discarding<H: Handler>(&mut self, turn: &mut Turn<'_, H>) {
        let Some(receiving) = self.receiving.take() else { return };
        let Receiving { reply, request, interims, .. } = *receiving;
        self.machine.advance(ConnectionEvent::RequestEnds);
        match reply {
            Reply::Now(response) => self.answer_described(turn, response, request, None),
            Reply::Later(response) => self.wait(response, request, interims),
        }
    }

    /// Returns whether the handler wants more of the request's content now; otherwise wakes `context` later.
    pub(crate) fn poll_wants_content(&mut self, discarded_bytes_max: u64, context: &mut Context<'_>) -> bool {
        self.intake.as_mut().is_some_and(|intake| intake.poll_wanted(discarded_bytes_max, context))
    }

    /// Returns whether to send 100 (Continue) now. Returns true only once.
    pub(super) fn take_continue(&mut self) -> bool {
        self.intake.as_mut().is_some_and(|intake| intake.intake.take_continue())
    }

    /// Returns whether the response waits for the client to send more content.
    pub(crate) fn waits_for_content(&self) -> bool {
        // After the response has begun, its handler and the client decide how long the rest takes.
        self.awaiting.is_some() && self.intake.as_ref().is_some_and(|intake| intake.intake.wait().is_some())
    }

    /// Returns a number that distinguishes successive waits for content.
    pub(crate) fn content_rounds(&self) -> u32 {
        match (&self.intake, &self.receiving) {
            (Some(intake), _) => intake.intake.rounds(),
            (None, Some(receiving)) => receiving.pace.rounds(),
            (None, None) => 0,
        }
    }

    /// Delivers received content to the handler. Returns the number of bytes of `input` used, which is all of them
    /// unless the content ended, or the reason to close the connection.
    pub(crate) fn give_content<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        input: &[u8],
    ) -> Result<usize, CloseReason> {
        let Some(intake) = self.intake.as_mut() else { return Ok(0) };
        match intake.give(input) {
            Ok((used, false)) => Ok(used),
            Ok((used, true)) => {
                if let Some(mut ended) = self.intake.take() {
                    let trailers = ended.decoder.trailers();
                    ended.intake.end((!trailers.is_empty()).then(|| Rc::from(trailers)));
                }
                self.machine.advance(ConnectionEvent::RequestEnds);
                Ok(used)
            }
            Err(refusal) if self.streaming.is_some() => {
                // The response has begun, so no error response is possible.
                turn.worker.counters.refusals[refusal as usize].add(1);
                self.cut_content(CloseReason::Refused);
                Err(CloseReason::Refused)
            }
            Err(refusal) => {
                self.refuse(turn, refusal, b"");
                Ok(input.len())
            }
        }
    }

    /// Marks the content as incomplete, for `reason`, and stops receiving it.
    pub(super) fn cut_content(&mut self, reason: CloseReason) {
        if let Some(mut cut) = self.intake.take() {
            cut.intake.cut(reason);
        }
    }

    /// Prepares to respond before the content has ended. Returns the decoder with which to discard the rest first, if
    /// the handler never polled the content and the rest is short.
    pub(super) fn take_unwanted(&mut self, body_bytes_max: u64) -> Option<BodyDecoder> {
        match self.intake.take()?.unwanted(body_bytes_max) {
            Ok(decoder) => Some(decoder),
            Err(intake) => {
                self.intake = Some(Box::new(intake));
                None
            }
        }
    }
}
