//! A request's content as it comes: read to its end where nobody wants it, given to the handler that has taken it.

use super::exchanges::{Described, Exchanges, Turn};
use crate::content::{ContentWriter, Interims};
use crate::ending::CloseReason;
use crate::handler::{Handler, Reply};
use crate::shared::SharedBytes;
use flatout_http::body::BodyDecoder;
use flatout_http::connection::Event;
use flatout_http::refusal::Refusal;
use std::rc::Rc;
use std::task::Context;

/// A client that sends content for a handler must bring so much of it within each body timeout, or its end: 2 KiB a
/// second with the default. Time in which the handler has no room for more does not count.
pub(crate) const ROUND_BYTES: u64 = 64 * 1024;

/// A request whose content nobody wants, with the answer it will get when that has been read.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) decoder: BodyDecoder,
    pub(super) body_bytes: u64,
    pub(super) reply: Reply,
    pub(super) request: Described,
    /// What a reply that comes later may send ahead.
    pub(super) interims: Option<Interims>,
}

/// Content on its way to the handler that has taken it.
#[derive(Debug)]
pub(super) struct Intake {
    decoder: BodyDecoder,
    writer: ContentWriter,
    /// The reader has room, so it is for the client to send more.
    waits_for_client: bool,
    /// Bytes given in the wait at hand.
    round_bytes: u64,
    /// Tells the waits apart.
    rounds: u32,
    /// Bytes thrown away since nobody reads any more.
    discarded_bytes: u64,
}

impl Intake {
    pub(super) const fn new(decoder: BodyDecoder, writer: ContentWriter) -> Self {
        Self { decoder, writer, waits_for_client: true, round_bytes: 0, rounds: 0, discarded_bytes: 0 }
    }

    /// Whether more should be received now. When not, `context` is woken when it should.
    fn poll_wanted(&mut self, discarded_bytes_max: u64, context: &mut Context<'_>) -> bool {
        let wanted = if self.writer.is_abandoned() {
            // What the handler does not read is read for it, up to the bound for content that nobody wants; then the
            // answer comes first, and the connection ends with it.
            self.discarded_bytes <= discarded_bytes_max
        } else {
            self.writer.poll_room(context).is_ready()
        };
        if wanted && !self.waits_for_client {
            self.begin_round();
        }
        self.waits_for_client = wanted;
        wanted
    }

    const fn begin_round(&mut self) {
        self.round_bytes = 0;
        self.rounds = self.rounds.wrapping_add(1);
    }

    /// Gives what `input` holds of the content to the reader. Returns how much was used, and whether that was the end.
    fn give(&mut self, input: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut used = 0;
        while used < input.len() {
            let step = self.decoder.decode(&input[used..])?;
            let data = &input[used + step.data_start..][..step.data_bytes];
            used += step.consumed;
            self.round_bytes += data.len() as u64;
            if self.writer.is_abandoned() {
                self.discarded_bytes += data.len() as u64;
            } else if !data.is_empty() {
                self.writer.write(SharedBytes::from(data));
            }
            if step.done {
                return Ok((used, true));
            }
        }
        if self.round_bytes >= ROUND_BYTES {
            self.begin_round();
        }
        Ok((used, false))
    }

    /// Whether somebody may yet read it.
    pub(super) fn is_read(&self) -> bool {
        !self.writer.is_abandoned()
    }

    pub(super) fn cut(self, reason: CloseReason) {
        self.writer.cut(reason);
    }

    /// When nobody has asked for any of it, and its end is near enough to be read before the answer: what reads it.
    fn unwanted(self, body_bytes_max: u64) -> Result<BodyDecoder, Self> {
        let near = matches!(self.decoder, BodyDecoder::Length(remaining) if remaining <= body_bytes_max);
        if near && self.writer.was_never_asked() { Ok(self.decoder) } else { Err(self) }
    }
}

impl Exchanges {
    /// Reads on in content that nobody wants, to find its end and to refuse it if it is malformed.
    pub(super) fn discard<H: Handler>(&mut self, turn: &mut Turn<'_, H>, input: &[u8]) -> usize {
        let Some(receiving) = self.receiving.as_mut() else { return 0 };
        let mut used = 0;
        while used < input.len() {
            match receiving.decoder.decode(&input[used..]) {
                Ok(step) => {
                    used += step.consumed;
                    receiving.body_bytes += step.data_bytes as u64;
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
        self.machine.advance(Event::RequestEnds);
        match reply {
            Reply::Now(response) => self.answer_described(turn, response, request, None),
            Reply::Later(response) => self.wait(response, request, interims),
        }
    }

    /// Whether the handler wants more of the request's content now. When not, `context` is woken when it does.
    pub(crate) fn poll_wants_content(&mut self, discarded_bytes_max: u64, context: &mut Context<'_>) -> bool {
        self.intake.as_mut().is_some_and(|intake| intake.poll_wanted(discarded_bytes_max, context))
    }

    /// Whether the answer waits for the client to send more content.
    pub(crate) fn waits_for_content(&self) -> bool {
        // Once an answer has begun, how long the rest may take is between its maker and the client.
        self.awaiting.is_some() && self.intake.as_ref().is_some_and(|intake| intake.waits_for_client)
    }

    /// Tells one wait for content from the next.
    pub(crate) fn content_rounds(&self) -> u32 {
        self.intake.as_ref().map_or(0, |intake| intake.rounds)
    }

    /// Gives content that was received to the handler. Returns how much of `input` was used, which is all unless the
    /// content ended, or the reason for which the connection ends now.
    pub(crate) fn give_content<H: Handler>(
        &mut self,
        turn: &mut Turn<'_, H>,
        input: &[u8],
    ) -> Result<usize, CloseReason> {
        let Some(intake) = self.intake.as_mut() else { return Ok(0) };
        match intake.give(input) {
            Ok((used, false)) => Ok(used),
            Ok((used, true)) => {
                if let Some(Intake { decoder, writer, .. }) = self.intake.take().map(|intake| *intake) {
                    let trailers = decoder.trailers();
                    writer.end((!trailers.is_empty()).then(|| Rc::from(trailers)));
                }
                self.machine.advance(Event::RequestEnds);
                Ok(used)
            }
            Err(refusal) if self.streaming.is_some() => {
                // The answer has begun: there can be no other.
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

    /// The content will not be received any further.
    pub(super) fn cut_content(&mut self, reason: CloseReason) {
        if let Some(intake) = self.intake.take() {
            intake.cut(reason);
        }
    }

    /// An answer came before the content was whole: it waits for the end of content that nobody has asked for, when
    /// that is near. Returns the decoder for it then.
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
