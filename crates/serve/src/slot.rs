//! A value that is made once, beside the event loops, for all workers that want it.

use crate::workshop::Signal;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Makings that may fail before nobody tries again.
const ATTEMPTS_MAX: u8 = 3;

/// The top bit: it is being made, or about to be. The others: how often the making began.
const UNDER_WAY: u8 = 0x80;

/// A value, perhaps still to be made.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    value: OnceLock<T>,
    state: AtomicU8,
    waiting: Mutex<Vec<Arc<Signal>>>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { value: OnceLock::new(), state: AtomicU8::new(0), waiting: Mutex::default() }
    }
}

/// How a slot stands.
#[derive(Debug)]
pub(crate) enum Begin<T> {
    /// Whoever asked shall make the value.
    Yours(Making<T>),
    /// Somebody is at it.
    UnderWay,
    /// It was tried too often, or is there already.
    Never,
}

impl<T> Slot<T> {
    /// The value, when there is one. No lock and no wait.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Whether there is a value, or one is being made.
    pub(crate) fn is_begun(&self) -> bool {
        self.value.get().is_some() || self.state.load(Ordering::Acquire) & UNDER_WAY != 0
    }

    /// Asks for the value to be made.
    pub(crate) fn begin(self: &Arc<Self>) -> Begin<T> {
        if self.value.get().is_some() {
            return Begin::Never;
        }
        let state = self.state.load(Ordering::Acquire);
        if state & UNDER_WAY != 0 {
            return Begin::UnderWay;
        }
        if state >= ATTEMPTS_MAX {
            return Begin::Never;
        }
        let begun = self.state.compare_exchange(state, state | UNDER_WAY, Ordering::AcqRel, Ordering::Acquire);
        if begun.is_ok() { Begin::Yours(Making(Arc::clone(self))) } else { Begin::UnderWay }
    }

    /// Has `signal` rung when the making ends, well or not; at once when none is under way.
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

/// The duty to make a slot's value. Dropped without one, the slot is free again.
#[derive(Debug)]
pub(crate) struct Making<T>(Arc<Slot<T>>);

impl<T> Making<T> {
    /// Puts the value in its place.
    pub(crate) fn finish(self, value: T) {
        let _ = self.0.value.set(value);
    }

    /// Counts an attempt: from here on, not finishing is failing. Before, it is only that nobody was found to do it.
    pub(crate) fn start(&self) {
        self.0.state.fetch_add(1, Ordering::AcqRel);
    }
}

impl<T> Drop for Making<T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::{Begin, Slot};
    use crate::workshop::tests::block_on;
    use crate::workshop::{Rung, Signal};
    use std::sync::Arc;

    #[test]
    fn one_makes_and_the_others_wait() {
        let slot = Arc::<Slot<u32>>::default();
        let Begin::Yours(making) = slot.begin() else { panic!() };
        assert!(matches!(slot.begin(), Begin::UnderWay));
        let signal = Arc::<Signal>::default();
        slot.ring_at_end(&signal);
        let thread = std::thread::spawn(move || making.finish(7));
        block_on(Rung(signal));
        thread.join().unwrap();
        assert_eq!(slot.get(), Some(&7));
        assert!(matches!(slot.begin(), Begin::Never));
        let after = Arc::<Signal>::default();
        slot.ring_at_end(&after);
        block_on(Rung(after));
    }

    #[test]
    fn what_fails_is_tried_again_but_not_for_ever() {
        let slot = Arc::<Slot<u32>>::default();
        for _ in 0..10 {
            assert!(matches!(slot.begin(), Begin::Yours(_)), "dropped at once: never begun");
        }
        for _ in 0..3 {
            let Begin::Yours(making) = slot.begin() else { panic!() };
            making.start();
        }
        assert!(matches!(slot.begin(), Begin::Never) && slot.get().is_none());
    }
}
