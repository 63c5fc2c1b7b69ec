//! Body of an origin's response, read in pieces.

use super::failure::ExchangeFailure;
use super::http2::Http2Body;
use super::streaming::Streaming;
use flatout_handler::shared::SharedBytes;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// An event while reading a body.
#[derive(Clone, Debug)]
pub enum IncomingPiece {
    /// More content, never empty.
    Bytes(SharedBytes),
    /// The body is complete, with these trailer field lines, each `Name: value` and CR LF, if there were any.
    End(Option<Rc<[u8]>>),
    /// The body failed and will remain incomplete.
    Failed(ExchangeFailure),
}

/// Body of a response. Dropping it before its end closes the connection or resets the stream.
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
    /// Creates the body of a message without content and trailers.
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

    /// Polls for the next piece. After [`IncomingPiece::End`] or [`IncomingPiece::Failed`], returns the same again.
    /// While this is not called, flow control slows down the origin, and no timeout runs.
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

    /// Waits for the next piece.
    pub async fn piece(&mut self) -> IncomingPiece {
        poll_fn(|context| self.poll_piece(context)).await
    }

    /// Returns the whole content and its trailers, if they arrived together with the head and no piece has been taken.
    pub fn whole(&self) -> Option<(&SharedBytes, Option<&Rc<[u8]>>)> {
        match &self.0 {
            BodyState::Whole { content, trailers } => Some((content, trailers.as_ref())),
            _ => None,
        }
    }

    /// Returns whether the end of the body has been reached.
    pub fn is_ended(&self) -> bool {
        match &self.0 {
            BodyState::Whole { content, trailers } => content.is_empty() && trailers.is_none(),
            BodyState::Ended(_) => true,
            BodyState::Http1(_) | BodyState::Http2(_) | BodyState::Failed(_) => false,
        }
    }
}
