//! Deadlines of a worker's slots, watched by one task a worker instead of one timer a request.
//!
//! Setting a deadline is one store. The watch looks at all of them a few times a second, and in between when the earliest
//! has come. It shuts down the socket of a connection that is late; its task then wakes up to an end of stream and asks why.
//! A stream of HTTP/2 shares its socket with others: its task is woken instead, and resets the stream.

use super::failure::Failure;
use rustix::net::{Shutdown, shutdown};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// No deadline is set.
const NEVER: u64 = u64::MAX;

/// One slot's deadline and the socket it is for.
#[derive(Debug)]
pub(super) struct Deadline {
    due_ns: Cell<u64>,
    socket: RefCell<Option<Rc<OwnedFd>>>,
    cut: Cell<Option<Failure>>,
}

impl Deadline {
    pub(super) const fn new() -> Self {
        Self { due_ns: Cell::new(NEVER), socket: RefCell::new(None), cut: Cell::new(None) }
    }

    /// From now on the deadline concerns this socket.
    pub(super) fn watch(&self, socket: &Rc<OwnedFd>) {
        self.socket.replace(Some(Rc::clone(socket)));
        self.cut.set(None);
    }

    /// From now on it concerns a stream.
    pub(super) fn watch_stream(&self) {
        self.socket.replace(None);
        self.cut.set(None);
    }

    /// The socket is about to be closed.
    pub(super) fn forget(&self) {
        self.due_ns.set(NEVER);
        self.socket.replace(None);
    }

    /// Something must have happened by then.
    pub(super) fn set(&self, due_ns: u64) {
        self.due_ns.set(due_ns);
    }

    /// Nothing is awaited.
    pub(super) fn clear(&self) {
        self.due_ns.set(NEVER);
    }

    /// Why the watch cut the connection, if it did; it explains whatever the socket says afterwards.
    pub(super) fn cut(&self) -> Option<Failure> {
        self.cut.get()
    }

    /// Whether it has passed.
    pub(super) fn is_late(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns.get()
    }

    /// When it will have passed; `None` when nothing is awaited, or has been cut already.
    pub(super) fn due_ns(&self) -> Option<u64> {
        Some(self.due_ns.get()).filter(|due_ns| *due_ns != NEVER && self.cut.get().is_none())
    }

    /// Cuts what is under way, if anything is; says whether its task must be woken.
    pub(super) fn cut_now(&self, why: Failure) -> bool {
        if self.cut.get().is_some() || self.due_ns.get() == NEVER {
            return false;
        }
        self.cut.set(Some(why));
        match &*self.socket.borrow() {
            Some(socket) => {
                // It fails only on a socket that is not connected any more, and then its task is awake already.
                let _shut = shutdown(socket, Shutdown::Both);
                false
            }
            None => true,
        }
    }
}
