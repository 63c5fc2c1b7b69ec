//! Deadlines in a dense table that one task scans while any is set.
//!
//! A worker's runtime has no tokio timers, which would be checked on every turn. Each owner stores its own deadline
//! and is woken after it has passed; so a deadline costs one store, and is precise to the interval of the sweep.

use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Milliseconds on the coarse monotonic clock.
pub(super) fn now_ms() -> u64 {
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

/// The deadlines of one client of origins.
#[derive(Debug, Default)]
pub(super) struct DeadlineTable {
    slots: RefCell<Vec<DeadlineEntry>>,
    free: RefCell<Vec<u32>>,
    /// Notifies the sweep that there is something to check.
    pub(super) changed: Notify,
    resting: Cell<bool>,
}

impl DeadlineTable {
    /// Returns whether no deadline is set.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.borrow().len() == self.free.borrow().len()
    }

    /// Lets the sweep pause until the next notification.
    pub(super) fn rest(&self) {
        self.resting.set(true);
    }

    /// Notifies the sweep.
    pub(super) fn wake_sweep(&self) {
        if self.resting.replace(false) {
            self.changed.notify_one();
        }
    }

    /// Wakes every owner whose deadline has passed.
    pub(super) fn handle_time(&self, now_ms: u64) {
        for slot in &mut *self.slots.borrow_mut() {
            if slot.deadline_ms <= now_ms {
                slot.deadline_ms = NEVER;
                if let Some(waker) = &slot.waker {
                    waker.wake_by_ref();
                }
            }
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

/// The successive timeouts of one owner.
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    deadlines: Rc<DeadlineTable>,
    slot: Option<u32>,
    deadline_ms: u64,
}

impl DeadlineTimer {
    /// A timeout that has not started.
    pub(super) fn new(deadlines: &Rc<DeadlineTable>) -> Self {
        Self { deadlines: Rc::clone(deadlines), slot: None, deadline_ms: NEVER }
    }

    /// Starts a wait of at most `timeout_ms`.
    pub(crate) fn begin(&mut self, timeout_ms: u64) {
        self.deadline_ms = now_ms().saturating_add(timeout_ms);
    }

    /// Starts a wait that ends at `deadline_ms`.
    pub(crate) fn begin_until(&mut self, deadline_ms: u64) {
        self.deadline_ms = deadline_ms;
    }

    /// Ends the wait, or makes it unbounded.
    pub(crate) fn clear(&mut self) {
        self.deadline_ms = NEVER;
    }

    /// Returns whether a bounded wait has started.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.deadline_ms != NEVER
    }

    /// Ready if the wait has timed out. Poll this last, after everything else is pending.
    pub(crate) fn poll_expired(&mut self, context: &Context<'_>) -> Poll<()> {
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
    pub(crate) async fn bound<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
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
}
