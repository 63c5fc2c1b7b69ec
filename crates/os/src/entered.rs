//! Replacements for parts of the system on one thread, for tests and simulations.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::thread::LocalKey;

/// The thread-local variable that holds a thread's replacement of type `T`.
pub(crate) type Place<T> = LocalKey<RefCell<Option<T>>>;

/// A guard that keeps a replacement in force on this thread. Dropping it restores the previous replacement, if any.
#[derive(Debug)]
pub struct Entered<T: 'static> {
    place: &'static Place<T>,
    before: Option<T>,
    /// Keeps the guard on its thread.
    _not_send: PhantomData<*const ()>,
}

impl<T> Entered<T> {
    pub(crate) fn new(place: &'static Place<T>, replacement: T) -> Self {
        Self { place, before: place.replace(Some(replacement)), _not_send: PhantomData }
    }
}

impl<T> Drop for Entered<T> {
    fn drop(&mut self) {
        self.place.set(self.before.take());
    }
}
