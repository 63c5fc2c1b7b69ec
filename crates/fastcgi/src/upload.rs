//! Sending a FastCGI request: its variables, then its content as it arrives.

use crate::outcome::PhpOutcome;
use crate::record::{CONTENT_BYTES_MAX, Header, RecordKind, encode_end};
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_upstream::fastcgi::FastcgiConnection;
use flatout_upstream::spool::SpooledContent;
use flatout_upstream::upload::{UploadPiece, UploadSink, UploadSource};
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// The content of a request, and where it comes from.
#[derive(Debug)]
pub(crate) enum Feed {
    /// No content.
    Nothing,
    /// Content that arrives from the client.
    Live(RequestContent),
    /// Content that is buffered completely.
    Kept(SpooledContent),
    /// Content whose beginning is buffered. The rest arrives from the client.
    Part(SpooledContent, RequestContent),
}

/// The content of a request that is being sent.
#[derive(Debug)]
pub(crate) struct SentContent {
    feed: Feed,
    /// True if content from the client was consumed, so the request cannot be sent again.
    is_taken: bool,
}

impl SentContent {
    /// The content of `feed`, from its beginning.
    pub(crate) const fn new(feed: Feed) -> Self {
        Self { feed, is_taken: false }
    }

    /// Returns the content, so that the request can be sent again, or `None` if content from the client was consumed.
    pub(crate) fn into_feed(mut self) -> Option<Feed> {
        match &mut self.feed {
            Feed::Live(_) | Feed::Part(..) if self.is_taken => return None,
            Feed::Part(spool, _) | Feed::Kept(spool) => spool.rewind(),
            Feed::Nothing | Feed::Live(_) => {}
        }
        Some(self.feed)
    }
}

impl UploadSource for SentContent {
    type Error = PhpOutcome;

    fn joins_head(&self) -> bool {
        matches!(self.feed, Feed::Nothing | Feed::Kept(_))
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<UploadPiece, PhpOutcome>> {
        let content = match &mut self.feed {
            Feed::Nothing => return Poll::Ready(Ok(UploadPiece::End(None))),
            Feed::Live(content) => content,
            Feed::Kept(spool) => {
                let piece = spool.next_piece().map_err(|_| PhpOutcome::SpoolFailed)?;
                return Poll::Ready(Ok(piece.map_or(UploadPiece::End(None), UploadPiece::Bytes)));
            }
            Feed::Part(spool, content) => match spool.next_piece().map_err(|_| PhpOutcome::SpoolFailed)? {
                None => content,
                Some(piece) => return Poll::Ready(Ok(UploadPiece::Bytes(piece))),
            },
        };
        self.is_taken = true;
        Poll::Ready(match ready!(content.poll_piece(context)) {
            ContentPiece::Bytes(bytes) => Ok(UploadPiece::Bytes(bytes)),
            ContentPiece::End(_) => Ok(UploadPiece::End(None)),
            ContentPiece::Cut(_) => Err(PhpOutcome::ContentCut),
        })
    }
}

/// A connection on which content is sent in records.
pub(crate) struct RecordSink<'a>(pub(crate) &'a mut FastcgiConnection);

impl UploadSink for RecordSink<'_> {
    const FRAME_BYTES_MAX: usize = CONTENT_BYTES_MAX;

    fn begin_frame(&mut self, content_bytes: usize, _: bool, output: &mut Vec<u8>) {
        output.extend_from_slice(&Header::new(RecordKind::Stdin, content_bytes as u16).encode());
    }

    fn end(&mut self, _: Option<&[u8]>, _: bool, output: &mut Vec<u8>) {
        encode_end(RecordKind::Stdin, output);
    }

    fn poll_send(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>], _: bool) -> Poll<io::Result<usize>> {
        self.0.poll_send(context, slices)
    }

    fn poll_closed(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
