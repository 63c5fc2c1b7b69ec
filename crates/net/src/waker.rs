//! The waker of a single task that waits for something.

use std::cell::RefCell;
use std::task::{Context, Waker};

/// Holds the waker that was registered last.
#[derive(Debug, Default)]
pub struct WakerCell(RefCell<Option<Waker>>);

impl WakerCell {
    /// Registers the task of `context`.
    pub fn register(&self, context: &Context<'_>) {
        if self.0.borrow().as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return;
        }
        // Dropped after the borrow: the former waker may be the last reference to a task, and dropping that task may
        // use this cell.
        let former = self.0.replace(Some(context.waker().clone()));
        drop(former);
    }

    /// Wakes the task, which remains registered.
    pub fn wake(&self) {
        if let Some(waker) = &*self.0.borrow() {
            waker.wake_by_ref();
        }
    }
}
