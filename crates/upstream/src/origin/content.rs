//! Content of a request to an origin, as the source of its upload.

use super::failure::OriginFailure;
use super::request::{OutgoingContent, OutgoingRequest};
use crate::upload::{UploadPiece, UploadSource};
use flatout_handler::budget::Budget;
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::shared::SharedBytes;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Content taken from a request, which is being sent.
#[derive(Debug)]
pub(super) struct TakenContent {
    rest: UnsentContent,
    /// Length of the content in bytes, if it is declared.
    pub(super) length: Option<u64>,
    /// True if the content ends at its declared length, so that trailers are not awaited.
    ends_by_length: bool,
    /// True if the client is waiting for 100 (Continue). The origin decides whether it receives one.
    pub(super) expects_continue: bool,
    /// True if the content is not polled yet, so that the client does not send it.
    is_held: bool,
}

#[derive(Debug)]
enum UnsentContent {
    None,
    Bytes(SharedBytes),
    /// Content from the client, and the number of bytes still to come if its length is known.
    Client(RequestContent, Option<u64>),
}

impl TakenContent {
    /// No content, and no field that declares content.
    pub(super) const NONE: Self =
        Self { rest: UnsentContent::None, length: None, ends_by_length: true, expects_continue: false, is_held: false };

    /// Takes the content of `request`. If `ends_by_length` is true and the length is known, trailers are omitted. The
    /// copy for a retry is counted in `budget`.
    pub(super) fn new(request: &mut OutgoingRequest<'_>, ends_by_length: bool, budget: &Arc<Budget>) -> Self {
        let client = match std::mem::take(&mut request.content) {
            OutgoingContent::Content(content) => {
                request.content = OutgoingContent::Taken(content.rewind(budget));
                Some(content)
            }
            OutgoingContent::Taken(rewind) => {
                let content = rewind.content();
                request.content = OutgoingContent::Taken(rewind);
                content
            }
            content => {
                request.content = content;
                None
            }
        };
        let expects_continue = client.as_ref().is_some_and(RequestContent::expects_continue);
        let (rest, length) = match (client, &request.content) {
            (Some(content), _) => {
                let length = content.length();
                (UnsentContent::Client(content, length), length)
            }
            (None, OutgoingContent::Bytes(bytes)) if bytes.is_empty() => (UnsentContent::None, Some(0)),
            (None, OutgoingContent::Bytes(bytes)) => (UnsentContent::Bytes(bytes.clone()), Some(bytes.len() as u64)),
            (None, _) => (UnsentContent::None, None),
        };
        Self { rest, length, ends_by_length, expects_continue, is_held: expects_continue }
    }

    /// Returns whether no content follows the head.
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.rest, UnsentContent::None)
    }
}

impl UploadSource for TakenContent {
    type Error = OriginFailure;

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<UploadPiece, OriginFailure>> {
        let UnsentContent::Client(content, remaining) = &mut self.rest else {
            return Poll::Ready(Ok(match std::mem::replace(&mut self.rest, UnsentContent::None) {
                UnsentContent::Bytes(bytes) => UploadPiece::Last(bytes),
                _ => UploadPiece::End(None),
            }));
        };
        if self.is_held {
            // RFC 9110 §10.1.1: the client may send the content without waiting any longer.
            ready!(content.poll_arrival(context));
            self.is_held = false;
        }
        Poll::Ready(match ready!(content.poll_piece(context)) {
            ContentPiece::Bytes(bytes) => {
                if let Some(remaining) = remaining {
                    // Sending more or fewer bytes than declared would desynchronise the connection.
                    let after = remaining.checked_sub(bytes.len() as u64).ok_or(OriginFailure::ClientCutContent)?;
                    *remaining = after;
                    if after == 0 && self.ends_by_length {
                        self.rest = UnsentContent::None;
                        return Poll::Ready(Ok(UploadPiece::Last(bytes)));
                    }
                }
                Ok(UploadPiece::Bytes(bytes))
            }
            ContentPiece::End(_) if remaining.is_some_and(|remaining| remaining > 0) => {
                Err(OriginFailure::ClientCutContent)
            }
            ContentPiece::End(trailers) => {
                self.rest = UnsentContent::None;
                Ok(UploadPiece::End(trailers))
            }
            ContentPiece::Cut(reason) => {
                Err(reason.content_fault(OriginFailure::ContentTooLarge, OriginFailure::ClientCutContent))
            }
        })
    }

    fn is_held(&self) -> bool {
        self.is_held
    }

    fn release(&mut self) {
        self.is_held = false;
    }
}
