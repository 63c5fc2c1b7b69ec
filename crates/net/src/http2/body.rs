//! Response bodies on streams: shared bytes or file contents, handed to the protocol machine without a copy. The fate
//! of a response's last piece shows how the response ended.

use crate::access::Staged;
use crate::ending::CloseReason;
use crate::shared::SharedBytes;
use bytes::Buf;
use h2::RecvStream;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseEnd {
    /// It was written completely.
    Sent,
    /// Its stream or its connection ended first.
    Cut,
    /// Its content could not be read.
    Failed(CloseReason),
}

/// How the responses of one connection ended.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Responses whose last piece is queued in the protocol machine.
    unsent: Cell<usize>,
    /// Bytes of content sent.
    sent_bytes: Cell<u64>,
    /// Responses dropped before they were sent.
    cut: Cell<u64>,
    /// Log lines with the ending of their response.
    ended: RefCell<Vec<(Staged, ResponseEnd)>>,
    /// Unread content of requests whose response was sent.
    rests: RefCell<Vec<RecvStream>>,
}

impl Endings {
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.get()
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.get()
    }

    pub(crate) fn take_cut(&self) -> u64 {
        self.cut.take()
    }

    pub(crate) fn take_ended(&self) -> Vec<(Staged, ResponseEnd)> {
        if self.ended.borrow().is_empty() { Vec::new() } else { self.ended.take() }
    }

    pub(crate) fn take_rests(&self) -> Vec<RecvStream> {
        if self.rests.borrow().is_empty() { Vec::new() } else { self.rests.take() }
    }

    /// Records the end of the response whose log lines are `staged`.
    pub(crate) fn add(&self, staged: Staged, ended: ResponseEnd) {
        if ended != ResponseEnd::Sent {
            self.cut.set(self.cut.get() + 1);
        }
        if !staged.is_empty() {
            self.ended.borrow_mut().push((staged, ended));
        }
    }
}

enum Bytes {
    Shared(SharedBytes),
    Owned { bytes: Vec<u8>, at: usize },
}

/// The last piece of a response, whose end is also the response's.
struct LastPiece {
    staged: Staged,
    /// The unread rest of the request's content.
    rest: Option<RecvStream>,
}

/// A piece of a response's content.
pub(crate) struct SendBody {
    bytes: Bytes,
    last: Option<Box<LastPiece>>,
    endings: Rc<Endings>,
    /// Counts the sent bytes of a response that cannot rely on its last piece.
    counter: Option<Rc<Cell<u64>>>,
}

impl SendBody {
    pub(crate) fn shared(bytes: SharedBytes, endings: &Rc<Endings>) -> Self {
        Self { bytes: Bytes::Shared(bytes), last: None, endings: Rc::clone(endings), counter: None }
    }

    pub(crate) fn owned(bytes: Vec<u8>, endings: &Rc<Endings>) -> Self {
        Self { bytes: Bytes::Owned { bytes, at: 0 }, last: None, endings: Rc::clone(endings), counter: None }
    }

    /// The same piece, counted in `counter` when it is sent.
    pub(crate) fn counted(mut self, counter: &Rc<Cell<u64>>) -> Self {
        self.counter = Some(Rc::clone(counter));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.chunk().len()
    }

    /// The same piece as the response's last, with its log lines.
    pub(crate) fn last(mut self, staged: Staged) -> Self {
        self.endings.unsent.set(self.endings.unsent.get() + 1);
        self.last = Some(Box::new(LastPiece { staged, rest: None }));
        self
    }

    /// The same piece with the rest of the request's content, which is released some time after the piece.
    pub(crate) fn holding(mut self, rest: Option<RecvStream>) -> Self {
        if let Some(last) = &mut self.last {
            last.rest = rest;
        }
        self
    }
}

impl Buf for SendBody {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared(bytes) => bytes,
            Bytes::Owned { bytes, at } => &bytes[*at..],
        }
    }

    fn advance(&mut self, count: usize) {
        self.endings.sent_bytes.set(self.endings.sent_bytes.get() + count as u64);
        if let Some(counter) = &self.counter {
            counter.set(counter.get() + count as u64);
        }
        match &mut self.bytes {
            Bytes::Shared(bytes) => bytes.advance(count),
            Bytes::Owned { bytes, at } => *at = (*at + count).min(bytes.len()),
        }
    }
}

impl Drop for SendBody {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            self.endings.unsent.set(self.endings.unsent.get().saturating_sub(1));
            self.endings.rests.borrow_mut().extend(last.rest);
            self.endings.add(last.staged, if self.has_remaining() { ResponseEnd::Cut } else { ResponseEnd::Sent });
        }
    }
}

impl fmt::Debug for SendBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SendBody({} bytes)", self.remaining())
    }
}
