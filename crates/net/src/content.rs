//! A request's content on its way to a handler that wants it, and interim answers on their way back.
//!
//! The pump is one end and the handler's future the other, on one worker. The pump stops reading from the client while
//! [`BYTES_MAX`] wait here: so a slow reader holds back the client, and no content is ever held whole.

use crate::ending::CloseReason;
use crate::shared::SharedBytes;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bytes that wait for the reader at the most, before the pump stops receiving. One receive may exceed it once.
pub const BYTES_MAX: usize = 64 * 1024;

/// Interim answers that wait at the most; more are dropped, for nobody needs them.
pub const INTERIMS_MAX: usize = 16;

/// What a reader of content is given next.
#[derive(Clone, Debug)]
pub enum ContentPiece {
    /// More of it, never empty.
    Bytes(SharedBytes),
    /// It is whole. The trailer field lines that came with it, each `Name: value` and CR LF, when there were any.
    End(Option<Rc<[u8]>>),
    /// The client went away, was too slow, or broke a rule: it will never be whole.
    Cut(CloseReason),
}

#[derive(Debug, Default)]
struct Pipe {
    length: Option<u64>,
    pieces: VecDeque<SharedBytes>,
    waiting_bytes: usize,
    ended: Option<Ended>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    reader_gone: bool,
    /// The reader has asked for something.
    asked: bool,
}

#[derive(Clone, Debug)]
enum Ended {
    Whole(Option<Rc<[u8]>>),
    Cut(CloseReason),
}

/// The reading end of a request's content.
#[derive(Debug)]
pub struct Content(Rc<RefCell<Pipe>>);

impl Content {
    /// Bytes in all, when the request says so.
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
            Some(Ended::Whole(trailers)) => Poll::Ready(ContentPiece::End(trailers.clone())),
            Some(Ended::Cut(reason)) => Poll::Ready(ContentPiece::Cut(*reason)),
            None => {
                pipe.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Content {
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

/// The pump's end of a request's content.
#[derive(Debug)]
pub(crate) struct ContentWriter(Rc<RefCell<Pipe>>);

impl ContentWriter {
    /// Whether more may be given now. When not, `context` is woken when it may.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.0.borrow_mut();
        if pipe.reader_gone || pipe.waiting_bytes < BYTES_MAX {
            return Poll::Ready(());
        }
        pipe.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether nobody reads any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.borrow().reader_gone
    }

    /// Whether nobody has ever asked for any of it: it was taken for a handler that turned out not to want it.
    pub(crate) fn was_never_asked(&self) -> bool {
        !self.0.borrow().asked
    }

    /// Gives `bytes` to the reader.
    pub(crate) fn write(&self, bytes: SharedBytes) {
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

    /// The content is whole.
    pub(crate) fn end(self, trailers: Option<Rc<[u8]>>) {
        self.finish(Ended::Whole(trailers));
    }

    /// The content will never be whole.
    pub(crate) fn cut(self, reason: CloseReason) {
        self.finish(Ended::Cut(reason));
    }

    fn finish(&self, ended: Ended) {
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
        self.finish(Ended::Cut(CloseReason::ClientReset));
    }
}

/// Both ends of content that has `length` bytes, when that is known.
pub(crate) fn content_channel(length: Option<u64>) -> (ContentWriter, Content) {
    let pipe = Rc::new(RefCell::new(Pipe { length, ..Pipe::default() }));
    (ContentWriter(Rc::clone(&pipe)), Content(pipe))
}

/// An interim answer (1xx) on its way to the client.
#[derive(Clone, Debug)]
pub struct InterimResponse {
    /// 102 to 199 but 101; 100 is the pump's own.
    pub status: u16,
    /// Field lines, each `Name: value` and CR LF.
    pub lines: Rc<[u8]>,
}

/// Sends interim answers ahead of the final one.
#[derive(Clone, Debug, Default)]
pub struct Interims(Rc<RefCell<InterimQueue>>);

#[derive(Debug, Default)]
struct InterimQueue {
    waiting: VecDeque<InterimResponse>,
    writer: Option<Waker>,
}

impl Interims {
    /// Has `response` sent before the final answer. The pump leaves it out for clients of HTTP/1.0, which do not know
    /// interim answers (RFC 9110 §15.2).
    pub fn send(&self, response: InterimResponse) {
        let mut queue = self.0.borrow_mut();
        if queue.waiting.len() < INTERIMS_MAX {
            queue.waiting.push_back(response);
        }
        if let Some(writer) = queue.writer.take() {
            writer.wake();
        }
    }

    /// The next that waits; `context` is woken when there is another.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<InterimResponse> {
        let mut queue = self.0.borrow_mut();
        if let Some(response) = queue.waiting.pop_front() {
            return Poll::Ready(response);
        }
        queue.writer = Some(context.waker().clone());
        Poll::Pending
    }
}

/// What a handler may ask for besides a request's head. What nobody asks for costs nothing.
#[derive(Debug, Default)]
pub struct Offers {
    has_content: bool,
    behind: bool,
    length: Option<u64>,
    writer: RefCell<Option<ContentWriter>>,
    /// Content that was taken on behalf of a later handler.
    carried: RefCell<Option<Content>>,
    taken: Cell<bool>,
    interims: RefCell<Option<Interims>>,
}

impl Offers {
    /// For a request without content.
    pub const fn new() -> Self {
        Self::with(false, None)
    }

    /// For a request with content, of `length` bytes when that is known.
    pub const fn with_content(length: Option<u64>) -> Self {
        Self::with(true, length)
    }

    /// The same for a request whose answer may have to wait: other answers go first, or it may have been given up already.
    #[must_use]
    pub fn behind(mut self) -> Self {
        self.behind = true;
        self
    }

    /// Whether the answer may have to wait before anybody looks after it. What is scarce should not be taken for it before
    /// it is asked for first.
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// For a request whose content is all at hand, because this process made it.
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

    /// The same offers for a handler that is asked after this turn: the content waits for it instead of being thrown
    /// away.
    #[must_use]
    pub fn carry(&self) -> Self {
        let carried = Self::with(self.has_content, self.length);
        *carried.carried.borrow_mut() = self.take_content();
        *carried.interims.borrow_mut() = Some(self.interims());
        carried
    }

    /// Whether the request has content.
    pub const fn has_content(&self) -> bool {
        self.has_content
    }

    /// Bytes of content, when the request says how many.
    pub const fn content_length(&self) -> Option<u64> {
        self.length
    }

    /// The request's content, for a [`Reply::Later`](crate::handler::Reply::Later); `None` when it has none, or when it was taken already. Content
    /// that nobody takes is read and thrown away before the answer is sent.
    pub fn take_content(&self) -> Option<Content> {
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

    /// The way for interim answers, for a [`Reply::Later`](crate::handler::Reply::Later).
    pub fn interims(&self) -> Interims {
        self.interims.borrow_mut().get_or_insert_with(Interims::default).clone()
    }

    /// The pump's end of content that was taken.
    pub(crate) fn writer(&self) -> Option<ContentWriter> {
        self.writer.borrow_mut().take()
    }

    /// The pump's end of interim answers, when they were asked for.
    pub(crate) fn taken_interims(&self) -> Option<Interims> {
        self.interims.borrow_mut().take()
    }
}
