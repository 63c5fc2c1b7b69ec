//! An answer that another thread will give: a future on one side, a promise on the other.

use crate::reason::{DataError, DataReason};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// An answer that another thread will give. It may be polled from any runtime, and dropped at any time: what had not
/// begun then never will, and a query that runs is stopped; a write that runs takes its course.
#[must_use = "dropped, nothing is asked"]
pub struct Pending<T> {
    slot: Arc<Slot<T>>,
}

/// The other side of a [`Pending`]. Dropped without an answer it says [`DataReason::Failed`].
pub(crate) struct Promise<T> {
    slot: Arc<Slot<T>>,
}

struct Slot<T> {
    state: Mutex<State<T>>,
    given_up: AtomicBool,
}

/// Sees whether anybody still waits for a [`Pending`].
#[derive(Clone)]
pub(crate) struct Watch(Arc<dyn Waited>);

trait Waited: Send + Sync {
    fn is_given_up(&self) -> bool;
}

impl<T: Send> Waited for Slot<T> {
    fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

impl Watch {
    /// True: nobody waits any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.is_given_up()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Watch(given up: {})", self.is_given_up())
    }
}

enum State<T> {
    Empty,
    Waited(Waker),
    Full(Result<T, DataError>),
    Taken,
}

impl<T> Slot<T> {
    /// A panic elsewhere leaves the state whole: every change is one step.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both sides of an answer to be.
pub(crate) fn pair<T>() -> (Promise<T>, Pending<T>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Empty), given_up: AtomicBool::new(false) });
    (Promise { slot: Arc::clone(&slot) }, Pending { slot })
}

/// An answer that is there already.
pub(crate) fn ready<T>(answer: Result<T, DataError>) -> Pending<T> {
    Pending { slot: Arc::new(Slot { state: Mutex::new(State::Full(answer)), given_up: AtomicBool::new(false) }) }
}

impl<T> Promise<T> {
    /// Gives the answer, and wakes whoever waits for it.
    pub(crate) fn keep(self, answer: Result<T, DataError>) {
        self.give(answer);
    }

    /// True: nobody waits for it any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.slot.given_up.load(Ordering::Relaxed)
    }

    fn give(&self, answer: Result<T, DataError>) {
        let mut state = self.slot.lock();
        if matches!(*state, State::Full(_) | State::Taken) {
            return;
        }
        let before = std::mem::replace(&mut *state, State::Full(answer));
        drop(state);
        if let State::Waited(waker) = before {
            waker.wake();
        }
    }
}

impl<T: Send + 'static> Promise<T> {
    /// Sees whether anybody still waits for the answer.
    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.slot) as Arc<dyn Waited>)
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Promise")
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.give(Err(DataError::new(DataReason::Failed, "nobody answered")));
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, DataError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.lock();
        match &mut *state {
            State::Empty => *state = State::Waited(context.waker().clone()),
            State::Waited(waker) => waker.clone_from(context.waker()),
            State::Full(_) => {
                if let State::Full(answer) = std::mem::replace(&mut *state, State::Taken) {
                    return Poll::Ready(answer);
                }
            }
            State::Taken => return Poll::Ready(Err(DataError::new(DataReason::Failed, "it was answered already"))),
        }
        Poll::Pending
    }
}

impl<T> Pending<T> {
    /// Waits for the answer on this thread: for programs that have no event loop, and for a server's start.
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

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pending")
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
