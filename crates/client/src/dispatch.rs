//! Handing over due bursts to slots.

use super::Drive;
use super::failure::RequestFailure;
use super::worker::ClientShared;
use super::{connection, streams};
use flatout_load::schedule::{Begin, Move};
use flatout_net::deadlines::NEVER;
use flatout_os::clock::precise_ns;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};

impl<D: Drive + 'static> ClientShared<D> {
    /// Starts every burst that is due at `now_ns`. A burst for the slot `asking` is returned instead of handed over.
    pub(super) fn dispatch(self: &Rc<Self>, now_ns: u64, asking: Option<u32>) -> Option<Begin> {
        let mut own = None;
        while !self.done.get() {
            let next = self.drive.borrow_mut().next(now_ns);
            match next {
                Move::Begin(begin) => {
                    self.begun();
                    if asking == Some(begin.slot) && own.is_none() {
                        own = Some(begin);
                    } else {
                        self.give(begin);
                    }
                }
                Move::Close(slot) => {
                    if let Some(slot) = self.slots.get(slot as usize) {
                        slot.close();
                    }
                }
                Move::DropClient(number) => self.cookies.borrow_mut().drop_client(number),
                Move::WaitUntil(due_ns) => {
                    if let Err(error) = self.pacer.set(due_ns) {
                        self.break_off(error);
                    }
                    break;
                }
                Move::Idle => break,
                Move::Done => {
                    self.done.set(true);
                    self.main.wake();
                }
            }
        }
        own
    }

    /// Returns the next burst of a slot after all responses of a burst have arrived.
    pub(super) fn after_answers(self: &Rc<Self>, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin> {
        let at_once = self.drive.borrow_mut().handle_answered(slot, now_ns, is_open);
        self.ended();
        let Some(begin) = at_once else { return self.dispatch(now_ns, Some(slot)) };
        self.begun();
        if begin.slot != slot {
            // An open loop may continue on another connection, for example on that of a client.
            self.give(begin);
            return self.dispatch(now_ns, Some(slot));
        }
        if self.pacer.is_due(now_ns) {
            // Start the bursts of other slots now: they must not wait until this slot is idle.
            let other = self.dispatch(now_ns, None);
            debug_assert!(other.is_none());
        }
        Some(begin)
    }

    /// Returns the next burst of a slot after a failed burst. `connected` is true if the slot had a connection.
    pub(super) fn after_failure(self: &Rc<Self>, slot: u32, now_ns: u64, connected: bool) -> Option<Begin> {
        self.drive.borrow_mut().handle_failed(slot, now_ns, connected);
        self.ended();
        self.dispatch(now_ns, Some(slot))
    }

    /// Withdraws a burst that has not started, and whose slot has no stream.
    pub(super) fn withdraw(self: &Rc<Self>, begin: &Begin, streams_max: u32, now_ns: u64) {
        self.slots[begin.slot as usize].is_unusable.set(true);
        self.drive.borrow_mut().handle_unusable(begin, streams_max);
        self.dispatch_again(now_ns);
        self.ended();
    }

    /// Uses the withdrawn slots with these indexes, because the server now permits `streams_max` streams.
    pub(super) fn use_again(self: &Rc<Self>, slots: Range<u32>, streams_max: u32) {
        let now_ns = precise_ns();
        for slot in &self.slots[slots.start as usize..(slots.end as usize).min(self.slots.len())] {
            if slot.is_unusable.take() {
                self.drive.borrow_mut().handle_usable(slot.index, streams_max, now_ns);
            }
        }
        self.dispatch_again(now_ns);
    }

    /// Starts due bursts, even if the schedule was done: bursts that it had handed over may have been withdrawn.
    fn dispatch_again(self: &Rc<Self>, now_ns: u64) {
        self.done.set(false);
        let own = self.dispatch(now_ns, None);
        debug_assert!(own.is_none());
    }

    fn give(self: &Rc<Self>, begin: Begin) {
        let Some(slot) = self.slots.get(begin.slot as usize) else {
            self.break_off(io::Error::other("the schedule names a slot that does not exist"));
            return;
        };
        if !slot.give(begin) {
            return;
        }
        let (shared, slot) = (Rc::clone(self), Rc::clone(slot));
        if self.settings.streams.is_some() {
            tokio::task::spawn_local(streams::run_slot(shared, slot));
        } else {
            tokio::task::spawn_local(connection::run_slot(shared, slot));
        }
    }

    /// Continues until no more bursts will start, and all bursts that were started have ended.
    pub(super) fn poll_run(self: &Rc<Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.main.register(context);
        loop {
            if let Some(error) = self.broken.take() {
                return Poll::Ready(Err(error));
            }
            if self.done.get() && self.under_way.get() == 0 {
                return Poll::Ready(Ok(()));
            }
            match self.pacer.poll_ring(context) {
                Poll::Ready(Ok(())) => {
                    let now_ns = precise_ns();
                    if self.pacer.take_due(now_ns) {
                        let own = self.dispatch(now_ns, None);
                        debug_assert!(own.is_none());
                    } else {
                        self.busy_polling.wake();
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    pub(super) fn handle_interrupt(self: &Rc<Self>) {
        self.interrupts.set(self.interrupts.get() + 1);
        self.drive.borrow_mut().handle_interrupt();
        let own = self.dispatch(precise_ns(), None);
        debug_assert!(own.is_none());
        if self.is_abandoned() {
            self.cut_due(NEVER - 1, RequestFailure::Abandoned);
        }
    }
}
