//! Deadlines of tasks, in a dense table that one task scans while any is set.
//!
//! A worker's runtime has no tokio timers, which would be checked on every turn. Each owner stores its own deadline
//! and is woken after it has passed; so a deadline costs one store, and is precise to the interval of the sweep.
//!
//! Connections of clients have a table of their own in the server,
//! through which they receive other calls, too.

use flatout_os::timer::Timer;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use tokio::task::spawn_local;

/// Milliseconds on the coarse monotonic clock.
pub fn now_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// No deadline is set.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct DeadlineEntry {
    deadline_ms: u64,
    /// `None` in a free entry.
    waker: Option<Waker>,
}

/// The deadlines of tasks of one kind, in one worker.
#[derive(Debug, Default)]
pub struct DeadlineTable {
    slots: RefCell<Vec<DeadlineEntry>>,
    free: RefCell<Vec<u32>>,
    /// Notifies the sweep that there is something to check.
    pub changed: Notify,
    resting: Cell<bool>,
    /// True while [`Self::keep_swept`] has a task.
    is_swept: Cell<bool>,
}

impl DeadlineTable {
    /// Returns whether no deadline is set.
    pub fn is_empty(&self) -> bool {
        self.slots.borrow().len() == self.free.borrow().len()
    }

    /// Lets the sweep pause until the next notification.
    pub fn rest(&self) {
        self.resting.set(true);
    }

    /// Notifies the sweep.
    pub fn wake_sweep(&self) {
        if self.resting.replace(false) {
            self.changed.notify_one();
        }
    }

    /// Wakes every owner whose deadline has passed.
    pub fn handle_time(&self, now_ms: u64) {
        let mut due = Vec::new();
        for slot in &mut *self.slots.borrow_mut() {
            if slot.deadline_ms <= now_ms {
                slot.deadline_ms = NEVER;
                due.extend(slot.waker.clone());
            }
        }
        // A waker may run arbitrary code, including calls to this table.
        due.into_iter().for_each(Waker::wake);
    }

    /// Has a task of its own scan the table every `interval_ms` while deadlines are set. For owners without a task that
    /// scans it. Must be called within a worker's runtime; if no timer can be created, the next call tries again.
    pub fn keep_swept(self: &Rc<Self>, interval_ms: u64) {
        if !self.is_swept.replace(true) {
            spawn_local(sweep(Rc::clone(self), interval_ms));
        }
    }

    fn arm(&self, slot: &mut Option<u32>, deadline_ms: u64, waker: &Waker) {
        let mut slots = self.slots.borrow_mut();
        if let Some(index) = *slot {
            let slot = &mut slots[index as usize];
            slot.deadline_ms = deadline_ms;
            if !slot.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                slot.waker = Some(waker.clone());
            }
            return;
        }
        let taken = DeadlineEntry { deadline_ms, waker: Some(waker.clone()) };
        let free = self.free.borrow_mut().pop();
        *slot = Some(if let Some(index) = free {
            slots[index as usize] = taken;
            index
        } else {
            slots.push(taken);
            slots.len() as u32 - 1
        });
        self.wake_sweep();
    }

    fn release(&self, index: u32) {
        let slot = DeadlineEntry { deadline_ms: NEVER, waker: None };
        // The waker may be the last reference to a task, whose end may free another entry, so it is dropped after the
        // borrow.
        let before = std::mem::replace(&mut self.slots.borrow_mut()[index as usize], slot);
        self.free.borrow_mut().push(index);
        drop(before);
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

/// The successive timeouts of one owner.
#[derive(Debug)]
pub struct DeadlineTimer {
    deadlines: Rc<DeadlineTable>,
    slot: Option<u32>,
    deadline_ms: u64,
}

impl DeadlineTimer {
    /// A timeout that has not started.
    pub fn new(deadlines: &Rc<DeadlineTable>) -> Self {
        Self { deadlines: Rc::clone(deadlines), slot: None, deadline_ms: NEVER }
    }

    /// Starts a wait of at most `timeout_ms`.
    pub fn begin(&mut self, timeout_ms: u64) {
        self.deadline_ms = now_ms().saturating_add(timeout_ms);
    }

    /// Starts a wait that ends at `deadline_ms` on the monotonic clock.
    pub fn begin_until(&mut self, deadline_ms: u64) {
        self.deadline_ms = deadline_ms;
    }

    /// Ends the wait, or makes it unbounded.
    pub fn clear(&mut self) {
        self.deadline_ms = NEVER;
    }

    /// Returns whether a bounded wait has started.
    pub const fn is_waiting(&self) -> bool {
        self.deadline_ms != NEVER
    }

    /// Ready if the wait has timed out. Poll this last, after everything else is pending.
    pub fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.deadline_ms == NEVER {
            // An earlier deadline left in the table only causes one spurious wake-up.
            return Poll::Pending;
        }
        if now_ms() >= self.deadline_ms {
            return Poll::Ready(());
        }
        self.deadlines.arm(&mut self.slot, self.deadline_ms, context.waker());
        Poll::Pending
    }

    /// The result of `future`, or `None` if its wait times out.
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
        if let Some(slot) = self.slot.take() {
            self.deadlines.release(slot);
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
        assert_eq!((deadlines.slots.borrow().len(), deadlines.is_empty()), (2, false));
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
