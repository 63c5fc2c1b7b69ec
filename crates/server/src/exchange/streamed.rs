//! Streamed responses, whose content is checked against the declared length and counted.

use super::record::{ExchangeRecord, ResponseOutline};
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::{Response, Segment};
use flatout_handler::stream::{ContentEvent, MessageEnd, Stream};
use std::task::{Context, Poll};

/// A piece of a streamed response, or its end.
#[derive(Debug)]
pub(crate) enum StreamedPiece {
    /// More content, never empty.
    Segment(Segment),
    /// The content is complete.
    End(MessageEnd),
    /// The content will never be complete.
    Failed(CloseReason),
    /// The source has no content yet.
    Wait,
}

/// A response whose content is still arriving.
#[derive(Debug)]
pub(crate) struct StreamedResponse {
    source: Stream,
    /// Bytes of content still to come, if the head declares a length.
    remaining_bytes: Option<u64>,
    /// True if trailers may follow content of a declared length.
    awaits_end: bool,
    pub(crate) record: ExchangeRecord,
    outline: ResponseOutline,
    /// Number of content bytes added to the output.
    content_bytes: u64,
}

impl StreamedResponse {
    /// Creates a streamed response. `awaits_end` is true if the protocol can send trailers after content of a declared
    /// length.
    pub(crate) fn new(source: Stream, awaits_end: bool, record: ExchangeRecord, response: &Response) -> Self {
        let (remaining_bytes, outline) = (source.length(), ResponseOutline::new(response));
        Self { source, remaining_bytes, awaits_end, record, outline, content_bytes: 0 }
    }

    /// Returns the next piece, or wakes `context` when it arrives.
    pub(crate) fn poll_piece(&mut self, context: &mut Context<'_>) -> StreamedPiece {
        loop {
            return match self.source.poll_piece(context) {
                Poll::Ready(ContentEvent::Segment(segment)) if segment.is_empty() => continue,
                Poll::Ready(ContentEvent::Segment(segment)) => match &mut self.remaining_bytes {
                    None => StreamedPiece::Segment(segment),
                    // Drop the whole segment, so that the client does not mistake the content for complete.
                    Some(remaining) => match remaining.checked_sub(segment.len()) {
                        None => StreamedPiece::Failed(CloseReason::LengthBroken),
                        Some(rest) => {
                            *remaining = rest;
                            StreamedPiece::Segment(segment)
                        }
                    },
                },
                Poll::Ready(ContentEvent::End(_)) if self.remaining_bytes.is_some_and(|remaining| remaining > 0) => {
                    StreamedPiece::Failed(CloseReason::LengthBroken)
                }
                Poll::Ready(ContentEvent::End(trailers)) => StreamedPiece::End(MessageEnd(trailers)),
                Poll::Ready(ContentEvent::Failed(reason)) => StreamedPiece::Failed(reason),
                // All declared bytes have arrived, even if the source has not reported its end.
                Poll::Pending if self.is_complete() && !self.awaits_end => StreamedPiece::End(MessageEnd(None)),
                Poll::Pending => StreamedPiece::Wait,
            };
        }
    }

    /// Lets the source receive content that the client cannot take yet.
    pub(crate) fn poll_ahead(&self, context: &mut Context<'_>) {
        self.source.poll_ahead(context);
    }

    /// Returns whether all declared bytes have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.remaining_bytes == Some(0)
    }

    /// Counts `bytes` of content that were added to the output.
    pub(crate) const fn count(&mut self, bytes: u64) {
        self.content_bytes += bytes;
    }

    /// Stages the log line of the response. `unsent_bytes` is the number of output bytes that never reached the kernel.
    pub(crate) fn stage<H: Handler>(&self, worker: &Worker<H>, unsent_bytes: u64) {
        let sent_bytes = self.content_bytes.saturating_sub(unsent_bytes);
        let logged = || self.outline.logged(sent_bytes, self.record.exchange.started_ns);
        worker.stage_described(self.record.description.as_ref(), logged);
    }
}
