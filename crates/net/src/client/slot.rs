//! A place for one connection, or for one stream of a shared one.

use super::Begin;
use super::deadline::Deadline;
use super::failure::Failure;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// One slot. Its task is begun with its first burst.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) index: u32,
    pub(super) deadline: Deadline,
    begins: Cell<Option<Begin>>,
    has_task: Cell<bool>,
    /// Whether its connection is to be closed.
    closes: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
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

    /// Gives it a burst to begin; says whether a task must be begun for it.
    pub(super) fn give(&self, begin: Begin) -> bool {
        let before = self.begins.replace(Some(begin));
        debug_assert!(before.is_none(), "a slot is given one burst at a time");
        self.wake();
        !self.has_task.replace(true)
    }

    /// What it was given.
    pub(super) fn take(&self) -> Option<Begin> {
        self.begins.take()
    }

    /// Closes its connection, if it has one and nothing is begun on it before that.
    pub(super) fn close(&self) {
        self.closes.set(true);
        self.wake();
    }

    /// Whether its connection is to be closed. Says so once.
    pub(super) fn take_close(&self) -> bool {
        self.closes.take()
    }

    /// Waits until it is given something.
    pub(super) async fn wait(&self) -> Begin {
        loop {
            if let Some(begin) = self.wait_or_close().await {
                return begin;
            }
        }
    }

    /// Waits until it is given something, or its connection is to be closed.
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

    /// Whoever waits for it is to be woken when something is given, or cut.
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

    /// Cuts what is under way, if it is late.
    pub(super) fn cut_if_late(&self, now_ns: u64) {
        if self.deadline.is_late(now_ns) {
            self.cut(Failure::TimedOut);
        }
    }

    /// Cuts what is under way.
    pub(super) fn cut(&self, why: Failure) {
        if self.deadline.cut_now(why) {
            self.wake();
        }
    }
}
