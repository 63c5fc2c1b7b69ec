//! Request content on its way to a handler, and interim responses on their way to the client.
//!
//! The connection holds one end and the handler's future the other, on the same worker. The connection stops reading
//! from the client while [`BYTES_MAX`] bytes are buffered here, so a slow reader slows down the client, and the whole
//! content is never buffered.

use crate::budget::{Budget, BudgetUser, Held};
use crate::ending::CloseReason;
use crate::shared::SharedBytes;
use flatout_os::clock::monotonic_ms;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Number of bytes buffered for the reader above which the connection stops receiving. One receive call may exceed it.
pub const BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes kept for a [`Rewind`], enough for a form or an RPC message.
pub const REWIND_BYTES_MAX: usize = 16 * 1024;

/// Maximum number of interim responses that are buffered. Further ones are dropped, as interim responses are optional.
pub const INTERIMS_MAX: usize = 16;

/// A piece of a request's content, or its end.
#[derive(Clone, Debug)]
pub enum ContentPiece {
    /// More content, never empty.
    Bytes(SharedBytes),
    /// The content is complete. Contains its trailer field lines, if any, each as `Name: value` and CR LF.
    End(Option<Rc<[u8]>>),
    /// The content is incomplete, because the client disconnected, was too slow, or violated a rule.
    Cut(CloseReason),
}

/// Selects the trailer field lines that a reader receives. Returns `None` if none are left.
type TrailerFilter = Box<dyn Fn(&[u8]) -> Option<Rc<[u8]>>>;

#[derive(Default, derive_more::Debug)]
struct Pipe {
    length: Option<u64>,
    pieces: VecDeque<SharedBytes>,
    waiting_bytes: usize,
    /// Bytes that the reader may still receive, or `None` if there is no limit.
    left_bytes: Option<u64>,
    ended: Option<ContentEnd>,
    /// When the client had sent everything, or the content was cut, on the coarse monotonic clock.
    ended_ms: Option<u64>,
    #[debug(skip)]
    trailer_filter: Option<TrailerFilter>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// True if the reader was dropped. A [`Rewind`] may create another reader.
    reader_dropped: bool,
    /// True if no reader exists and none can be created.
    reader_gone: bool,
    /// True if the reader has polled at least once.
    asked: bool,
    /// True if the client waits for 100 (Continue) before sending the content.
    expects_continue: bool,
    /// A copy of the content read so far, while a [`Rewind`] exists and the copy is complete.
    kept: Option<KeptContent>,
}

/// A copy of content that was read, for another reader.
#[derive(Debug)]
struct KeptContent {
    bytes: Vec<u8>,
    /// The reservation of the memory for `bytes`.
    held: Held,
}

impl Pipe {
    /// Keeps a copy of `bytes`. The original cannot be kept, as it may hold the client's flow-control window.
    fn keep(&mut self, bytes: &[u8]) {
        // Content whose declared length exceeds the maximum cannot be kept whole.
        let is_longer = self.length.is_some_and(|length| length > REWIND_BYTES_MAX as u64);
        self.kept.take_if(|kept| {
            let is_too_long = is_longer || kept.bytes.len() + bytes.len() > REWIND_BYTES_MAX;
            // When memory is short, other uses are more important than a retry.
            is_too_long || !kept.held.try_grow(bytes.len() as u64)
        });
        if let Some(kept) = &mut self.kept {
            kept.bytes.reserve_exact(bytes.len());
            kept.bytes.extend_from_slice(bytes);
        }
    }

    /// Drops the buffered content, because nothing will read it.
    fn abandon(&mut self) {
        self.reader_gone = true;
        self.pieces.clear();
        self.waiting_bytes = 0;
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }
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
    /// Returns the length in bytes, if the request declares it.
    pub fn length(&self) -> Option<u64> {
        self.0.borrow().length
    }

    /// Returns when the client had sent all content, in milliseconds on the coarse monotonic clock, or `None` while more
    /// may arrive.
    pub fn arrived_ms(&self) -> Option<u64> {
        self.0.borrow().ended_ms
    }

    /// Returns whether the client waits for 100 (Continue), which is sent when the content is first polled (RFC 9110
    /// §10.1.1). If a handler responds without polling, the client need not send the content.
    pub fn expects_continue(&self) -> bool {
        let pipe = self.0.borrow();
        pipe.expects_continue && !pipe.asked
    }

    /// Returns `Ready` if content has arrived or none will arrive any more; otherwise wakes `context` when that
    /// happens. Does not count as polling the content.
    pub fn poll_arrival(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.0.borrow_mut();
        if !pipe.pieces.is_empty() || pipe.ended.is_some() {
            return Poll::Ready(());
        }
        pipe.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Limits the rest of the content to `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// [`CloseReason::ContentTooLarge`] if the request declares a greater length. If content of unknown length turns
    /// out to be longer, reading it yields [`ContentPiece::Cut`] with this reason.
    pub fn up_to(self, bytes_max: u64) -> Result<Self, CloseReason> {
        if self.length().is_some_and(|length| length > bytes_max) {
            return Err(CloseReason::ContentTooLarge);
        }
        self.0.borrow_mut().left_bytes = Some(bytes_max);
        Ok(self)
    }

    /// Makes [`ContentPiece::End`] contain only the trailer field lines that `filter` returns.
    #[must_use]
    pub fn with_trailer_filter(self, filter: impl Fn(&[u8]) -> Option<Rc<[u8]>> + 'static) -> Self {
        self.0.borrow_mut().trailer_filter = Some(Box::new(filter));
        self
    }

    /// Starts keeping a copy of the content that is read, so that it can be read again. At most [`REWIND_BYTES_MAX`]
    /// bytes are stored, as far as `budget` grants the memory.
    pub fn rewind(&self, budget: &Arc<Budget>) -> Rewind {
        let held = Held::new(Arc::clone(budget), BudgetUser::Retries);
        self.0.borrow_mut().kept = Some(KeptContent { bytes: Vec::new(), held });
        Rewind(Rc::clone(&self.0))
    }

    /// Returns the next piece, or wakes `context` when it arrives.
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
            if let Some(left_bytes) = pipe.left_bytes {
                let left_bytes = left_bytes.checked_sub(bytes.len() as u64);
                pipe.left_bytes = left_bytes.or(Some(0));
                if left_bytes.is_none() {
                    pipe.ended = Some(ContentEnd::Cut(CloseReason::ContentTooLarge));
                    return Poll::Ready(ContentPiece::Cut(CloseReason::ContentTooLarge));
                }
            }
            pipe.keep(&bytes);
            return Poll::Ready(ContentPiece::Bytes(bytes));
        }
        match &pipe.ended {
            Some(ContentEnd::Whole(trailers)) => Poll::Ready(ContentPiece::End(match &pipe.trailer_filter {
                Some(filter) => trailers.as_deref().and_then(filter),
                None => trailers.clone(),
            })),
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
        pipe.reader_dropped = true;
        if pipe.kept.is_none() {
            pipe.abandon();
        }
    }
}

/// Allows content to be read again from the point at which this was created. While this exists, dropping the reader
/// does not abandon the content.
#[derive(Debug)]
pub struct Rewind(Rc<RefCell<Pipe>>);

impl Rewind {
    /// Returns whether everything that was read is still kept.
    pub fn is_possible(&self) -> bool {
        self.0.borrow().kept.is_some()
    }

    /// As [`RequestContent::arrived_ms`].
    pub fn arrived_ms(&self) -> Option<u64> {
        self.0.borrow().ended_ms
    }

    /// As [`RequestContent::length`].
    pub fn length(&self) -> Option<u64> {
        self.0.borrow().length
    }

    /// Returns a new reader of the content from the beginning. The previous reader must have been dropped. Returns
    /// `None` if more was read than could be kept.
    pub fn content(&self) -> Option<RequestContent> {
        let mut pipe = self.0.borrow_mut();
        let kept = pipe.kept.as_mut().map(|kept| {
            kept.held.set(0);
            std::mem::take(&mut kept.bytes)
        })?;
        pipe.reader_dropped = false;
        if let Some(left_bytes) = &mut pipe.left_bytes {
            *left_bytes += kept.len() as u64;
        }
        pipe.waiting_bytes += kept.len();
        if !kept.is_empty() {
            pipe.pieces.push_front(kept.into());
        }
        Some(RequestContent(Rc::clone(&self.0)))
    }
}

impl Drop for Rewind {
    fn drop(&mut self) {
        let mut pipe = self.0.borrow_mut();
        if pipe.kept.take().is_some() && pipe.reader_dropped {
            pipe.abandon();
        }
    }
}

/// The connection's end of a request's content.
#[derive(Debug)]
pub struct ContentWriter(Rc<RefCell<Pipe>>);

impl ContentWriter {
    /// Returns `Ready` if more content may be written now; otherwise wakes `context` once there is room.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.0.borrow_mut();
        if pipe.reader_gone || pipe.waiting_bytes < BYTES_MAX {
            return Poll::Ready(());
        }
        pipe.writer = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns whether no reader exists and none can be created.
    pub fn is_abandoned(&self) -> bool {
        self.0.borrow().reader_gone
    }

    /// Returns whether the handler that took the content has never polled it.
    pub fn was_never_asked(&self) -> bool {
        !self.0.borrow().asked
    }

    /// Passes `bytes` to the reader.
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

    /// Marks the content as complete, with its trailer field lines.
    pub fn end(self, trailers: Option<Rc<[u8]>>) {
        self.finish(ContentEnd::Whole(trailers));
    }

    /// Marks the content as incomplete, for `reason`.
    pub fn cut(self, reason: CloseReason) {
        self.finish(ContentEnd::Cut(reason));
    }

    fn finish(&self, ended: ContentEnd) {
        let mut pipe = self.0.borrow_mut();
        if pipe.ended.is_none() {
            pipe.ended = Some(ended);
            pipe.ended_ms = Some(monotonic_ms());
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

/// Creates both ends of a content channel. `length` is the length in bytes, if known.
pub fn content_channel(length: Option<u64>) -> (ContentWriter, RequestContent) {
    new_channel(length, false)
}

fn new_channel(length: Option<u64>, expects_continue: bool) -> (ContentWriter, RequestContent) {
    let pipe = Rc::new(RefCell::new(Pipe { length, expects_continue, ..Pipe::default() }));
    (ContentWriter(Rc::clone(&pipe)), RequestContent(pipe))
}

/// An interim (1xx) response on its way to the client.
#[derive(Clone, Debug)]
pub struct InterimResponse {
    /// Status code from 102 to 199. The connection itself sends 100 (Continue), and 101 is not an interim response.
    pub status: u16,
    /// Field lines, each as `Name: value` and CR LF.
    pub lines: Rc<[u8]>,
}

/// Sends interim responses before the final response.
#[derive(Clone, Debug, Default)]
pub struct Interims(Rc<RefCell<InterimQueue>>);

#[derive(Debug, Default)]
struct InterimQueue {
    waiting: VecDeque<InterimResponse>,
    writer: Option<Waker>,
}

impl Interims {
    /// Queues `response`, to be sent before the final response. It is not sent to HTTP/1.0 clients, which do not
    /// understand interim responses (RFC 9110 §15.2).
    pub fn send(&self, response: InterimResponse) {
        let mut queue = self.0.borrow_mut();
        if queue.waiting.len() < INTERIMS_MAX {
            queue.waiting.push_back(response);
        }
        if let Some(writer) = queue.writer.take() {
            writer.wake();
        }
    }

    /// Returns the next queued response, if there is one.
    pub fn take_next(&self) -> Option<InterimResponse> {
        self.0.borrow_mut().waiting.pop_front()
    }

    /// Returns the next queued response, or wakes `context` when there is one.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<InterimResponse> {
        let mut queue = self.0.borrow_mut();
        if let Some(response) = queue.waiting.pop_front() {
            return Poll::Ready(response);
        }
        if !queue.writer.as_ref().is_some_and(|writer| writer.will_wake(context.waker())) {
            queue.writer = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

/// Features of a request that a handler may use in addition to the head. Unused features cost nothing.
#[derive(Debug, Default)]
pub struct Offers {
    has_content: bool,
    behind: bool,
    expects_continue: bool,
    length: Option<u64>,
    writer: RefCell<Option<ContentWriter>>,
    /// Content that an earlier handler took on behalf of a later one.
    carried: RefCell<Option<RequestContent>>,
    taken: Cell<bool>,
    interims: RefCell<Option<Interims>>,
}

impl Offers {
    /// Creates the features of a request without content.
    pub const fn new() -> Self {
        Self::with(false, None)
    }

    /// Creates the features of a request with content. `length` is its length in bytes, if known.
    pub const fn with_content(length: Option<u64>) -> Self {
        Self::with(true, length)
    }

    /// Sets whether the client waits for 100 (Continue): see [`RequestContent::expects_continue`].
    #[must_use]
    pub const fn expecting_continue(mut self, expects: bool) -> Self {
        self.expects_continue = expects;
        self
    }

    /// Marks the response as possibly delayed, because other responses are sent first or the client may have
    /// disconnected already.
    #[must_use]
    pub fn behind(mut self) -> Self {
        self.behind = true;
        self
    }

    /// Returns whether the response may be delayed before it is first polled. A handler should not acquire scarce
    /// resources before the first poll.
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// Creates the features of a request that this process generated, with its complete content.
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
            expects_continue: false,
            length,
            writer: RefCell::new(None),
            carried: RefCell::new(None),
            taken: Cell::new(false),
            interims: RefCell::new(None),
        }
    }

    /// Moves the features to a handler that runs later, so that the content is held for it instead of being discarded.
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

    /// Returns the length of the content in bytes, if the request declares it.
    pub const fn content_length(&self) -> Option<u64> {
        self.length
    }

    /// Takes the request's content, to be read by a [`Reply::Later`](crate::handler::Reply::Later). Returns `None` if
    /// there is no content or it was already taken. Content that is not taken is read and discarded before the response
    /// is sent.
    pub fn take_content(&self) -> Option<RequestContent> {
        if let Some(content) = self.carried.borrow_mut().take() {
            return Some(content);
        }
        if !self.has_content || self.taken.replace(true) {
            return None;
        }
        let (writer, content) = new_channel(self.length, self.expects_continue);
        *self.writer.borrow_mut() = Some(writer);
        Some(content)
    }

    /// Takes the request's content, limited to `bytes_max` bytes as in [`RequestContent::up_to`].
    ///
    /// # Errors
    ///
    /// [`CloseReason::ContentTooLarge`] if the request declares a greater length.
    pub fn take_content_up_to(&self, bytes_max: u64) -> Result<Option<RequestContent>, CloseReason> {
        self.take_content().map(|content| content.up_to(bytes_max)).transpose()
    }

    /// Returns a sender of interim responses, for use by a [`Reply::Later`](crate::handler::Reply::Later).
    pub fn interims(&self) -> Interims {
        self.interims.borrow_mut().get_or_insert_with(Interims::default).clone()
    }

    /// Takes the connection's end of the content, if a handler took the content.
    pub fn writer(&self) -> Option<ContentWriter> {
        self.writer.borrow_mut().take()
    }

    /// Takes the connection's end of interim responses, if a handler took the sender.
    pub fn taken_interims(&self) -> Option<Interims> {
        self.interims.borrow_mut().take()
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentPiece, Offers, REWIND_BYTES_MAX, RequestContent, content_channel};
    use crate::budget::{Budget, BudgetUser};
    use crate::ending::CloseReason;
    use flatout_os::clock::monotonic_ms;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    fn read(content: &RequestContent) -> Vec<u8> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut read = Vec::new();
        while let Poll::Ready(ContentPiece::Bytes(bytes)) = content.poll_piece(context) {
            read.extend_from_slice(&bytes);
        }
        read
    }

    #[test]
    fn content_is_read_again_from_its_beginning() {
        let (writer, content) = content_channel(None);
        let content = content.up_to(6).unwrap();
        let rewind = content.rewind(&Arc::default());
        writer.write(b"ab".to_vec().into());
        assert_eq!(read(&content), b"ab");
        writer.write(b"cd".to_vec().into());
        drop(content);
        assert!(!writer.is_abandoned() && rewind.is_possible());
        let content = rewind.content().unwrap();
        assert_eq!(read(&content), b"abcd");
        drop(content);
        let content = rewind.content().unwrap();
        writer.write(b"ef".to_vec().into());
        assert_eq!(read(&content), b"abcdef");
        drop(rewind);
        assert!(!writer.is_abandoned());
        drop(content);
        assert!(writer.is_abandoned());
    }

    #[test]
    fn content_has_arrived_when_it_has_ended() {
        for is_cut in [false, true] {
            let (writer, content) = content_channel(None);
            let rewind = content.rewind(&Arc::default());
            writer.write(b"ab".to_vec().into());
            assert_eq!((content.arrived_ms(), rewind.arrived_ms()), (None, None));
            if is_cut {
                writer.cut(CloseReason::ClientReset);
            } else {
                writer.end(None);
            }
            let arrived_ms = content.arrived_ms();
            assert!(arrived_ms.is_some_and(|ms| ms <= monotonic_ms()));
            // Reading it does not change that, nor does another reader.
            assert_eq!(read(&content), b"ab");
            drop(content);
            assert_eq!((rewind.arrived_ms(), rewind.content().unwrap().arrived_ms()), (arrived_ms, arrived_ms));
        }
    }

    #[test]
    fn content_of_which_too_much_was_read_is_not_read_again() {
        for (bytes, is_possible) in [(REWIND_BYTES_MAX, true), (REWIND_BYTES_MAX + 1, false)] {
            let (writer, content) = content_channel(None);
            let rewind = content.rewind(&Arc::default());
            writer.write(vec![0; bytes].into());
            assert_eq!(read(&content).len(), bytes);
            drop(content);
            assert_eq!((rewind.is_possible(), writer.is_abandoned()), (is_possible, !is_possible));
            assert_eq!(rewind.content().is_some(), is_possible);
        }
        // Without a reader, dropping the rewind abandons the content.
        let (writer, content) = content_channel(None);
        let rewind = content.rewind(&Arc::default());
        drop(content);
        drop(rewind);
        assert!(writer.is_abandoned());
    }

    #[test]
    fn content_is_kept_within_the_budget() {
        let budget = Arc::new(Budget::new(20));
        let held = || budget.held(BudgetUser::Retries);
        let (writer, content) = content_channel(None);
        let rewind = content.rewind(&budget);
        writer.write(b"abcd".to_vec().into());
        assert_eq!((read(&content).len(), held()), (4, 4));
        drop(content);
        let content = rewind.content().unwrap();
        assert_eq!(held(), 0);
        assert_eq!((read(&content).len(), held()), (4, 4));
        // Only half of the budget is for content in flight.
        writer.write(vec![0; 7].into());
        assert_eq!((read(&content).len(), held(), rewind.is_possible()), (7, 0, false));
        let (writer, content) = content_channel(None);
        let rewind = content.rewind(&budget);
        writer.write(b"abcd".to_vec().into());
        assert_eq!((read(&content).len(), held()), (4, 4));
        drop(rewind);
        assert_eq!(held(), 0);
    }

    #[test]
    fn an_expectation_holds_until_the_content_is_polled() {
        let context = &mut Context::from_waker(Waker::noop());
        let offers = Offers::with_content(Some(2)).expecting_continue(true);
        let content = offers.take_content().unwrap();
        let writer = offers.writer().unwrap();
        assert!(content.expects_continue() && content.poll_arrival(context).is_pending() && writer.was_never_asked());
        // A second reader after a failed attempt.
        let rewind = content.rewind(&Arc::default());
        drop(content);
        let content = rewind.content().unwrap();
        assert!(content.expects_continue());
        assert!(content.poll_piece(context).is_pending());
        assert!(!content.expects_continue() && !writer.was_never_asked());
        // The client may send its content without waiting.
        let offers = Offers::with_content(Some(2)).expecting_continue(true);
        let (content, writer) = (offers.take_content().unwrap(), offers.writer().unwrap());
        writer.write(b"ab".to_vec().into());
        assert!(content.poll_arrival(context).is_ready() && content.expects_continue());
        let (writer, content) = content_channel(None);
        writer.cut(CloseReason::ClientReset);
        assert!(content.poll_arrival(context).is_ready() && !content.expects_continue());
    }

    #[test]
    fn content_beyond_the_limit_is_refused_or_cut() {
        let context = &mut Context::from_waker(Waker::noop());
        for (bytes_max, is_refused) in [(3, true), (4, false), (u64::MAX, false)] {
            let offers = Offers::with_bytes(b"abcd".to_vec().into());
            let refused = offers.take_content_up_to(bytes_max).err();
            assert_eq!(refused, is_refused.then_some(CloseReason::ContentTooLarge), "{bytes_max}");
        }
        let (writer, content) = content_channel(None);
        let content = content.up_to(4).unwrap();
        for bytes in ["ab", "cd", "e"] {
            writer.write(bytes.as_bytes().to_vec().into());
        }
        for expected in ["ab", "cd"] {
            let Poll::Ready(ContentPiece::Bytes(bytes)) = content.poll_piece(context) else { panic!("{expected}") };
            assert_eq!(&bytes[..], expected.as_bytes());
        }
        writer.write(b"f".to_vec().into());
        writer.end(None);
        for _ in 0..3 {
            let piece = content.poll_piece(context);
            assert!(matches!(piece, Poll::Ready(ContentPiece::Cut(CloseReason::ContentTooLarge))), "{piece:?}");
        }
    }
}
