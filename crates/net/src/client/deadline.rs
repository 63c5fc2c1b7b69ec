//! Deadlines of a worker's connections, watched by one task a worker instead of one timer a request.
//!
//! Setting a deadline is one store. The watch looks at all of them a few times a second and shuts down the socket of a
//! connection that is late; its task then wakes up to an end of stream and asks why.

use super::failure::Failure;
use rustix::net::{Shutdown, shutdown};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// No deadline is set.
const NEVER: u64 = u64::MAX;

/// One connection's deadline and the socket it is for.
#[derive(Debug)]
pub(super) struct Slot {
    deadline_ns: Cell<u64>,
    socket: RefCell<Option<Rc<OwnedFd>>>,
    cut: Cell<Option<Failure>>,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self { deadline_ns: Cell::new(NEVER), socket: RefCell::new(None), cut: Cell::new(None) }
    }

    /// From now on the deadline concerns this socket.
    pub(super) fn watch(&self, socket: &Rc<OwnedFd>) {
        self.socket.replace(Some(Rc::clone(socket)));
        self.cut.set(None);
    }

    /// The socket is about to be closed.
    pub(super) fn forget(&self) {
        self.deadline_ns.set(NEVER);
        self.socket.replace(None);
    }

    /// Something must have happened by then.
    pub(super) fn set_deadline(&self, deadline_ns: u64) {
        self.deadline_ns.set(deadline_ns);
    }

    /// Why the watch cut the connection, if it did; it explains whatever the socket says afterwards.
    pub(super) fn cut(&self) -> Option<Failure> {
        self.cut.get()
    }

    /// Cuts the connection if it is late.
    pub(super) fn cut_if_late(&self, now_ns: u64) {
        if now_ns >= self.deadline_ns.get() {
            self.cut_now(Failure::TimedOut);
        }
    }

    /// Cuts the connection if there is one.
    pub(super) fn cut_now(&self, why: Failure) {
        if self.cut.get().is_some() {
            return;
        }
        if let Some(socket) = &*self.socket.borrow() {
            self.cut.set(Some(why));
            // It fails only on a socket that is not connected any more, and then its task is awake already.
            let _shut = shutdown(socket, Shutdown::Both);
        }
    }
}
