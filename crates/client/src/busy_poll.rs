//! Busy polling while a response is awaited, and shortly before a burst is due.
//!
//! A sleeping core is woken by an interrupt and, on a virtual machine, also by the hypervisor. That takes ten to over a
//! hundred microseconds, all of which would count as the server's time. A polling worker checks its sockets
//! continuously instead. CPU time spent on polling is not work, so it is counted separately.

use super::Drive;
use super::worker::{ClientShared, thread_cpu_ns};
use flatout_os::clock::precise_ns;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Time by which a worker wakes before a burst is due, in nanoseconds. Twice the wake-up time measured for a sleeping
/// core of a virtual machine (120 µs at p90).
pub(super) const EARLY_NS: u64 = 250_000;

/// State of busy polling, and the CPU time it has used.
#[derive(Debug, Default)]
pub(super) struct BusyPolling {
    sleeper: RefCell<Option<Waker>>,
    awake_ns: Cell<u64>,
    /// Number of steps of work that no other counter reflects.
    steps: Cell<u64>,
}

impl BusyPolling {
    /// Wakes the polling task if it is asleep; otherwise costs one comparison.
    pub(super) fn wake(&self) {
        if let Some(waker) = self.sleeper.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Runs `task` and counts each poll of it as work. The time between polls is not work.
    pub(super) async fn work<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        poll_fn(|context| {
            self.step();
            task.as_mut().poll(context)
        })
        .await
    }

    /// Counts a step of work.
    pub(super) fn step(&self) {
        self.steps.set(self.steps.get() + 1);
    }

    /// Returns the CPU time spent only on polling, in nanoseconds.
    pub(super) fn awake_ns(&self) -> u64 {
        self.awake_ns.get()
    }
}

/// Polls until dropped. Sleeps while no burst is in progress or nearly due; otherwise makes the runtime check its
/// sockets without waiting.
pub(super) async fn keep<D: Drive + 'static>(shared: Rc<ClientShared<D>>) {
    // Measure in the thread's own CPU time: while another thread uses the core, this thread does not poll.
    let mark = || (thread_cpu_ns(), work(&shared));
    let mut last = mark();
    loop {
        let mut has_slept = false;
        poll_fn(|context| {
            if shared.under_way.get() > 0 || shared.pacer.is_near(precise_ns()) {
                return Poll::Ready(());
            }
            *shared.busy_polling.sleeper.borrow_mut() = Some(context.waker().clone());
            has_slept = true;
            Poll::Pending
        })
        .await;
        if has_slept {
            last = mark();
        }
        tokio::task::yield_now().await;
        // Measure from one mark to the next, so that every turn without work is included completely.
        let now = mark();
        if now.1 == last.1 {
            let awake_ns = now.0.saturating_sub(last.0);
            shared.busy_polling.awake_ns.set(shared.busy_polling.awake_ns.get() + awake_ns);
        }
        last = now;
        let now_ns = precise_ns();
        if shared.pacer.take_due(now_ns) {
            shared.busy_polling.step();
            let own = shared.dispatch(now_ns, None);
            debug_assert!(own.is_none());
        }
    }
}

/// Returns a value that changes whenever the worker does any work.
fn work<D: Drive>(shared: &ClientShared<D>) -> (u64, u64, u64, u32) {
    (shared.busy_polling.steps.get(), shared.room.borrow().uses, shared.under_way.get(), shared.connections.get())
}
