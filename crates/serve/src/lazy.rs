//! A value computed once, off the event loops, for all workers.

use crate::thread_pool::Signal;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Attempts after which no more are made.
const ATTEMPTS_MAX: u8 = 3;

/// The top bit: an attempt is pending or in progress. The others: the number of attempts.
const UNDER_WAY: u8 = 0x80;

/// A value that may not be computed yet.
#[derive(Debug)]
pub(crate) struct LazyValue<T> {
    value: OnceLock<T>,
    state: AtomicU8,
    waiting: Mutex<Vec<Arc<Signal>>>,
}

impl<T> Default for LazyValue<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), state: AtomicU8::new(0), waiting: Mutex::default() }
    }
}

/// The state of a slot at a request for its value.
#[derive(Debug)]
pub(crate) enum LazyState<T> {
    /// The caller must compute the value.
    Yours(ComputeGuard<T>),
    /// It is in progress.
    UnderWay,
    /// It failed too often, or exists already.
    Never,
}

impl<T> LazyValue<T> {
    /// The value, if it exists. Lock-free.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns whether the value exists or is in progress.
    pub(crate) fn is_begun(&self) -> bool {
        self.value.get().is_some() || self.state.load(Ordering::Acquire) & UNDER_WAY != 0
    }

    /// Requests the computation of the value.
    pub(crate) fn begin(self: &Arc<Self>) -> LazyState<T> {
        if self.value.get().is_some() {
            return LazyState::Never;
        }
        let state = self.state.load(Ordering::Acquire);
        if state & UNDER_WAY != 0 {
            return LazyState::UnderWay;
        }
        if state >= ATTEMPTS_MAX {
            return LazyState::Never;
        }
        let begun = self.state.compare_exchange(state, state | UNDER_WAY, Ordering::AcqRel, Ordering::Acquire);
        if begun.is_ok() { LazyState::Yours(ComputeGuard(Arc::clone(self))) } else { LazyState::UnderWay }
    }

    /// Signals `signal` when the attempt ends, successfully or not; immediately if none is in progress.
    pub(crate) fn ring_at_end(&self, signal: &Arc<Signal>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::Acquire) & UNDER_WAY == 0 {
            signal.ring();
        } else {
            waiting.push(Arc::clone(signal));
        }
    }

    fn end(&self) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.state.fetch_and(!UNDER_WAY, Ordering::AcqRel);
            std::mem::take(&mut *waiting)
        };
        for signal in waiting {
            signal.ring();
        }
    }
}

/// The obligation to compute a slot's value. Dropping it without a value frees the slot.
#[derive(Debug)]
pub(crate) struct ComputeGuard<T>(Arc<LazyValue<T>>);

impl<T> ComputeGuard<T> {
    /// Stores the value.
    pub(crate) fn finish(self, value: T) {
        let _ = self.0.value.set(value);
    }

    /// Counts the attempt as started: from here on, dropping it is a failure. Before, it only means that no thread
    /// was available.
    pub(crate) fn start(&self) {
        self.0.state.fetch_add(1, Ordering::AcqRel);
    }
}

impl<T> Drop for ComputeGuard<T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{LazyState, LazyValue};
    use crate::thread_pool::tests::block_on;
    use crate::thread_pool::{Notified, Signal};
    use std::sync::Arc;

    #[test]
    fn one_makes_and_the_others_wait() {
        let slot = Arc::<LazyValue<u32>>::default();
        let LazyState::Yours(making) = slot.begin() else { panic!() };
        assert!(matches!(slot.begin(), LazyState::UnderWay));
        let signal = Arc::<Signal>::default();
        slot.ring_at_end(&signal);
        let thread = std::thread::spawn(move || making.finish(7));
        block_on(Notified(signal));
        thread.join().unwrap();
        assert_eq!(slot.get(), Some(&7));
        assert!(matches!(slot.begin(), LazyState::Never));
        let after = Arc::<Signal>::default();
        slot.ring_at_end(&after);
        block_on(Notified(after));
    }

    #[test]
    fn what_fails_is_tried_again_but_not_for_ever() {
        let slot = Arc::<LazyValue<u32>>::default();
        for _ in 0..10 {
            assert!(matches!(slot.begin(), LazyState::Yours(_)), "dropped at once: never begun");
        }
        for _ in 0..3 {
            let LazyState::Yours(making) = slot.begin() else { panic!() };
            making.start();
        }
        assert!(matches!(slot.begin(), LazyState::Never) && slot.get().is_none());
    }
}
