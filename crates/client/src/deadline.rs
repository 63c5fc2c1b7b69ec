//! Deadlines of a worker's slots, watched by one task per worker instead of one timer per request.
//!
//! Setting a deadline is one store. The task scans all of them a few times a second, and also when the earliest is
//! due. It shuts down the socket of a late connection; the connection's task then sees the end of the stream and
//! looks up why. An HTTP/2 stream shares its socket with others, so its task is woken instead and resets the stream.

use super::failure::RequestFailure;
use rustix::net::{Shutdown, shutdown};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// No deadline is set.
const NEVER: u64 = u64::MAX;

/// One slot's deadline and its socket.
#[derive(Debug)]
pub(super) struct Deadline {
    due_ns: Cell<u64>,
    socket: RefCell<Option<Rc<OwnedFd>>>,
    cut: Cell<Option<RequestFailure>>,
}

impl Deadline {
    pub(super) const fn new() -> Self {
        Self { due_ns: Cell::new(NEVER), socket: RefCell::new(None), cut: Cell::new(None) }
    }

    /// Assigns the deadline to this socket.
    pub(super) fn watch(&self, socket: &Rc<OwnedFd>) {
        self.socket.replace(Some(Rc::clone(socket)));
        self.cut.set(None);
    }

    /// Assigns the deadline to a stream.
    pub(super) fn watch_stream(&self) {
        self.socket.replace(None);
        self.cut.set(None);
    }

    /// Releases the socket before it is closed.
    pub(super) fn forget(&self) {
        self.due_ns.set(NEVER);
        self.socket.replace(None);
    }

    /// Sets the deadline.
    pub(super) fn set(&self, due_ns: u64) {
        self.due_ns.set(due_ns);
    }

    /// Clears the deadline.
    pub(super) fn clear(&self) {
        self.due_ns.set(NEVER);
    }

    /// Why the connection was cut, if it was; this takes precedence over the socket's error.
    pub(super) fn cut(&self) -> Option<RequestFailure> {
        self.cut.get()
    }

    /// Returns whether the deadline has passed.
    pub(super) fn is_late(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns.get()
    }

    /// The deadline; `None` if none is set or it has been enforced already.
    pub(super) fn due_ns(&self) -> Option<u64> {
        Some(self.due_ns.get()).filter(|due_ns| *due_ns != NEVER && self.cut.get().is_none())
    }

    /// Cuts the exchange in progress, if any; returns whether its task must be woken.
    pub(super) fn cut_now(&self, why: RequestFailure) -> bool {
        if self.cut.get().is_some() || self.due_ns.get() == NEVER {
            return false;
        }
        self.cut.set(Some(why));
        match &*self.socket.borrow() {
            Some(socket) => {
                // Fails only on a socket that is no longer connected; its task is awake then.
                let _shut = shutdown(socket, Shutdown::Both);
                false
            }
            None => true,
        }
    }
}
