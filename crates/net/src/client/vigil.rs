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
use std::pin::pin;
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
    /// How often anything was done that no other count tells.
    steps: Cell<u64>,
}

impl Vigil {
    /// Ends the sleep of who keeps watch. Costs a comparison where nobody sleeps.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.sleeper.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Each step of this is work. What passes between its steps is not.
    pub(super) async fn work<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        poll_fn(|context| {
            self.step();
            task.as_mut().poll(context)
        })
        .await
    }

    /// Something is done.
    pub(super) fn step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    /// CPU time in which nothing was done but staying awake.
    pub(super) fn awake_ns(&self) -> u64 {
        self.awake_ns.get()
    }
}

/// Keeps watch until it is dropped: sleeps while nothing is near, and otherwise has the runtime look at its sockets without
/// waiting.
pub(super) async fn keep<D: Drive + 'static>(shared: Rc<Shared<D>>) {
    // By the thread's own CPU time: while another thread has the core, nobody is awake here.
    let mark = || (thread_cpu_ns(), work(&shared));
    let mut last = mark();
    loop {
        let mut has_slept = false;
        poll_fn(|context| {
            if shared.under_way.get() > 0 || shared.pacer.is_near(precise_ns()) {
                return Poll::Ready(());
            }
            *shared.vigil.sleeper.borrow_mut() = Some(context.waker().clone());
            has_slept = true;
            Poll::Pending
        })
        .await;
        if has_slept {
            last = mark();
        }
        tokio::task::yield_now().await;
        // From one mark to the next, so that nothing of a turn in which nothing was done is left out.
        let now = mark();
        if now.1 == last.1 {
            let awake_ns = now.0.saturating_sub(last.0);
            shared.vigil.awake_ns.set(shared.vigil.awake_ns.get() + awake_ns);
        }
        last = now;
        let now_ns = precise_ns();
        if shared.pacer.take_due(now_ns) {
            shared.vigil.step();
            let own = shared.dispatch(now_ns, None);
            debug_assert!(own.is_none());
        }
    }
}

/// What changes with anything that is done.
fn work<D: Drive>(shared: &Shared<D>) -> (u64, u64, u64, u32) {
    (shared.vigil.steps.get(), shared.room.borrow().uses, shared.under_way.get(), shared.connections.get())
}
