//! A slot, which holds one connection or one stream of a shared connection.

use super::deadline::{Deadline, SlotDeadlines};
use super::failure::RequestFailure;
use flatout_load::schedule::Begin;
use flatout_net::waker::WakerCell;
use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};

/// One slot of a worker. Its task starts with its first burst.
#[derive(Debug)]
pub(super) struct ClientSlot {
    pub(super) index: u32,
    pub(super) deadline: Deadline,
    begins: Cell<Option<Begin>>,
    has_task: Cell<bool>,
    /// True if the slot's connection must be closed.
    closes: Cell<bool>,
    /// True if the server permits no stream for the slot.
    pub(super) is_unusable: Cell<bool>,
    waker: WakerCell,
}

impl ClientSlot {
    pub(super) fn new(index: u32, deadlines: &SlotDeadlines) -> Self {
        Self {
            index,
            deadline: Deadline::new(deadlines, index),
            begins: Cell::new(None),
            has_task: Cell::new(false),
            closes: Cell::new(false),
            is_unusable: Cell::new(false),
            waker: WakerCell::default(),
        }
    }

    /// Hands over a burst. Returns whether a task must be started for the slot.
    pub(super) fn give(&self, begin: Begin) -> bool {
        let before = self.begins.replace(Some(begin));
        debug_assert!(before.is_none(), "a slot is given one burst at a time");
        self.waker.wake();
        !self.has_task.replace(true)
    }

    /// Takes the burst that was handed over, if any.
    pub(super) fn take(&self) -> Option<Begin> {
        self.begins.take()
    }

    /// Requests that the slot's connection be closed, unless a burst starts on it first.
    pub(super) fn close(&self) {
        self.closes.set(true);
        self.waker.wake();
    }

    /// Returns whether the slot's connection must be closed, and clears the request.
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

    /// Waits for a burst, or for a request to close the connection; `None` for the latter.
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

    /// Registers the waker for a burst, a request to close, or an abort.
    pub(super) fn register(&self, context: &Context<'_>) {
        self.waker.register(context);
    }

    /// Aborts the exchange in progress.
    pub(super) fn cut(&self, why: RequestFailure) {
        if self.deadline.cut_now(why) {
            self.waker.wake();
        }
    }
}
