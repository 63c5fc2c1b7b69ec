//! Request content on its way to a handler, and interim responses on their way back.
//!
//! The connection is one end and the handler's future the other, on one worker. The connection stops reading from the
//! client while [`BYTES_MAX`] are buffered here, so a slow reader slows down the client, and content is never held
//! whole.

use crate::ending::CloseReason;
use crate::shared::SharedBytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bytes buffered for the reader before the connection stops receiving. One receive may exceed it once.
pub const BYTES_MAX: usize = 64 * 1024;

/// Interim responses buffered at most; more are dropped, as they are optional.
pub const INTERIMS_MAX: usize = 16;

/// The next event of a request's content.
#[derive(Clone, Debug)]
pub enum ContentPiece {
    /// More content, never empty.
    Bytes(SharedBytes),
    /// The content is complete. Its trailer field lines, each `Name: value` and CR LF, if there were any.
    End(Option<Rc<[u8]>>),
    /// The client disconnected, was too slow, or broke a rule: the content stays incomplete.
    Cut(CloseReason),
}

#[derive(Debug, Default)]
struct Pipe {
    length: Option<u64>,
    pieces: VecDeque<SharedBytes>,
    waiting_bytes: usize,
    ended: Option<ContentEnd>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    reader_gone: bool,
    /// The reader has polled at least once.
    asked: bool,
}

#[derive(Clone, Debug)]
enum ContentEnd {
    Whole(Option<Rc<[u8]>>),
    Cut(CloseReason),
}

/// The reading end of a request's content.
#[derive(Debug)]
pub struct RequestContent(Rc<RefCell<Pipe>>);

impl RequestContent {
    /// Length in bytes, if the request declares it.
    pub fn length(&self) -> Option<u64> {
        self.0.borrow().length
    }

    /// The next piece.
    pub fn poll_piece(&self, context: &mut Context<'_>) -> Poll<ContentPiece> {
        let mut pipe = self.0.borrow_mut();
        pipe.asked = true;
        if let Some(bytes) = pipe.pieces.pop_front() {
            pipe.waiting_bytes -= bytes.len();
            if pipe.waiting_bytes < BYTES_MAX
                && let Some(writer) = pipe.writer.take()
            {
                writer.wake();
            }
            return Poll::Ready(ContentPiece::Bytes(bytes));
        }
        match &pipe.ended {
            Some(ContentEnd::Whole(trailers)) => Poll::Ready(ContentPiece::End(trailers.clone())),
            Some(ContentEnd::Cut(reason)) => Poll::Ready(ContentPiece::Cut(*reason)),
            None => {
                pipe.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for RequestContent {
    fn drop(&mut self) {
        let mut pipe = self.0.borrow_mut();
        pipe.reader_gone = true;
        pipe.pieces.clear();
        pipe.waiting_bytes = 0;
        if let Some(writer) = pipe.writer.take() {
            writer.wake();
        }
    }
}

/// The connection's end of a request's content.
#[derive(Debug)]
pub struct ContentWriter(Rc<RefCell<Pipe>>);

impl ContentWriter {
    /// Ready if more may be written now; otherwise wakes `context` once there is room.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.0.borrow_mut();
        if pipe.reader_gone || pipe.waiting_bytes < BYTES_MAX {
            return Poll::Ready(());
        }
        pipe.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns whether the reader was dropped.
    pub fn is_abandoned(&self) -> bool {
        self.0.borrow().reader_gone
    }

    /// Returns whether the content was never polled: the handler that took it did not read it.
    pub fn was_never_asked(&self) -> bool {
        !self.0.borrow().asked
    }

    /// Hands `bytes` to the reader.
    pub fn write(&self, bytes: SharedBytes) {
        let mut pipe = self.0.borrow_mut();
        if pipe.reader_gone || bytes.is_empty() {
            return;
        }
        pipe.waiting_bytes += bytes.len();
        pipe.pieces.push_back(bytes);
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
    }

    /// Marks the content as complete.
    pub fn end(self, trailers: Option<Rc<[u8]>>) {
        self.finish(ContentEnd::Whole(trailers));
    }

    /// Marks the content as cut; it stays incomplete.
    pub fn cut(self, reason: CloseReason) {
        self.finish(ContentEnd::Cut(reason));
    }

    fn finish(&self, ended: ContentEnd) {
        let mut pipe = self.0.borrow_mut();
        if pipe.ended.is_none() {
            pipe.ended = Some(ended);
        }
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
    }
}

impl Drop for ContentWriter {
    fn drop(&mut self) {
        self.finish(ContentEnd::Cut(CloseReason::ClientReset));
    }
}

/// Both ends of a content channel, with its `length` in bytes if known.
pub fn content_channel(length: Option<u64>) -> (ContentWriter, RequestContent) {
    let pipe = Rc::new(RefCell::new(Pipe { length, ..Pipe::default() }));
    (ContentWriter(Rc::clone(&pipe)), RequestContent(pipe))
}

/// An interim (1xx) response on its way to the client.
#[derive(Clone, Debug)]
pub struct InterimResponse {
    /// 102 to 199; 100 is sent by the connection itself and 101 is not interim.
    pub status: u16,
    /// Field lines, each `Name: value` and CR LF.
    pub lines: Rc<[u8]>,
}

/// Sends interim responses before the final one.
#[derive(Clone, Debug, Default)]
pub struct Interims(Rc<RefCell<InterimQueue>>);

#[derive(Debug, Default)]
struct InterimQueue {
    waiting: VecDeque<InterimResponse>,
    writer: Option<Waker>,
}

impl Interims {
    /// Queues `response` before the final response. It is not sent to HTTP/1.0 clients, as they do not understand
    /// interim responses (RFC 9110 §15.2).
    pub fn send(&self, response: InterimResponse) {
        let mut queue = self.0.borrow_mut();
        if queue.waiting.len() < INTERIMS_MAX {
            queue.waiting.push_back(response);
        }
        if let Some(writer) = queue.writer.take() {
            writer.wake();
        }
    }

    /// The next queued response; wakes `context` when there is one.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<InterimResponse> {
        let mut queue = self.0.borrow_mut();
        if let Some(response) = queue.waiting.pop_front() {
            return Poll::Ready(response);
        }
        queue.writer = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Request features that a handler may use besides the head. Unused ones cost nothing.
#[derive(Debug, Default)]
pub struct Offers {
    has_content: bool,
    behind: bool,
    length: Option<u64>,
    writer: RefCell<Option<ContentWriter>>,
    /// Content that was taken on behalf of a later handler.
    carried: RefCell<Option<RequestContent>>,
    taken: Cell<bool>,
    interims: RefCell<Option<Interims>>,
}

impl Offers {
    /// For a request without content.
    pub const fn new() -> Self {
        Self::with(false, None)
    }

    /// For a request with content, with its `length` in bytes if known.
    pub const fn with_content(length: Option<u64>) -> Self {
        Self::with(true, length)
    }

    /// Marks the response as possibly delayed: other responses go first, or the client may have gone already.
    #[must_use]
    pub fn behind(mut self) -> Self {
        self.behind = true;
        self
    }

    /// Returns whether the response may be delayed before it is first polled. A handler should not take scarce
    /// resources before that first poll.
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// For a request that this process generated, with all of its content.
    pub fn with_bytes(bytes: SharedBytes) -> Self {
        let length = bytes.len() as u64;
        let offers = Self::with(true, Some(length));
        let (writer, content) = content_channel(Some(length));
        writer.write(bytes);
        writer.end(None);
        *offers.carried.borrow_mut() = Some(content);
        offers
    }

    const fn with(has_content: bool, length: Option<u64>) -> Self {
        Self {
            has_content,
            behind: false,
            length,
            writer: RefCell::new(None),
            carried: RefCell::new(None),
            taken: Cell::new(false),
            interims: RefCell::new(None),
        }
    }

    /// The same offers for a handler that runs after this turn: the content is retained instead of discarded.
    #[must_use]
    pub fn carry(&self) -> Self {
        let carried = Self::with(self.has_content, self.length);
        *carried.carried.borrow_mut() = self.take_content();
        *carried.interims.borrow_mut() = Some(self.interims());
        carried
    }

    /// Returns whether the request has content.
    pub const fn has_content(&self) -> bool {
        self.has_content
    }

    /// Bytes of content, if the request declares a length.
    pub const fn content_length(&self) -> Option<u64> {
        self.length
    }

    /// The request's content, for a [`Reply::Later`](crate::handler::Reply::Later); `None` if there is none or it was
    /// taken already. Content that is not taken is read and discarded before the response is sent.
    pub fn take_content(&self) -> Option<RequestContent> {
        if let Some(content) = self.carried.borrow_mut().take() {
            return Some(content);
        }
        if !self.has_content || self.taken.replace(true) {
            return None;
        }
        let (writer, content) = content_channel(self.length);
        *self.writer.borrow_mut() = Some(writer);
        Some(content)
    }

    /// A sender of interim responses, for a [`Reply::Later`](crate::handler::Reply::Later).
    pub fn interims(&self) -> Interims {
        self.interims.borrow_mut().get_or_insert_with(Interims::default).clone()
    }

    /// The connection's end of the content, if a handler took it.
    pub fn writer(&self) -> Option<ContentWriter> {
        self.writer.borrow_mut().take()
    }

    /// The connection's end of interim responses, if a handler took them.
    pub fn taken_interims(&self) -> Option<Interims> {
        self.interims.borrow_mut().take()
    }
}
