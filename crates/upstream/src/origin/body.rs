//! The body of a response, piece by piece.

use super::failure::ExchangeFailure;
use super::http2::Http2Body;
use super::streaming::Streaming;
use flatout_handler::shared::SharedBytes;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The next event of a body.
#[derive(Clone, Debug)]
pub enum IncomingPiece {
    /// More content, never empty.
    Bytes(SharedBytes),
    /// The body is complete. Its trailer field lines, each `Name: value` and CR LF, if there were any.
    End(Option<Rc<[u8]>>),
    /// The body will stay incomplete.
    Failed(ExchangeFailure),
}

/// The body of a response. Dropping it before its end closes the connection, or resets the stream.
#[derive(Debug)]
pub struct IncomingBody(BodyState);

#[derive(Debug)]
enum BodyState {
    Whole { content: SharedBytes, trailers: Option<Rc<[u8]>> },
    Http1(Box<Streaming>),
    Http2(Box<Http2Body>),
    Ended(Option<Rc<[u8]>>),
    Failed(ExchangeFailure),
}

impl IncomingBody {
    /// No content and no trailers: the message ended with its head.
    pub(super) fn empty() -> Self {
        Self::whole_of(SharedBytes::from(&[][..]), None)
    }

    pub(super) fn whole_of(content: SharedBytes, trailers: Option<Rc<[u8]>>) -> Self {
        Self(BodyState::Whole { content, trailers })
    }

    pub(super) fn streaming(streaming: Streaming) -> Self {
        Self(BodyState::Http1(Box::new(streaming)))
    }

    pub(super) fn http2(body: Http2Body) -> Self {
        Self(BodyState::Http2(Box::new(body)))
    }

    /// The next piece. After [`IncomingPiece::End`] or [`IncomingPiece::Failed`] it repeats. While it is not polled,
    /// the origin is slowed down, and no timeout runs.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        let piece = match &mut self.0 {
            BodyState::Whole { content, trailers } => {
                let (content, trailers) = (content.clone(), trailers.take());
                self.0 = BodyState::Ended(trailers);
                if !content.is_empty() {
                    return Poll::Ready(IncomingPiece::Bytes(content));
                }
                return self.poll_piece(context);
            }
            BodyState::Http1(streaming) => std::task::ready!(streaming.poll_piece(context)),
            BodyState::Http2(body) => std::task::ready!(body.poll_piece(context)),
            BodyState::Ended(trailers) => return Poll::Ready(IncomingPiece::End(trailers.clone())),
            BodyState::Failed(failure) => return Poll::Ready(IncomingPiece::Failed(*failure)),
        };
        match &piece {
            IncomingPiece::Bytes(_) => {}
            IncomingPiece::End(trailers) => self.0 = BodyState::Ended(trailers.clone()),
            IncomingPiece::Failed(failure) => self.0 = BodyState::Failed(*failure),
        }
        Poll::Ready(piece)
    }

    /// The next piece.
    pub async fn piece(&mut self) -> IncomingPiece {
        poll_fn(|context| self.poll_piece(context)).await
    }

    /// The whole content and its trailers, if all of it arrived with the head and no piece was taken.
    pub fn whole(&self) -> Option<(&SharedBytes, Option<&Rc<[u8]>>)> {
        match &self.0 {
            BodyState::Whole { content, trailers } => Some((content, trailers.as_ref())),
            _ => None,
        }
    }

    /// Returns whether the end was reached, or the body failed.
    pub fn is_ended(&self) -> bool {
        match &self.0 {
            BodyState::Whole { content, trailers } => content.is_empty() && trailers.is_none(),
            BodyState::Ended(_) => true,
            BodyState::Http1(_) | BodyState::Http2(_) | BodyState::Failed(_) => false,
        }
    }
}
