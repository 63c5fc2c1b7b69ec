//! A value that the thread pool computes once for all workers.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Maximum number of failed attempts to compute a value.
const ATTEMPTS_MAX: u8 = 3;

/// The bit of the state that is set while an attempt is queued or in progress. The other bits are the number of
/// attempts.
const UNDER_WAY: u8 = 0x80;

/// A value that may not have been computed yet.
#[derive(Debug)]
pub(crate) struct LazyValue<T> {
    value: OnceLock<T>,
    state: AtomicU8,
    ended: Notify,
}

impl<T> Default for LazyValue<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), state: AtomicU8::new(0), ended: Notify::new() }
    }
}

/// The reply to a request to compute a value.
#[derive(Debug)]
pub(crate) enum LazyState<T> {
    /// The caller must compute the value.
    Yours(ComputeGuard<T>),
    /// The computation is queued or in progress.
    UnderWay,
    /// The computation has failed too often, or the value already exists.
    Never,
}

impl<T> LazyValue<T> {
    /// Returns the value if it exists, without locking.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns whether the value exists, or its computation is queued or in progress.
    pub(crate) fn is_begun(&self) -> bool {
        self.value.get().is_some() || self.state.load(Ordering::Acquire) & UNDER_WAY != 0
    }

    /// Claims the computation of the value for the caller, if the value is needed and no other caller has claimed it.
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

    /// Waits until the current attempt ends, successfully or not. Returns immediately if no attempt is in progress.
    pub(crate) async fn ended(&self) {
        // Registers before reading the state, so that an end in between is not missed.
        let ended = self.ended.notified();
        if self.state.load(Ordering::Acquire) & UNDER_WAY != 0 {
            ended.await;
        }
    }

    fn end(&self) {
        self.state.fetch_and(!UNDER_WAY, Ordering::AcqRel);
        self.ended.notify_waiters();
    }
}

/// The obligation to compute a value. Dropping it without [`Self::finish`] ends the attempt, so that another one may
/// begin.
#[derive(Debug)]
pub(crate) struct ComputeGuard<T>(Arc<LazyValue<T>>);

impl<T> ComputeGuard<T> {
    /// Stores the value and ends the attempt.
    pub(crate) fn finish(self, value: T) {
        let _ = self.0.value.set(value);
    }

    /// Returns whether anyone still holds the value that is being computed.
    pub(crate) fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Counts the attempt. Dropping the guard is a failed attempt only after this call; before, it means that no thread
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
    use flatout_os::runtime::build_runtime;
    use std::sync::Arc;

    #[test]
    fn one_makes_and_the_others_wait() {
        let slot = Arc::<LazyValue<u32>>::default();
        let LazyState::Yours(making) = slot.begin() else { panic!() };
        assert!(matches!(slot.begin(), LazyState::UnderWay));
        let runtime = build_runtime().unwrap();
        let thread = std::thread::spawn(move || making.finish(7));
        runtime.block_on(slot.ended());
        thread.join().unwrap();
        assert_eq!(slot.get(), Some(&7));
        assert!(matches!(slot.begin(), LazyState::Never));
        runtime.block_on(slot.ended());
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
