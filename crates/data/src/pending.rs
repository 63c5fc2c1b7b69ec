//! A result from another thread: a future and its promise.

use crate::reason::{DataError, DataReason};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A future of a result from another thread. It works with any runtime and may be dropped at any time. A job that has
/// not begun is then cancelled, a running query is stopped, and a running write continues.
#[must_use = "dropped, nothing is asked"]
#[derive(derive_more::Debug)]
#[debug("Pending")]
pub struct Pending<T> {
    slot: Arc<PendingValue<T>>,
}

/// The sender for a [`Pending`]. If it is dropped without a result, it sends [`DataReason::Failed`].
#[derive(derive_more::Debug)]
#[debug("Promise")]
pub(crate) struct Promise<T> {
    slot: Arc<PendingValue<T>>,
}

struct PendingValue<T> {
    state: Mutex<PendingState<T>>,
    given_up: AtomicBool,
}

/// An observer of whether a [`Pending`] is still awaited.
#[derive(Clone, derive_more::Debug)]
#[debug("Watch(given up: {})", self.is_given_up())]
pub(crate) struct PendingWatch(Arc<dyn Waited>);

trait Waited: Send + Sync {
    fn is_given_up(&self) -> bool;
}

impl<T: Send> Waited for PendingValue<T> {
    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

impl PendingWatch {
    /// Returns true if the result is no longer awaited.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_given_up()
    }
}

enum PendingState<T> {
    Empty,
    Waited(Waker),
    Full(Result<T, DataError>),
    Taken,
}

impl<T> PendingValue<T> {
    /// Ignores poisoning: every change is a single step, so the state is consistent after a panic.
    fn lock(&self) -> MutexGuard<'_, PendingState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a promise and its future.
pub(crate) fn pair<T>() -> (Promise<T>, Pending<T>) {
    let slot = Arc::new(PendingValue { state: Mutex::new(PendingState::Empty), given_up: AtomicBool::new(false) });
    (Promise { slot: Arc::clone(&slot) }, Pending { slot })
}

/// Creates a future whose result is already available.
pub(crate) fn ready<T>(answer: Result<T, DataError>) -> Pending<T> {
    Pending {
        slot: Arc::new(PendingValue {
            state: Mutex::new(PendingState::Full(answer)),
            given_up: AtomicBool::new(false),
        }),
    }
}

impl<T> Promise<T> {
    /// Sends the result and wakes the waiting task.
    pub(crate) fn keep(self, answer: Result<T, DataError>) {
        self.give(answer);
    }

    /// Returns true if the result is no longer awaited.
    pub(crate) fn is_given_up(&self) -> bool {
        self.slot.given_up.load(Ordering::Relaxed)
    }

    fn give(&self, answer: Result<T, DataError>) {
        let mut state = self.slot.lock();
        if matches!(*state, PendingState::Full(_) | PendingState::Taken) {
            return;
        }
        let before = std::mem::replace(&mut *state, PendingState::Full(answer));
        drop(state);
        if let PendingState::Waited(waker) = before {
            waker.wake();
        }
    }
}

impl<T: Send + 'static> Promise<T> {
    /// Returns an observer of the future.
    pub(crate) fn watch(&self) -> PendingWatch {
        PendingWatch(Arc::clone(&self.slot) as Arc<dyn Waited>)
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.give(Err(DataError::new(DataReason::Failed, "the database thread exited before it ran the statement")));
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, DataError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.lock();
        match &mut *state {
            PendingState::Empty => *state = PendingState::Waited(context.waker().clone()),
            PendingState::Waited(waker) => waker.clone_from(context.waker()),
            PendingState::Full(_) => {
                if let PendingState::Full(answer) = std::mem::replace(&mut *state, PendingState::Taken) {
                    return Poll::Ready(answer);
                }
            }
            PendingState::Taken => {
                return Poll::Ready(Err(DataError::new(DataReason::Failed, "the statement already has a result")));
            }
        }
        Poll::Pending
    }
}

impl<T> Pending<T> {
    /// Blocks this thread until the result arrives; for programs without an event loop, and for the start of a server.
    pub fn wait(mut self) -> Result<T, DataError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(answer) = Pin::new(&mut self).poll(&mut context) {
                return answer;
            }
            thread::park();
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        self.slot.given_up.store(true, Ordering::Relaxed);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
