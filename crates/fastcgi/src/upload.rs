//! Sending a FastCGI request: variables, then content as it arrives.

use crate::outcome::PhpOutcome;
use crate::record::{CONTENT_BYTES_MAX, Header, RecordKind, encode_end};
use crate::spool::SpooledContent;
use flatout_handler::content::{ContentPiece, RequestContent};
use flatout_handler::shared::SharedBytes;
use flatout_upstream::fastcgi::FastcgiConnection;
use std::io::IoSlice;
use std::task::{Context, Poll};

/// Content of a request.
#[derive(Debug)]
pub(crate) enum Feed {
    /// None.
    Nothing,
    /// From the client as it arrives.
    Live(RequestContent),
    /// Buffered completely.
    Kept(SpooledContent),
    /// The beginning is buffered; the rest arrives from the client.
    Part(SpooledContent, RequestContent),
}

/// Reason why an upload ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadError {
    /// The application server closed its receiving side.
    Socket,
    /// The content is unavailable.
    Content(PhpOutcome),
}

/// A request being sent.
#[derive(Debug)]
pub(crate) struct Upload {
    /// Variables, then record headers.
    own: Vec<u8>,
    own_at: usize,
    /// Content announced by the last header.
    part: SharedBytes,
    part_at: usize,
    /// Rest of the last piece, for later records.
    later: SharedBytes,
    feed: Feed,
    ended: bool,
    sent_bytes: u64,
    /// Live content was consumed, so the request cannot be sent again.
    is_taken: bool,
    /// It waits for the client, not for the application server.
    waits_for_client: bool,
}

fn nothing() -> SharedBytes {
    SharedBytes::from(Vec::new())
}

impl Upload {
    /// Sends `prelude`, the records up to the end of the variables, and then the content of `feed`.
    pub(crate) fn new(prelude: Vec<u8>, feed: Feed) -> Self {
        Self {
            own: prelude,
            own_at: 0,
            part: nothing(),
            part_at: 0,
            later: nothing(),
            feed,
            ended: false,
            sent_bytes: 0,
            is_taken: false,
            waits_for_client: false,
        }
    }

    /// Bytes sent.
    pub(crate) const fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Returns whether it waits for the client.
    pub(crate) const fn waits_for_client(&self) -> bool {
        self.waits_for_client
    }

    /// Returns whether everything is sent.
    pub(crate) fn is_done(&self) -> bool {
        self.ended && self.is_between_records()
    }

    /// Returns whether no record is partly sent.
    pub(crate) fn is_between_records(&self) -> bool {
        self.own_at == self.own.len() && self.part_at == self.part.len()
    }

    /// Returns the content, for sending the request again; `None` if part of it was consumed.
    pub(crate) fn into_feed(self) -> Option<Feed> {
        match self.feed {
            Feed::Live(_) | Feed::Part(..) if self.is_taken => None,
            Feed::Part(mut spool, rest) => {
                spool.rewind();
                Some(Feed::Part(spool, rest))
            }
            Feed::Kept(mut spool) => {
                spool.rewind();
                Some(Feed::Kept(spool))
            }
            feed => Some(feed),
        }
    }

    /// Continues sending. Ready once everything is sent.
    pub(crate) fn poll(
        &mut self,
        connection: &mut FastcgiConnection,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
        self.waits_for_client = false;
        loop {
            while !self.is_between_records() {
                let slices = [IoSlice::new(&self.own[self.own_at..]), IoSlice::new(&self.part[self.part_at..])];
                // A single slice uses a plain send.
                let slices = match (slices[0].is_empty(), slices[1].is_empty()) {
                    (true, _) => &slices[1..],
                    (_, true) => &slices[..1],
                    _ => &slices[..],
                };
                match connection.poll_send(context, slices) {
                    Poll::Ready(Ok(count)) => self.advance(count),
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(UploadError::Socket)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            if self.later.is_empty() {
                match self.poll_piece(context) {
                    Poll::Ready(Ok(Some(piece))) => self.later = piece,
                    Poll::Ready(Ok(None)) => {
                        self.begin_record(nothing());
                        self.ended = true;
                        continue;
                    }
                    Poll::Ready(Err(outcome)) => return Poll::Ready(Err(UploadError::Content(outcome))),
                    Poll::Pending => {
                        self.waits_for_client = true;
                        return Poll::Pending;
                    }
                }
            }
            let count = self.later.len().min(CONTENT_BYTES_MAX);
            let part = self.later.slice(0..count);
            self.later.advance(count);
            self.begin_record(part);
        }
    }

    fn advance(&mut self, count: usize) {
        self.sent_bytes += count as u64;
        let own = count.min(self.own.len() - self.own_at);
        self.own_at += own;
        self.part_at += count - own;
    }

    /// Begins a record with `part`; an empty one ends the content.
    fn begin_record(&mut self, part: SharedBytes) {
        self.own.clear();
        self.own_at = 0;
        if part.is_empty() {
            encode_end(RecordKind::Stdin, &mut self.own);
        } else {
            self.own.extend_from_slice(&Header::new(RecordKind::Stdin, part.len() as u16).encode());
        }
        self.part = part;
        self.part_at = 0;
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<SharedBytes>, PhpOutcome>> {
        let content = match &mut self.feed {
            Feed::Nothing => return Poll::Ready(Ok(None)),
            Feed::Kept(spool) => return Poll::Ready(spool.next_piece()),
            Feed::Live(content) => content,
            Feed::Part(spool, content) => match spool.next_piece() {
                Ok(None) => content,
                piece => return Poll::Ready(piece),
            },
        };
        self.is_taken = true;
        content.poll_piece(context).map(|piece| match piece {
            ContentPiece::Bytes(bytes) => Ok(Some(bytes)),
            ContentPiece::End(_) => Ok(None),
            ContentPiece::Cut(_) => Err(PhpOutcome::ContentCut),
        })
    }
}
