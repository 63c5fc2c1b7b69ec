//! Streamed responses, which are framed, gathered and counted on their way to the socket.

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

/// Maximum number of pieces gathered into one output.
const PIECES_MAX: u32 = 64;

/// How the content of a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentFraming {
    /// Content-Length.
    Length,
    /// Chunked transfer coding. `open` is true if the line ending of the last chunk has not been written yet.
    Chunked { open: bool },
    /// The content extends until the connection closes (RFC 9112 §6.3), for HTTP/1.0.
    UntilClose,
}

/// The result of polling a streamed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The response waits for its source.
    Wait,
    /// More content is available once the output has been sent.
    More,
    /// The response is complete.
    Done,
    /// The response will never be complete.
    Failed(CloseReason),
}

/// A streamed response in progress.
#[derive(Debug)]
pub(super) struct Streaming {
    pub(super) response: StreamedResponse,
    frame: ContentFraming,
    /// The head, while it is held back for the first piece.
    held: Vec<u8>,
    ends: ConnectionEvent,
    /// The reason the content will never be complete, if there is one.
    failed: Option<CloseReason>,
    finished: bool,
    /// True if the response has waited for its source after its head was sent.
    waited_for: bool,
}

impl Streaming {
    pub(super) const fn new(response: StreamedResponse, frame: ContentFraming, ends: ConnectionEvent) -> Self {
        Self { response, frame, held: Vec::new(), ends, failed: None, finished: false, waited_for: false }
    }

    /// Gathers pieces into `output` and `tail` until none is available or there are enough for one send call.
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

    /// Appends `segment` to the output as far as it is copied. Returns the rest, to be sent from its own memory.
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
    /// Gathers more of the streamed response into the output and the tail.
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

    /// Lets the source of the streamed response continue while the client is slow.
    pub(super) fn poll_ahead(&self, context: &mut Context<'_>) {
        if let Some(streaming) = self.streaming.as_ref().filter(|streaming| !streaming.finished) {
            streaming.response.poll_ahead(context);
        }
    }

    /// Removes the head of a new response, which begins at `head_at`, from `output`, and holds it back until the first
    /// piece is available.
    pub(crate) fn hold_head(&mut self, output: &mut Vec<u8>, head_at: usize) {
        if let Some(streaming) = self.streaming.as_mut() {
            streaming.held = output.split_off(head_at);
        }
    }

    /// Called when the kernel has accepted all output so far: ends the streamed response if it is complete.
    pub(super) fn end_stream<H: Handler>(&mut self, worker: &Worker<H>) {
        if let Some(streaming) = self.streaming.take_if(|streaming| streaming.finished) {
            streaming.response.stage(worker, 0);
            worker.commit("sent");
            // Content that still arrives has no reader.
            self.cut_content(CloseReason::RefusedBody);
        }
    }

    /// Starts waiting for more of a response. Returns whether the response had already waited before, so that the
    /// client has had time to see its beginning.
    pub(crate) fn begin_waiting(&mut self) -> bool {
        self.streaming.as_mut().is_some_and(|streaming| std::mem::replace(&mut streaming.waited_for, true))
    }

    /// Returns whether closing the connection now would make an incomplete response look complete.
    pub(crate) fn must_reset(&self) -> bool {
        self.streaming.as_ref().is_some_and(|streaming| streaming.frame == ContentFraming::UntilClose)
    }
}
