//! The body of an answer, piece by piece.

use super::failure::ExchangeFailure;
use crate::shared::SharedBytes;
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
pub struct IncomingBody {}

impl IncomingBody {
    /// The next piece. After [`IncomingPiece::End`] or [`IncomingPiece::Failed`] the same again. While it is not asked
    /// for, the origin is held back, and no timeout runs.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<IncomingPiece> {
        unimplemented!("{context:?}")
    }

    /// The whole body, when it was here with the head and has not been asked for piece by piece. An answer without a
    /// body has an empty one.
    pub fn whole(&self) -> Option<(&SharedBytes, Option<&Rc<[u8]>>)> {
        unimplemented!()
    }
}
