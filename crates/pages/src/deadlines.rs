//! Deadlines of waiting runs: one timer per worker, which ticks while any run waits.
//!
//! A waiting run has an entry with the moment at which its driver is to be woken. The driver checks the time and ends
//! the run; this module does not access runs.

use flatout_net::clock::Now;
use flatout_net::timer::Timer;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use tokio::task::spawn_local;

/// Interval of the timer, in milliseconds: a run may end this late.
const TICK_MS: u64 = 100;

/// The waiting runs of one worker.
#[derive(Default)]
pub(crate) struct Deadlines {
    places: RefCell<Places>,
    is_ticking: Cell<bool>,
}

#[derive(Default)]
struct Places {
    all: Vec<Option<PendingDeadline>>,
    free: Vec<usize>,
}

struct PendingDeadline {
    due_ms: u64,
    waker: Waker,
}

/// An entry, freed on drop.
pub(crate) struct Deadline {
    of: Rc<Deadlines>,
    at: usize,
}

impl Deadlines {
    /// An entry for a run to be woken at `due_ms` on the monotonic clock. Must be called within the worker's runtime.
    pub(crate) fn wait(self: &Rc<Self>, due_ms: u64, waker: &Waker) -> Deadline {
        if !self.is_ticking.replace(true) {
            spawn_local(tick(Rc::clone(self)));
        }
        Deadline {
            at: self.places.borrow_mut().add(PendingDeadline { due_ms, waker: waker.clone() }),
            of: Rc::clone(self),
        }
    }

    /// Wakes runs whose time has come; returns whether any are left.
    fn sweep(&self, now_ms: u64) -> bool {
        let due: Vec<Waker> = {
            let places = self.places.borrow();
            let waiting = places.all.iter().flatten().filter(|waiting| waiting.due_ms <= now_ms);
            waiting.map(|waiting| waiting.waker.clone()).collect()
        };
        // A waker may run arbitrary code, including calls to this table.
        due.into_iter().for_each(Waker::wake);
        let places = self.places.borrow();
        places.free.len() < places.all.len()
    }
}

impl Places {
    fn add(&mut self, waiting: PendingDeadline) -> usize {
        if let Some(at) = self.free.pop() {
            self.all[at] = Some(waiting);
            return at;
        }
        self.all.push(Some(waiting));
        self.all.len() - 1
    }
}

impl Deadline {
    /// Changes the moment and the waker.
    pub(crate) fn renew(&self, due_ms: u64, waker: &Waker) {
        if let Some(waiting) = &mut self.of.places.borrow_mut().all[self.at] {
            waiting.due_ms = due_ms;
            waiting.waker.clone_from(waker);
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut places = self.of.places.borrow_mut();
        places.all[self.at] = None;
        places.free.push(self.at);
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Deadline").field("at", &self.at).finish_non_exhaustive()
    }
}

/// Ticks while entries exist. If no timer can be created, the next run tries again.
async fn tick(deadlines: Rc<Deadlines>) {
    if let Ok(timer) = Timer::new()
        && timer.set_interval(TICK_MS).is_ok()
    {
        while timer.tick().await.is_ok() && deadlines.sweep(Now::read().monotonic_ms) {}
    }
    deadlines.is_ticking.set(false);
}

#[cfg(test)]
mod tests {
    use super::Deadlines;
    use flatout_net::runtime::build_runtime;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_is_due_is_woken() {
        build_runtime().unwrap().block_on(async {
            let deadlines = Rc::new(Deadlines::default());
            let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
            let woken = || counts.iter().map(|count| count.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
            // Far behind what the clock of this machine says, lest it ticks in between.
            let start = u64::MAX / 2;
            let mut waiting: Vec<_> = (start..)
                .zip(&counts)
                .map(|(due_ms, count)| deadlines.wait(due_ms, &Waker::from(Arc::clone(count))))
                .collect();
            assert!(deadlines.sweep(start - 1));
            assert_eq!(woken(), [0, 0, 0]);
            assert!(deadlines.sweep(start + 1));
            assert_eq!(woken(), [1, 1, 0]);
            waiting[0].renew(start + 9, &Waker::from(Arc::clone(&counts[2])));
            drop(waiting.remove(1));
            assert!(deadlines.sweep(start + 2));
            assert_eq!(woken(), [1, 1, 1]);
            assert!(deadlines.sweep(start + 9));
            assert_eq!(woken(), [1, 1, 3]);
            drop(waiting);
            assert!(!deadlines.sweep(u64::MAX));
            let again = deadlines.wait(start, Waker::noop());
            assert_eq!(deadlines.places.borrow().all.len(), 3);
            drop(again);
        });
    }
}
