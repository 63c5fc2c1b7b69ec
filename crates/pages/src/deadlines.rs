//! By when runs that wait must have ended: one clock a worker, which ticks as long as any of them waits.
//!
//! A run that waits has a place here with the moment at which its driver is to be woken. The driver itself looks at the
//! clock and ends the run: in here nobody knows what a run is.

use flatout_net::clock::Now;
use flatout_net::timer::Timer;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use tokio::task::spawn_local;

/// How often the clock ticks, in milliseconds: so late a run may be ended.
const TICK_MS: u64 = 100;

/// The runs of one worker that wait.
#[derive(Default)]
pub(crate) struct Deadlines {
    places: RefCell<Places>,
    is_ticking: Cell<bool>,
}

#[derive(Default)]
struct Places {
    all: Vec<Option<Waiting>>,
    free: Vec<usize>,
}

struct Waiting {
    due_ms: u64,
    waker: Waker,
}

/// A place, given back when it is dropped.
pub(crate) struct Deadline {
    of: Rc<Deadlines>,
    at: usize,
}

impl Deadlines {
    /// A place for a run that is to be woken at `due_ms` on the monotonic clock. Must be called within the worker's runtime.
    pub(crate) fn wait(self: &Rc<Self>, due_ms: u64, waker: &Waker) -> Deadline {
        if !self.is_ticking.replace(true) {
            spawn_local(tick(Rc::clone(self)));
        }
        Deadline { at: self.places.borrow_mut().add(Waiting { due_ms, waker: waker.clone() }), of: Rc::clone(self) }
    }

    /// Wakes those whose time has come; whether anybody waits.
    fn sweep(&self, now_ms: u64) -> bool {
        let due: Vec<Waker> = {
            let places = self.places.borrow();
            let waiting = places.all.iter().flatten().filter(|waiting| waiting.due_ms <= now_ms);
            waiting.map(|waiting| waiting.waker.clone()).collect()
        };
        // A waker may be anything, also something that waits here.
        due.into_iter().for_each(Waker::wake);
        let places = self.places.borrow();
        places.free.len() < places.all.len()
    }
}

impl Places {
    fn add(&mut self, waiting: Waiting) -> usize {
        if let Some(at) = self.free.pop() {
            self.all[at] = Some(waiting);
            return at;
        }
        self.all.push(Some(waiting));
        self.all.len() - 1
    }
}

impl Deadline {
    /// The same with another moment, or another waker.
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

/// Ticks until nobody waits. A worker that can have no timer now tries again with the next run.
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
