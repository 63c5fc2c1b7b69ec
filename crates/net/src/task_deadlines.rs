//! Deadlines of tasks, in a table that one task scans while any deadline is set.
//!
//! A worker's runtime has no tokio timers, because they would be checked on every turn. Each owner stores its own
//! deadline and is woken after the deadline has passed. A deadline therefore costs one store, and is accurate to the
//! interval of the sweep.

/// Returns the time with which deadlines are compared, in milliseconds on the coarse monotonic clock.
pub use flatout_os::clock::monotonic_ms as now_ms;

use crate::deadlines::{DeadlineId, Deadlines, NEVER};
use flatout_os::timer::Timer;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use tokio::task::spawn_local;

/// The deadlines of one kind of task in one worker.
#[derive(Debug, Default)]
pub struct DeadlineTable {
    deadlines: RefCell<Deadlines<Waker>>,
    /// Notifies the sweep that there is something to check.
    pub changed: Notify,
    resting: Cell<bool>,
    /// True while a task that [`Self::keep_swept`] spawned is running.
    is_swept: Cell<bool>,
}

impl DeadlineTable {
    /// Returns whether no deadline is set.
    pub fn is_empty(&self) -> bool {
        self.deadlines.borrow().is_empty()
    }

    /// Pauses the sweep until the next notification.
    pub fn rest(&self) {
        self.resting.set(true);
    }

    /// Wakes the sweep if it is paused.
    pub fn wake_sweep(&self) {
        if self.resting.replace(false) {
            self.changed.notify_one();
        }
    }

    /// Wakes every owner whose deadline is at or before `now_ms`.
    pub fn handle_time(&self, now_ms: u64) {
        let mut due = Vec::new();
        self.deadlines.borrow_mut().handle_time(now_ms, |waker| {
            due.push(waker.clone());
            true
        });
        // Wakers are called after the borrow, because they may run arbitrary code, including calls to this table.
        due.into_iter().for_each(Waker::wake);
    }

    /// Spawns a task that scans the table every `interval_ms` while deadlines are set, for tables that no other task
    /// scans. Must be called within a worker's runtime. If no timer can be created, the next call tries again.
    pub fn keep_swept(self: &Rc<Self>, interval_ms: u64) {
        if !self.is_swept.replace(true) {
            spawn_local(sweep(Rc::clone(self), interval_ms));
        }
    }

    fn arm(&self, entry: &mut Option<DeadlineId>, deadline_ms: u64, waker: &Waker) {
        let mut deadlines = self.deadlines.borrow_mut();
        let id = *entry.get_or_insert_with(|| {
            self.wake_sweep();
            deadlines.insert(waker.clone())
        });
        deadlines.set(id, deadline_ms);
        let owner = deadlines.owner_mut(id);
        if !owner.will_wake(waker) {
            // Dropped after the borrow, as in `release`.
            let former = std::mem::replace(owner, waker.clone());
            drop(deadlines);
            drop(former);
        }
    }

    fn release(&self, id: DeadlineId) {
        // Dropped after the borrow: the waker may be the last reference to a task, and dropping that task may release
        // another entry.
        let waker = self.deadlines.borrow_mut().remove(id);
        drop(waker);
    }
}

/// Scans `table` until it is empty.
async fn sweep(table: Rc<DeadlineTable>, interval_ms: u64) {
    if let Ok(timer) = Timer::new()
        && timer.set_interval(interval_ms).is_ok()
    {
        while !table.is_empty() && timer.tick().await.is_ok() {
            table.handle_time(now_ms());
        }
    }
    table.is_swept.set(false);
}

/// The timeouts of one owner, one after another.
#[derive(Debug)]
pub struct DeadlineTimer {
    deadlines: Rc<DeadlineTable>,
    entry: Option<DeadlineId>,
    deadline_ms: u64,
}

impl DeadlineTimer {
    /// Creates a timer without a timeout.
    pub fn new(deadlines: &Rc<DeadlineTable>) -> Self {
        Self { deadlines: Rc::clone(deadlines), entry: None, deadline_ms: NEVER }
    }

    /// Starts a wait of at most `timeout_ms`.
    pub fn begin(&mut self, timeout_ms: u64) {
        self.deadline_ms = now_ms().saturating_add(timeout_ms);
    }

    /// Starts a wait that times out at `deadline_ms` on the monotonic clock.
    pub fn begin_until(&mut self, deadline_ms: u64) {
        self.deadline_ms = deadline_ms;
    }

    /// Clears the timeout.
    pub fn clear(&mut self) {
        self.deadline_ms = NEVER;
    }

    /// Returns whether a timeout is set.
    pub const fn is_waiting(&self) -> bool {
        self.deadline_ms != NEVER
    }

    /// Returns `Ready` if the wait has timed out. Poll this last, after everything else is pending.
    pub fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.deadline_ms == NEVER {
            // An earlier deadline that remains in the table causes only one spurious wake-up.
            return Poll::Pending;
        }
        if now_ms() >= self.deadline_ms {
            return Poll::Ready(());
        }
        self.deadlines.arm(&mut self.entry, self.deadline_ms, context.waker());
        Poll::Pending
    }

    /// Returns the result of `future`, or `None` if the timeout expires first.
    pub async fn bound<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            self.poll_expired(context).map(|()| None)
        })
        .await
    }
}

impl Drop for DeadlineTimer {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.deadlines.release(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeadlineTable, DeadlineTimer, now_ms};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    #[derive(Default)]
    struct Wakes(AtomicUsize);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_late_task_is_woken_once() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let context = Context::from_waker(&waker);
        let deadlines = Rc::new(DeadlineTable::default());
        let (mut early, mut late) = (DeadlineTimer::new(&deadlines), DeadlineTimer::new(&deadlines));
        assert_eq!(early.poll_expired(&context), Poll::Pending);
        assert!(deadlines.is_empty(), "no wait has begun");
        let now = now_ms();
        early.begin_until(now + 10_000);
        late.begin_until(now + 20_000);
        assert!(early.poll_expired(&context).is_pending() && late.poll_expired(&context).is_pending());
        deadlines.handle_time(now + 9_999);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        deadlines.handle_time(now + 10_000);
        deadlines.handle_time(now + 10_000);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        early.begin(0);
        assert_eq!(early.poll_expired(&context), Poll::Ready(()));
        drop((early, late));
        assert!(deadlines.is_empty());
        let mut again = DeadlineTimer::new(&deadlines);
        again.begin(1_000_000);
        assert!(again.poll_expired(&context).is_pending());
        assert!(!deadlines.is_empty());
    }

    #[test]
    fn a_table_of_its_own_is_scanned_while_it_is_in_use() {
        flatout_os::runtime::build_runtime().unwrap().block_on(async {
            let deadlines = Rc::new(DeadlineTable::default());
            let mut timer = DeadlineTimer::new(&deadlines);
            timer.begin(1);
            let waited = timer.bound(async {
                deadlines.keep_swept(1);
                std::future::pending::<()>().await;
            });
            assert_eq!(waited.await, None);
            drop(timer);
            while deadlines.is_swept.get() {
                tokio::task::yield_now().await;
            }
        });
    }
}
