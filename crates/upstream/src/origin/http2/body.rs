//! The body of a response on a stream.

use super::StreamGuard;
use super::sending::UploadSending;
use crate::origin::body::IncomingPiece;
use crate::origin::client::OriginShared;
use crate::origin::failure::{ExchangeFailure, OriginFailure, Repeat};
use flatout_handler::stream::MessageEnd;
use flatout_http::http2::frame::ErrorCode;
use flatout_net::http2::{ClientStream, StreamError};
use flatout_net::task_deadlines::DeadlineTimer;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A body in progress. Dropping it before its end resets the stream.
pub(in crate::origin) struct Http2Body {
    shared: Rc<OriginShared>,
    stream: ClientStream,
    /// The rest of the request, if the origin responded before it had all of it.
    sending: Option<UploadSending>,
    timer: DeadlineTimer,
    /// Timeout for more of the body, in milliseconds.
    piece_timeout_ms: u64,
    /// Content-Length, if the response has it.
    declared_bytes: Option<u64>,
    received_bytes: u64,
    /// The response arrived before the origin had the whole request.
    early: bool,
    _guard: StreamGuard,
}

impl Http2Body {
    /// `early` is true if the origin responded before it had the whole request, of which `sending` is the rest.
    pub(super) fn new(
        shared: &Rc<OriginShared>,
        stream: ClientStream,
        (sending, early): (Option<UploadSending>, bool),
        (declared_bytes, piece_timeout_ms): (Option<u64>, u64),
        guard: StreamGuard,
    ) -> Self {
        let timer = DeadlineTimer::new(&shared.deadlines);
        let (shared, received_bytes) = (Rc::clone(shared), 0);
        Self { shared, stream, sending, timer, piece_timeout_ms, declared_bytes, received_bytes, early, _guard: guard }
    }

    /// The next piece. Must not be called after the last.
    pub(in crate::origin) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        if let Some(sending) = &mut self.sending
            && sending.poll(&self.stream, context).is_ready()
        {
            self.sending = None;
        }
        match self.stream.poll_piece(context) {
            Poll::Ready(Ok(Ok(bytes))) => {
                self.timer.clear();
                self.received_bytes += bytes.len() as u64;
                Poll::Ready(IncomingPiece::Bytes(bytes))
            }
            Poll::Ready(Ok(Err(MessageEnd(trailers)))) => Poll::Ready(IncomingPiece::End(trailers)),
            Poll::Ready(Err(error)) if self.is_whole_all_the_same(error) => Poll::Ready(IncomingPiece::End(None)),
            Poll::Ready(Err(_)) => Poll::Ready(self.fail(OriginFailure::CutBody)),
            Poll::Pending => self.poll_late(context),
        }
    }

    /// RFC 9113 §8.1: a server that has sent a complete response may reset the stream without an error, so that the
    /// rest of the request is not sent. The response counts as complete if its length proves it, or if a part of the
    /// request was unsent.
    fn is_whole_all_the_same(&self, error: StreamError) -> bool {
        let resets = error == StreamError::Reset(ErrorCode::NoError);
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
        formatter.debug_struct("Http2Body").field("received_bytes", &self.received_bytes).finish_non_exhaustive()
    }
}
