//! Staying awake while it matters: shortly before something is due, and while an answer is awaited.
//!
//! A core that sleeps is woken by an interrupt, and on a virtual machine by another program besides; that takes from ten to
//! over a hundred microseconds, and all of it would be told as the server's time. A worker that keeps watch looks at its
//! sockets again and again instead. What it spends on that is no work, so it is counted apart.

use super::Drive;
use super::worker::{Shared, thread_cpu_ns};
use crate::clock::precise_ns;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// How long before something is due a worker wakes, in nanoseconds: twice what a sleeping core of a virtual machine was
/// measured to take at the most (120 µs in 90 of 100).
pub(super) const EARLY_NS: u64 = 250_000;

/// Who keeps watch, and for how long all in all.
#[derive(Debug, Default)]
pub(super) struct Vigil {
    sleeper: RefCell<Option<Waker>>,
    awake_ns: Cell<u64>,
    /// Connections being made, and sends that wait for room.
    hands_full: Cell<u32>,
}

impl Vigil {
    /// Ends the sleep of who keeps watch. Costs a comparison where nobody sleeps.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.sleeper.borrow_mut().take() {
            waker.wake();
        }
    }

    /// What is done until the guard is dropped is work, however long it waits.
    pub(super) fn work(&self) -> AtWork<'_> {
        self.hands_full.set(self.hands_full.get() + 1);
        AtWork(self)
    }

    /// CPU time in which nothing was done but staying awake.
    pub(super) fn awake_ns(&self) -> u64 {
        self.awake_ns.get()
    }
}

/// Somebody is at work.
pub(super) struct AtWork<'a>(&'a Vigil);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.hands_full.set(self.0.hands_full.get().saturating_sub(1));
    }
}

/// Keeps watch until it is dropped: sleeps while nothing is near, and otherwise has the runtime look at its sockets without
/// waiting.
pub(super) async fn keep<D: Drive + 'static>(shared: Rc<Shared<D>>) {
    loop {
        poll_fn(|context| {
            if shared.under_way.get() > 0 || shared.pacer.is_near(precise_ns()) {
                return Poll::Ready(());
            }
            *shared.vigil.sleeper.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        // By the thread's own CPU time: while another thread has the core, nobody is awake here.
        let (begun_cpu_ns, before) = (thread_cpu_ns(), work(&shared));
        tokio::task::yield_now().await;
        if before.is_some() && work(&shared) == before {
            let awake_ns = thread_cpu_ns().saturating_sub(begun_cpu_ns);
            shared.vigil.awake_ns.set(shared.vigil.awake_ns.get() + awake_ns);
        }
        let now_ns = precise_ns();
        if shared.pacer.take_due(now_ns) {
            let own = shared.dispatch(now_ns, None);
            debug_assert!(own.is_none());
        }
    }
}

/// What changes with anything that is done. While a connection is being made, everything counts as work: a handshake is
/// done in many steps.
fn work<D: Drive>(shared: &Shared<D>) -> Option<(u64, u64, u32)> {
    let is_busy = shared.vigil.hands_full.get() > 0;
    (!is_busy).then(|| (shared.room.borrow().uses, shared.under_way.get(), shared.connections.get()))
}
