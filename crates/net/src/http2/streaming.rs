//! Streamed responses.

use super::body::{Endings, ResponseEnd, SendBody};
use super::intake::{Intake, IntakeTimeouts};
use super::stream::{Http2Exchange, ServerStream, StreamProgress, read_segment};
use crate::access::LoggedResponse;
use crate::ending::CloseReason;
use crate::response::{Segment, parse_lines};
use crate::server::streaming::Outlined;
use crate::stream::{ContentEvent, Stream as Source};
use h2::{Reason, RecvStream, SendStream};
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll};

/// One frame.
const PIECE_BYTES: usize = 16 * 1024;

/// Frames created before other streams have their turn.
const FRAMES_MAX: u32 = 64;

/// A streamed response in progress.
pub(crate) struct Streaming {
    stream: SendStream<SendBody>,
    /// `None` after the source has ended.
    source: Option<Source>,
    /// The part of its last piece that the protocol machine does not have yet.
    segment: Option<Segment>,
    /// The trailers of the ended source, which follow the segment.
    trailers: Option<Rc<[u8]>>,
    /// Bytes still to come, if the head declares a length.
    remaining_bytes: Option<u64>,
    /// Bytes queued in the protocol machine.
    queued_bytes: u64,
    /// Bytes sent.
    sent_bytes: Rc<Cell<u64>>,
    /// Blocked by the client, not by its source.
    blocked: bool,
    /// The protocol machine has the end of the stream.
    finished: bool,
    pub(super) exchange: Http2Exchange,
    outlined: Outlined,
    endings: Rc<Endings>,
    /// The request's content, which may still be arriving.
    intake: Option<Box<Intake>>,
}

/// The next action of a stream.
enum Move {
    /// Data was handed to the protocol machine.
    Sent,
    /// Wait.
    Wait,
    /// Finished.
    End(ResponseEnd),
}

impl Streaming {
    pub(crate) fn new(
        stream: SendStream<SendBody>,
        source: Source,
        exchange: Http2Exchange,
        outlined: Outlined,
        endings: &Rc<Endings>,
        intake: Option<Box<Intake>>,
    ) -> Self {
        Self {
            stream,
            remaining_bytes: source.length(),
            source: Some(source),
            segment: None,
            trailers: None,
            queued_bytes: 0,
            sent_bytes: Rc::default(),
            blocked: false,
            finished: false,
            exchange,
            outlined,
            endings: Rc::clone(endings),
            intake,
        }
    }

    /// Returns whether it waits for the client to read.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked || self.finished
    }

    /// The request's content, if more of it may arrive.
    pub(crate) fn take_rest(&mut self) -> Option<RecvStream> {
        self.intake.take().map(|intake| intake.into_rest())
    }

    /// Its logged data.
    pub(crate) fn answer(&self) -> LoggedResponse<'_> {
        self.outlined.answer(self.sent_bytes.get(), self.exchange.started_ns)
    }

    pub(crate) fn go_on(mut self: Box<Self>, timeouts: IntakeTimeouts, context: &mut Context<'_>) -> StreamProgress {
        if self.intake.as_mut().is_some_and(|intake| !intake.go_on(timeouts, context)) {
            return StreamProgress::Ended(self, ResponseEnd::Cut);
        }
        self.blocked = false;
        let mut moved = false;
        for _ in 0..FRAMES_MAX {
            let next = if self.finished {
                self.await_end(context)
            } else if self.segment.is_some() {
                self.send_segment(context)
            } else if self.sent_bytes.get() < self.queued_bytes {
                // At most one piece is buffered: the next is polled only when the last has left.
                self.blocked = true;
                if self.stream.poll_reset(context).is_ready() { Move::End(ResponseEnd::Cut) } else { Move::Wait }
            } else {
                self.ask(context)
            };
            match next {
                Move::Sent => moved = true,
                Move::Wait if moved => return StreamProgress::Sent(ServerStream::Streaming(self)),
                Move::Wait => return StreamProgress::Wait(ServerStream::Streaming(self)),
                Move::End(ended) => {
                    if let ResponseEnd::Failed(_) = ended {
                        // The client must not mistake the partial content for the whole (RFC 9113 §8.1).
                        self.stream.send_reset(Reason::INTERNAL_ERROR);
                    }
                    return StreamProgress::Ended(self, ended);
                }
            }
        }
        context.waker().wake_by_ref();
        StreamProgress::Sent(ServerStream::Streaming(self))
    }

    /// Polls the source for a piece.
    fn ask(&mut self, context: &mut Context<'_>) -> Move {
        let Some(source) = &self.source else { return self.end() };
        match source.poll_piece(context) {
            Poll::Ready(ContentEvent::Segment(segment)) => {
                if let Some(remaining) = self.remaining_bytes.as_mut() {
                    let Some(rest) = remaining.checked_sub(segment.len()) else {
                        return Move::End(ResponseEnd::Failed(CloseReason::LengthBroken));
                    };
                    *remaining = rest;
                    if rest == 0 {
                        // The last frame carries END_STREAM: check whether more follows.
                        match source.poll_piece(context) {
                            Poll::Ready(ContentEvent::Segment(_)) => {
                                return Move::End(ResponseEnd::Failed(CloseReason::LengthBroken));
                            }
                            Poll::Ready(ContentEvent::Failed(reason)) => return Move::End(ResponseEnd::Failed(reason)),
                            Poll::Ready(ContentEvent::End(trailers)) => {
                                self.source = None;
                                self.trailers = trailers;
                            }
                            // Trailers may follow: the stream ends with the source.
                            Poll::Pending => {}
                        }
                    }
                }
                self.segment = Some(segment).filter(|segment| !segment.is_empty());
                Move::Sent
            }
            Poll::Ready(ContentEvent::End(trailers)) => {
                self.trailers = trailers;
                self.end()
            }
            Poll::Ready(ContentEvent::Failed(reason)) => Move::End(ResponseEnd::Failed(reason)),
            Poll::Pending if self.stream.poll_reset(context).is_ready() => Move::End(ResponseEnd::Cut),
            Poll::Pending => Move::Wait,
        }
    }

    /// Hands over as much as the client's windows permit.
    fn send_segment(&mut self, context: &mut Context<'_>) -> Move {
        let Some(segment) = self.segment.as_mut() else { return Move::Wait };
        let wanted = usize::try_from(segment.len()).unwrap_or(usize::MAX).min(PIECE_BYTES);
        self.stream.reserve_capacity(wanted);
        let mut capacity = self.stream.capacity();
        while capacity == 0 {
            match self.stream.poll_capacity(context) {
                Poll::Ready(Some(Ok(now))) => capacity = now,
                Poll::Ready(Some(Err(_)) | None) => return Move::End(ResponseEnd::Cut),
                Poll::Pending => {
                    self.blocked = true;
                    return Move::Wait;
                }
            }
        }
        let piece = match read_segment(segment, wanted.min(capacity), &self.endings) {
            Ok(piece) => piece.counted(&self.sent_bytes),
            Err(reason) => return Move::End(ResponseEnd::Failed(reason)),
        };
        self.queued_bytes += piece.len() as u64;
        let empty = segment.is_empty();
        let last = empty && self.source.is_none() && self.trailers.is_none();
        if empty {
            self.segment = None;
        }
        self.finished = last;
        if self.stream.send_data(piece, last).is_err() { Move::End(ResponseEnd::Cut) } else { Move::Sent }
    }

    /// Handles the end of the source.
    fn end(&mut self) -> Move {
        if self.remaining_bytes.is_some_and(|remaining| remaining > 0) {
            return Move::End(ResponseEnd::Failed(CloseReason::LengthBroken));
        }
        self.source = None;
        self.finished = true;
        let trailers = self.trailers.take().map(|lines| parse_lines(&lines)).filter(|trailers| !trailers.is_empty());
        let sent = match trailers {
            Some(trailers) => self.stream.send_trailers(trailers),
            None => self.stream.send_data(SendBody::owned(Vec::new(), &self.endings), true),
        };
        if sent.is_err() { Move::End(ResponseEnd::Cut) } else { Move::Sent }
    }

    /// Waits until everything handed over was sent.
    fn await_end(&mut self, context: &mut Context<'_>) -> Move {
        if self.sent_bytes.get() >= self.queued_bytes {
            return Move::End(ResponseEnd::Sent);
        }
        if self.stream.poll_reset(context).is_ready() { Move::End(ResponseEnd::Cut) } else { Move::Wait }
    }
}
