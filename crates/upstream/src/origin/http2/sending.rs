//! Sending a request's content.

use crate::origin::request::{OutgoingContent, OutgoingRequest};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::response::encode_fields;
use flatout_handler::shared::SharedBytes;
use flatout_net::http2::ClientStream;
use std::task::{Context, Poll, ready};

/// The unsent content of a stream.
pub(super) struct UploadSending {
    piece: Option<SharedBytes>,
    rest: UnsentContent,
    /// True if it last waited for the origin, not the client.
    pub(super) blocked: bool,
    /// Bytes handed to the connection.
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
    pub(super) fn new(taken: Taken) -> Self {
        Self { piece: taken.piece, rest: taken.rest, blocked: false, sent_bytes: 0 }
    }

    /// Sends as much as possible on `stream`; ready when the connection has everything.
    pub(super) fn poll(&mut self, stream: &ClientStream, context: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        loop {
            if let Some(piece) = &mut self.piece {
                self.blocked = true;
                let room = ready!(stream.poll_room(context)).map_err(|_| SendError::Stream)?.min(piece.len());
                let is_last = room == piece.len() && matches!(self.rest, UnsentContent::None);
                stream.send(&piece[..room], is_last);
                piece.advance(room);
                if piece.is_empty() {
                    self.piece = None;
                }
                self.sent_bytes += room as u64;
                if is_last {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            self.blocked = false;
            if stream.poll_error(context).is_ready() {
                return Poll::Ready(Err(SendError::Stream));
            }
            if ready!(self.poll_rest(stream, context))? {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Takes the next piece from the client; true if there was none and the stream was ended.
    fn poll_rest(&mut self, stream: &ClientStream, context: &mut Context<'_>) -> Poll<Result<bool, SendError>> {
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
                match trailers {
                    Some(lines) => stream.send_trailers(|output| encode_fields(&lines, None, output)),
                    None => stream.send(b"", true),
                }
                Poll::Ready(Ok(true))
            }
            ContentPiece::Cut(_) => Poll::Ready(Err(SendError::ClientCut)),
        }
    }
}
