//! Body of a response on a stream.

use super::StreamGuard;
use crate::origin::body::IncomingPiece;
use crate::origin::client::OriginShared;
use crate::origin::content::TakenContent;
use crate::origin::failure::{ExchangeFailure, OriginFailure, Repeat};
use crate::upload::{Upload, UploadState};
use flatout_handler::stream::MessageEnd;
use flatout_http::http2::frame::ErrorCode;
use flatout_net::http2::{ClientStream, StreamError};
use flatout_net::task_deadlines::DeadlineTimer;
use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A body that is being received. Dropping it before its end resets the stream.
pub(in crate::origin) struct Http2Body {
    shared: Rc<OriginShared>,
    stream: ClientStream,
    /// The unsent rest of the request, if the origin responded before it had received all of it.
    upload: Option<Upload<TakenContent>>,
    timer: DeadlineTimer,
    /// Timeout for each further piece of the body, in milliseconds.
    piece_timeout_ms: u64,
    /// Value of Content-Length, if the response has one.
    declared_bytes: Option<u64>,
    received_bytes: u64,
    /// True if the response arrived before the origin had received the whole request.
    early: bool,
    _guard: StreamGuard,
}

impl Http2Body {
    /// Creates the body of a response. `early` is true if the origin responded before it had received the whole
    /// request, and `upload` is then the unsent rest.
    pub(super) fn new(
        shared: &Rc<OriginShared>,
        stream: ClientStream,
        (upload, early): (Option<Upload<TakenContent>>, bool),
        (declared_bytes, piece_timeout_ms): (Option<u64>, u64),
        guard: StreamGuard,
    ) -> Self {
        let timer = DeadlineTimer::new(&shared.deadlines);
        let (shared, received_bytes) = (Rc::clone(shared), 0);
        Self { shared, stream, upload, timer, piece_timeout_ms, declared_bytes, received_bytes, early, _guard: guard }
    }

    /// Polls for the next piece. Must not be called after the last.
    pub(in crate::origin) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        if let Some(upload) = &mut self.upload {
            match upload.advance(&mut self.stream, context) {
                Ok(UploadState::Client | UploadState::Continue | UploadState::Server(_)) => {}
                Ok(UploadState::Closed | UploadState::Done) | Err(_) => self.upload = None,
            }
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

    /// Returns whether the response is complete although the stream was reset. A server that has sent a complete
    /// response may reset the stream with NO_ERROR, so that the rest of the request is not sent (RFC 9113 §8.1). The
    /// response is considered complete if its length proves it or, if it has no declared length, if some of the request
    /// had not been sent.
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
