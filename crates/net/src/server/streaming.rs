//! An answer whose content comes bit by bit: framed, gathered and counted on its way to the socket.

use super::exchanges::{COPY_BYTES_MAX, Described, Exchanges, Turn};
use super::sending::Tail;
use super::worker::Worker;
use crate::access::Answer;
use crate::ending::CloseReason;
use crate::handler::Handler;
use crate::response::{Response, Segment};
use crate::stream::{Piece, Stream};
use flatout_http::connection::Event;
use std::io::Write as _;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Pieces gathered into one output at the most.
const PIECES_MAX: u32 = 64;

/// How the client knows where the content ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// So many bytes more.
    Length(u64),
    /// The chunked transfer coding; whether a chunk is still without its line end.
    Chunked { open: bool },
    /// With the connection (RFC 9112 §6.3, for HTTP/1.0).
    UntilClose,
}

/// What the log says of an answer, kept until it has ended.
#[derive(Debug)]
pub(crate) struct Outlined {
    log: u8,
    status: u16,
    outcome: &'static str,
    user: Option<Rc<str>>,
    site: Option<Rc<str>>,
    cache: Option<&'static str>,
}

impl Outlined {
    pub(crate) fn new<H: Handler>(response: &Response) -> Self {
        Self {
            log: response.log,
            status: response.status,
            outcome: H::OUTCOMES.get(usize::from(response.outcome)).copied().unwrap_or("-"),
            user: response.user.clone(),
            site: response.site.clone(),
            cache: response.cache,
        }
    }

    /// The answer, of which `body_bytes` were sent.
    pub(crate) fn answer(&self, body_bytes: u64, started_ns: u64) -> Answer<'_> {
        Answer {
            log: self.log,
            status: self.status,
            body_bytes,
            outcome: self.outcome,
            started_ns,
            user: self.user.as_deref(),
            site: self.site.as_deref(),
            cache: self.cache,
        }
    }
}

/// How far a poll of what is under way came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It waits.
    Wait,
    /// There is more to be had when what was made is sent.
    More,
    /// There is no more.
    Done,
    /// There should be more, but it will not come.
    Failed(CloseReason),
}

/// An answer under way.
#[derive(Debug)]
pub(super) struct Streaming {
    source: Stream,
    frame: Frame,
    /// The head, when it could not be made into the output with the first piece.
    held: Vec<u8>,
    pub(super) request: Described,
    outlined: Outlined,
    /// Bytes of content made into output.
    content_bytes: u64,
    ends: Event,
    /// Why there will be no more, once that is known.
    failed: Option<CloseReason>,
    finished: bool,
    /// It has been waited for, after its head was sent.
    waited_for: bool,
}

impl Streaming {
    pub(super) const fn new(source: Stream, frame: Frame, request: Described, outlined: Outlined, ends: Event) -> Self {
        Self {
            source,
            frame,
            held: Vec::new(),
            request,
            outlined,
            content_bytes: 0,
            ends,
            failed: None,
            finished: false,
            waited_for: false,
        }
    }

    /// Asks for pieces until there are none now, or enough for one send.
    fn poll(&mut self, output: &mut Vec<u8>, tail: &mut Tail, context: &mut Context<'_>) -> Flow {
        output.append(&mut self.held);
        if let Some(reason) = self.failed {
            return Flow::Failed(reason);
        }
        for _ in 0..PIECES_MAX {
            if output.len() >= COPY_BYTES_MAX {
                return Flow::More;
            }
            let piece = match self.source.poll_piece(context) {
                Poll::Ready(piece) => piece,
                // All that was promised has come; whether the source knows that yet does not matter.
                Poll::Pending if self.frame == Frame::Length(0) => Piece::End(None),
                Poll::Pending => return Flow::Wait,
            };
            let added = match piece {
                Piece::Segment(segment) => self.add(segment, output),
                Piece::End(trailers) => return self.end(output, trailers.as_deref().unwrap_or_default()),
                Piece::Failed(reason) => Err(reason),
            };
            match added {
                Ok(Tail::None) => {}
                Ok(rest) => {
                    *tail = rest;
                    return Flow::More;
                }
                Err(reason) => {
                    self.failed = Some(reason);
                    return Flow::Failed(reason);
                }
            }
        }
        Flow::More
    }

    /// Puts `segment` into the output as far as it is to be copied. Returns the rest.
    fn add(&mut self, segment: Segment, output: &mut Vec<u8>) -> Result<Tail, CloseReason> {
        let bytes = segment.len();
        if bytes == 0 {
            return Ok(Tail::None);
        }
        match &mut self.frame {
            // Nothing of it: what the client has must not look whole.
            Frame::Length(remaining) => *remaining = remaining.checked_sub(bytes).ok_or(CloseReason::LengthBroken)?,
            Frame::Chunked { open } => {
                if std::mem::replace(open, true) {
                    output.extend_from_slice(b"\r\n");
                }
                // Writing to a Vec cannot fail.
                let _ = write!(output, "{bytes:x}\r\n");
            }
            Frame::UntilClose => {}
        }
        self.content_bytes += bytes;
        Ok(match segment {
            Segment::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                output.extend_from_slice(&bytes);
                Tail::None
            }
            Segment::Bytes(bytes) => Tail::Bytes(bytes),
            Segment::File(file) => Tail::File(file),
        })
    }

    fn end(&mut self, output: &mut Vec<u8>, trailers: &[u8]) -> Flow {
        match self.frame {
            Frame::Length(0) | Frame::UntilClose => {}
            Frame::Length(_) => {
                self.failed = Some(CloseReason::LengthBroken);
                return Flow::Failed(CloseReason::LengthBroken);
            }
            Frame::Chunked { open } => {
                if open {
                    output.extend_from_slice(b"\r\n");
                }
                output.extend_from_slice(b"0\r\n");
                output.extend_from_slice(trailers);
                output.extend_from_slice(b"\r\n");
            }
        }
        self.finished = true;
        Flow::Done
    }

    /// What the log says when `unsent_bytes` of the output never reached the kernel.
    pub(super) fn answer(&self, unsent_bytes: u64) -> Answer<'_> {
        self.outlined.answer(self.content_bytes.saturating_sub(unsent_bytes), self.request.exchange.started_ns)
    }
}

impl Exchanges {
    /// Asks the answer that is under way for more. It goes into the output and the tail.
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

    /// Keeps the head of an answer that has just begun until its first piece is there: `output` holds it from its
    /// beginning on.
    pub(crate) fn hold_head(&mut self, output: &mut Vec<u8>, head_at: usize) {
        if let Some(streaming) = self.streaming.as_mut() {
            streaming.held = output.split_off(head_at);
        }
    }

    /// The end of an answer that came bit by bit is with the kernel.
    pub(super) fn end_stream<H: Handler>(&mut self, worker: &Worker<H>) {
        if let Some(streaming) = self.streaming.take_if(|streaming| streaming.finished) {
            worker.stage_described(streaming.request.description.as_ref(), || streaming.answer(0));
            worker.commit("sent");
            // Content that still comes has nobody left to read it.
            self.cut_content(CloseReason::RefusedBody);
        }
    }

    /// More of an answer is waited for. Returns whether the client has had some time to see that it has begun.
    pub(crate) fn begin_waiting(&mut self) -> bool {
        self.streaming.as_mut().is_some_and(|streaming| std::mem::replace(&mut streaming.waited_for, true))
    }

    /// Whether the client would take what it has got for the whole answer if the connection just ended.
    pub(crate) fn must_reset(&self) -> bool {
        self.streaming.as_ref().is_some_and(|streaming| streaming.frame == Frame::UntilClose)
    }
}
