//! A slot holds one connection, or one stream of a shared one.

use super::deadline::Deadline;
use super::failure::RequestFailure;
use flatout_load::schedule::Begin;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// One slot. Its task starts with its first burst.
#[derive(Debug)]
pub(super) struct ClientSlot {
    pub(super) index: u32,
    pub(super) deadline: Deadline,
    begins: Cell<Option<Begin>>,
    has_task: Cell<bool>,
    /// True if its connection is to be closed.
    closes: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl ClientSlot {
    pub(super) const fn new(index: u32) -> Self {
        Self {
            index,
            deadline: Deadline::new(),
            begins: Cell::new(None),
            has_task: Cell::new(false),
            closes: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Hands over a burst; returns whether a task must be started for it.
    pub(super) fn give(&self, begin: Begin) -> bool {
        let before = self.begins.replace(Some(begin));
        debug_assert!(before.is_none(), "a slot is given one burst at a time");
        self.wake();
        !self.has_task.replace(true)
    }

    /// Takes the burst that was handed over.
    pub(super) fn take(&self) -> Option<Begin> {
        self.begins.take()
    }

    /// Requests closing its connection, unless a burst starts on it first.
    pub(super) fn close(&self) {
        self.closes.set(true);
        self.wake();
    }

    /// Takes the request to close its connection; returns true once.
    pub(super) fn take_close(&self) -> bool {
        self.closes.take()
    }

    /// Waits for a burst.
    pub(super) async fn wait(&self) -> Begin {
        loop {
            if let Some(begin) = self.wait_or_close().await {
                return begin;
            }
        }
    }

    /// Waits for a burst or a request to close; `None` for the latter.
    pub(super) async fn wait_or_close(&self) -> Option<Begin> {
        poll_fn(|context| {
            let begin = self.take();
            if begin.is_some() || self.take_close() {
                Poll::Ready(begin)
            } else {
                self.register(context);
                Poll::Pending
            }
        })
        .await
    }

    /// Registers the waker for a burst, a close or a cut.
    pub(super) fn register(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Cuts the exchange in progress if it is late.
    pub(super) fn cut_if_late(&self, now_ns: u64) {
        if self.deadline.is_late(now_ns) {
            self.cut(RequestFailure::TimedOut);
        }
    }

    /// Cuts the exchange in progress.
    pub(super) fn cut(&self, why: RequestFailure) {
        if self.deadline.cut_now(why) {
            self.wake();
        }
    }
}
