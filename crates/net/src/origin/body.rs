//! The body of an answer, piece by piece.

use super::failure::ExchangeFailure;
use super::http2::Http2Body;
use super::streaming::Streaming;
use crate::shared::SharedBytes;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What a body has next.
#[derive(Clone, Debug)]
pub enum IncomingPiece {
    /// More content, never empty.
    Bytes(SharedBytes),
    /// The body is whole. The trailer field lines that came with it, each `Name: value` and CR LF, when there were any.
    End(Option<Rc<[u8]>>),
    /// It will never be whole.
    Failed(ExchangeFailure),
}

/// The body of an answer. Dropped before its end it closes the connection, or resets the stream.
#[derive(Debug)]
pub struct IncomingBody(State);

#[derive(Debug)]
enum State {
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
        Self(State::Whole { content, trailers })
    }

    pub(super) fn streaming(streaming: Streaming) -> Self {
        Self(State::Http1(Box::new(streaming)))
    }

    pub(super) fn http2(body: Http2Body) -> Self {
        Self(State::Http2(Box::new(body)))
    }

    /// The next piece. After [`IncomingPiece::End`] or [`IncomingPiece::Failed`] the same again. While it is not asked
    /// for, the origin is held back, and no timeout runs.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        let piece = match &mut self.0 {
            State::Whole { content, trailers } => {
                let (content, trailers) = (content.clone(), trailers.take());
                self.0 = State::Ended(trailers);
                if !content.is_empty() {
                    return Poll::Ready(IncomingPiece::Bytes(content));
                }
                return self.poll_piece(context);
            }
            State::Http1(streaming) => std::task::ready!(streaming.poll_piece(context)),
            State::Http2(body) => std::task::ready!(body.poll_piece(context)),
            State::Ended(trailers) => return Poll::Ready(IncomingPiece::End(trailers.clone())),
            State::Failed(failure) => return Poll::Ready(IncomingPiece::Failed(*failure)),
        };
        match &piece {
            IncomingPiece::Bytes(_) => {}
            IncomingPiece::End(trailers) => self.0 = State::Ended(trailers.clone()),
            IncomingPiece::Failed(failure) => self.0 = State::Failed(*failure),
        }
        Poll::Ready(piece)
    }

    /// The next piece.
    pub async fn piece(&mut self) -> IncomingPiece {
        poll_fn(|context| self.poll_piece(context)).await
    }

    /// The whole content and its trailers, when all of it was here with the head and it has not been asked for piece by
    /// piece.
    pub fn whole(&self) -> Option<(&SharedBytes, Option<&Rc<[u8]>>)> {
        match &self.0 {
            State::Whole { content, trailers } => Some((content, trailers.as_ref())),
            _ => None,
        }
    }

    /// Whether the end has been reached, or there is nothing to be had.
    pub fn is_ended(&self) -> bool {
        match &self.0 {
            State::Whole { content, trailers } => content.is_empty() && trailers.is_none(),
            State::Ended(_) => true,
            State::Http1(_) | State::Http2(_) | State::Failed(_) => false,
        }
    }
}
