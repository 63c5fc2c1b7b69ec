//! Sending a request's content.

use crate::content::{ContentPiece, RequestContent};
use crate::origin::request::{OutgoingContent, OutgoingRequest};
use crate::response::parse_lines;
use crate::shared::SharedBytes;
use bytes::Buf;
use h2::{Reason, SendStream};
use std::task::{Context, Poll, ready};

/// A piece of content as the protocol machine holds it.
#[derive(Debug)]
pub(crate) struct SendPiece(pub(super) SharedBytes);

impl Buf for SendPiece {
    fn remaining(&self) -> usize {
        self.0.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.0
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

/// The unsent content of a stream.
pub(super) struct UploadSending {
    stream: SendStream<SendPiece>,
    piece: Option<SharedBytes>,
    rest: UnsentContent,
    /// True if it last waited for the origin, not the client.
    pub(super) blocked: bool,
    /// Bytes handed to the protocol machine.
    pub(super) sent_bytes: u64,
}

enum UnsentContent {
    None,
    Content(RequestContent, Option<u64>),
}

/// Why sending ended early.
pub(super) enum SendError {
    /// The origin does not accept more.
    Stream,
    /// The client did not send all of its content.
    ClientCut,
}

/// Content taken from a request, with its length.
pub(super) struct Taken {
    piece: Option<SharedBytes>,
    rest: UnsentContent,
    pub(super) length: Option<u64>,
}

impl Taken {
    pub(super) fn new(request: &mut OutgoingRequest<'_>) -> Self {
        match &request.content {
            OutgoingContent::None | OutgoingContent::Taken => {
                Self { piece: None, rest: UnsentContent::None, length: None }
            }
            OutgoingContent::Bytes(bytes) => Self {
                length: Some(bytes.len() as u64),
                piece: Some(bytes.clone()).filter(|bytes| !bytes.is_empty()),
                rest: UnsentContent::None,
            },
            OutgoingContent::Content(content) => {
                let length = content.length();
                let taken = std::mem::replace(&mut request.content, OutgoingContent::Taken);
                let OutgoingContent::Content(content) = taken else {
                    return Self { piece: None, rest: UnsentContent::None, length };
                };
                Self { piece: None, rest: UnsentContent::Content(content, length), length }
            }
        }
    }

    /// Returns whether nothing follows the head.
    pub(super) fn is_empty(&self) -> bool {
        self.piece.is_none() && matches!(self.rest, UnsentContent::None)
    }
}

impl UploadSending {
    pub(super) fn new(stream: SendStream<SendPiece>, taken: Taken) -> Self {
        Self { stream, piece: taken.piece, rest: taken.rest, blocked: false, sent_bytes: 0 }
    }

    /// Sends as much as possible; ready when the protocol machine has everything.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            if let Some(piece) = &mut self.piece {
                self.blocked = true;
                self.stream.reserve_capacity(piece.len());
                let capacity = self.stream.capacity().min(piece.len());
                if capacity == 0 {
                    match ready!(self.stream.poll_capacity(context)) {
                        Some(Ok(_)) => continue,
                        Some(Err(_)) | None => return Poll::Ready(Err(SendError::Stream)),
                    }
                }
                let sent = piece.slice(0..capacity);
                piece.advance(capacity);
                let is_last = piece.is_empty() && matches!(self.rest, UnsentContent::None);
                if piece.is_empty() {
                    self.piece = None;
                }
                self.sent_bytes += capacity as u64;
                self.stream.send_data(SendPiece(sent), is_last).map_err(|_| SendError::Stream)?;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            self.blocked = false;
            if let Poll::Ready(reset) = self.stream.poll_reset(context) {
                let _: Result<Reason, h2::Error> = reset;
                return Poll::Ready(Err(SendError::Stream));
            }
            if ready!(self.poll_rest(context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next piece from the client; true if there was none and the stream was ended.
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, SendError>> {
        let UnsentContent::Content(content, remaining) = &mut self.rest else { return Poll::Ready(Ok(true)) };
        match ready!(content.poll_piece(context)) {
            ContentPiece::Bytes(bytes) => {
                if let Some(remaining) = remaining {
                    let Some(left) = remaining.checked_sub(bytes.len() as u64) else {
                        return Poll::Ready(Err(SendError::ClientCut));
                    };
                    *remaining = left;
                }
                self.piece = Some(bytes).filter(|bytes| !bytes.is_empty());
                Poll::Ready(Ok(false))
            }
            ContentPiece::End(trailers) => {
                if remaining.is_some_and(|remaining| remaining > 0) {
                    return Poll::Ready(Err(SendError::ClientCut));
                }
                self.rest = UnsentContent::None;
                let ended = match trailers {
                    Some(lines) => self.stream.send_trailers(parse_lines(&lines)),
                    None => self.stream.send_data(SendPiece(SharedBytes::from(&[][..])), true),
                };
                Poll::Ready(ended.map(|()| true).map_err(|_| SendError::Stream))
            }
            ContentPiece::Cut(_) => Poll::Ready(Err(SendError::ClientCut)),
        }
    }
}
