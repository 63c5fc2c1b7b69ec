//! Streamed responses: framed, gathered and counted on their way to the socket.

use super::exchanges::{COPY_BYTES_MAX, Exchanges, Turn};
use crate::exchange::streamed::{StreamedPiece, StreamedResponse};
use crate::sending::Tail;
use crate::worker::Worker;
use flatout_handler::Handler;
use flatout_handler::ending::CloseReason;
use flatout_handler::response::Segment;
use flatout_handler::stream::MessageEnd;
use flatout_http::connection::ConnectionEvent;
use std::io::Write as _;
use std::task::Context;

/// Upper bound of pieces gathered into one output.
const PIECES_MAX: u32 = 64;

/// The framing of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentFraming {
    /// Content-Length.
    Length,
    /// The chunked transfer coding; `open` if a chunk's line end is still missing.
    Chunked { open: bool },
    /// The end of the connection (RFC 9112 §6.3, for HTTP/1.0).
    UntilClose,
}

/// The result of polling a streamed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It waits for its source.
    Wait,
    /// More is available once the output is sent.
    More,
    /// It is complete.
    Done,
    /// It is incomplete, and will stay so.
    Failed(CloseReason),
}

/// A streamed response in progress.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) response: StreamedResponse,
    frame: ContentFraming,
    /// The head, if it is held back for the first piece.
    held: Vec<u8>,
    ends: ConnectionEvent,
    /// Why the content will stay incomplete, if it does.
    failed: Option<CloseReason>,
    finished: bool,
    /// True if it had to wait after its head was sent.
    waited_for: bool,
}

impl Streaming {
    pub(super) const fn new(response: StreamedResponse, frame: ContentFraming, ends: ConnectionEvent) -> Self {
        Self { response, frame, held: Vec::new(), ends, failed: None, finished: false, waited_for: false }
    }

    /// Polls for pieces until none is available, or enough for one send.
    fn poll(&mut self, output: &mut Vec<u8>, tail: &mut Tail, context: &mut Context<'_>) -> Flow {
        output.append(&mut self.held);
        if let Some(reason) = self.failed {
            return Flow::Failed(reason);
        }
        for _ in 0..PIECES_MAX {
            if output.len() >= COPY_BYTES_MAX {
                return Flow::More;
            }
            match self.response.poll_piece(context) {
                StreamedPiece::Wait => return Flow::Wait,
                StreamedPiece::End(MessageEnd(trailers)) => {
                    return self.end(output, trailers.as_deref().unwrap_or_default());
                }
                StreamedPiece::Segment(segment) => match self.add(segment, output) {
                    Tail::None => {}
                    rest => {
                        *tail = rest;
                        return Flow::More;
                    }
                },
                StreamedPiece::Failed(reason) => {
                    self.failed = Some(reason);
                    return Flow::Failed(reason);
                }
            }
        }
        Flow::More
    }

    /// Puts the part of `segment` that is to be copied into the output. Returns the rest.
    fn add(&mut self, segment: Segment, output: &mut Vec<u8>) -> Tail {
        let bytes = segment.len();
        if let ContentFraming::Chunked { open } = &mut self.frame {
            if std::mem::replace(open, true) {
                output.extend_from_slice(b"\r\n");
            }
            // Writing to a Vec cannot fail.
            let _ = write!(output, "{bytes:x}\r\n");
        }
        self.response.count(bytes);
        match segment {
            Segment::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                output.extend_from_slice(&bytes);
                Tail::None
            }
            Segment::Bytes(bytes) => Tail::Bytes(bytes),
            Segment::File(file) => Tail::File(file),
        }
    }

    fn end(&mut self, output: &mut Vec<u8>, trailers: &[u8]) -> Flow {
        if let ContentFraming::Chunked { open } = self.frame {
            if open {
                output.extend_from_slice(b"\r\n");
            }
            output.extend_from_slice(b"0\r\n");
            output.extend_from_slice(trailers);
            output.extend_from_slice(b"\r\n");
        }
        self.finished = true;
        Flow::Done
    }
}

impl Exchanges {
    /// Polls the streamed response for more, into the output and the tail.
    pub(super) fn poll_stream<H: Handler>(&mut self, turn: &mut Turn<'_, H>, context: &mut Context<'_>) -> Flow {
        let Some(streaming) = self.streaming.as_mut() else { return Flow::Done };
        if streaming.finished {
            return Flow::Done;
        }
        let flow = streaming.poll(turn.output, &mut turn.tail, context);
        if flow == Flow::Done {
            turn.ends = Some(streaming.ends);
        }
        flow
    }

    /// Holds back the head of a new response until its first piece is available: `output` contains it from `head_at`
    /// on.
    pub(crate) fn hold_head(&mut self, output: &mut Vec<u8>, head_at: usize) {
        if let Some(streaming) = self.streaming.as_mut() {
            streaming.held = output.split_off(head_at);
        }
    }

    /// Handles that the kernel has all of a streamed response.
    pub(super) fn end_stream<H: Handler>(&mut self, worker: &Worker<H>) {
        if let Some(streaming) = self.streaming.take_if(|streaming| streaming.finished) {
            streaming.response.stage(worker, 0);
            worker.commit("sent");
            // Content that still arrives has no reader.
            self.cut_content(CloseReason::RefusedBody);
        }
    }

    /// Starts waiting for more of a response. Returns whether the client has had time to see that it has begun.
    pub(crate) fn begin_waiting(&mut self) -> bool {
        self.streaming.as_mut().is_some_and(|streaming| std::mem::replace(&mut streaming.waited_for, true))
    }

    /// Returns whether closing the connection now would make the partial response look complete.
    pub(crate) fn must_reset(&self) -> bool {
        self.streaming.as_ref().is_some_and(|streaming| streaming.frame == ContentFraming::UntilClose)
    }
}
