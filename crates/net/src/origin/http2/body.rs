//! The body of a response on a stream.

use super::StreamGuard;
use super::sending::UploadSending;
use crate::origin::body::IncomingPiece;
use crate::origin::client::OriginShared;
use crate::origin::failure::{ExchangeFailure, OriginFailure, Repeat};
use crate::origin::timeouts::DeadlineTimer;
use crate::response::trailer_lines;
use crate::windows::WindowReader;
use h2::{Reason, RecvStream};
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A body in progress. Dropping it before its end resets the stream.
pub(in crate::origin) struct Http2Body {
    shared: Rc<OriginShared>,
    stream: RecvStream,
    /// The rest of the request, if the origin responded before it had all of it.
    sending: Option<UploadSending>,
    timer: DeadlineTimer,
    /// Timeout for more of the body, in milliseconds.
    piece_timeout_ms: u64,
    windows: WindowReader,
    /// Content-Length, if the response has it.
    declared_bytes: Option<u64>,
    received_bytes: u64,
    /// The response arrived before the origin had the whole request.
    early: bool,
    data_ended: bool,
    _guard: StreamGuard,
}

impl Http2Body {
    /// `early` is true if the origin responded before it had the whole request, of which `sending` is the rest.
    pub(super) fn new(
        shared: &Rc<OriginShared>,
        stream: RecvStream,
        (sending, early): (Option<UploadSending>, bool),
        (declared_bytes, piece_timeout_ms): (Option<u64>, u64),
        windows: WindowReader,
        guard: StreamGuard,
    ) -> Self {
        let timer = DeadlineTimer::new(&shared.deadlines);
        Self {
            shared: Rc::clone(shared),
            stream,
            sending,
            timer,
            piece_timeout_ms,
            windows,
            declared_bytes,
            received_bytes: 0,
            early,
            data_ended: false,
            _guard: guard,
        }
    }

    /// Returns whether the stream ended with its head.
    pub(super) fn is_empty(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// The next piece. Must not be called after the last.
    pub(in crate::origin) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        if let Some(sending) = &mut self.sending
            && sending.poll(context).is_ready()
        {
            self.sending = None;
        }
        while !self.data_ended {
            match self.stream.poll_data(context) {
                Poll::Ready(Some(Ok(bytes))) => {
                    self.timer.clear();
                    // The bytes are on their way to the reader.
                    self.windows.release(&mut self.stream, bytes.len());
                    self.received_bytes += bytes.len() as u64;
                    if !bytes.is_empty() {
                        return Poll::Ready(IncomingPiece::Bytes(self.shared.copy(&bytes)));
                    }
                }
                Poll::Ready(Some(Err(error))) if self.is_whole_all_the_same(&error) => {
                    return Poll::Ready(IncomingPiece::End(None));
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(self.fail(OriginFailure::CutBody)),
                Poll::Ready(None) => self.data_ended = true,
                Poll::Pending => return self.poll_late(context),
            }
        }
        match self.stream.poll_trailers(context) {
            Poll::Ready(Ok(trailers)) => Poll::Ready(IncomingPiece::End(trailers.as_ref().and_then(|trailers| {
                trailer_lines(trailers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
            }))),
            Poll::Ready(Err(error)) if self.is_whole_all_the_same(&error) => Poll::Ready(IncomingPiece::End(None)),
            Poll::Ready(Err(_)) => Poll::Ready(self.fail(OriginFailure::CutBody)),
            Poll::Pending => self.poll_late(context),
        }
    }

    /// RFC 9113 §8.1: a server that has sent a complete response may reset the stream without an error, so that the
    /// rest of the request is not sent. The response counts as complete if its length proves it, or if a part of the
    /// request was unsent.
    fn is_whole_all_the_same(&self, error: &h2::Error) -> bool {
        let resets = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
        resets && self.declared_bytes.map_or(self.early, |declared| declared == self.received_bytes)
    }

    fn poll_late(&mut self, context: &Context<'_>) -> Poll<IncomingPiece> {
        if !self.timer.is_waiting() {
            self.timer.begin(self.piece_timeout_ms);
        }
        self.timer.poll_expired(context).map(|()| self.fail(OriginFailure::BodyTimeout))
    }

    fn fail(&self, failure: OriginFailure) -> IncomingPiece {
        self.shared.counts.add_failure(failure);
        IncomingPiece::Failed(ExchangeFailure::new(failure, Repeat::Never))
    }
}

impl fmt::Debug for Http2Body {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Http2Body").field("data_ended", &self.data_ended).finish_non_exhaustive()
    }
}
