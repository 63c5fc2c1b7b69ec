//! The deadline of a slot. One task per worker watches all deadlines, instead of one timer per request.
//!
//! Setting a deadline is a single store. The task scans all deadlines a few times a second, and also when the earliest
//! is due. It shuts down the socket of a late connection; the connection's task then sees the end of the stream and
//! looks up the reason. An HTTP/2 or HTTP/3 stream shares its socket with others, so its task is woken instead, and
//! resets the stream.

use super::failure::RequestFailure;
use flatout_net::deadlines::{DeadlineId, Deadlines, NEVER};
use rustix::net::{Shutdown, shutdown};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// The deadlines of a worker's slots, by slot index, in nanoseconds.
pub(super) type SlotDeadlines = Rc<RefCell<Deadlines<u32>>>;

/// The deadline of one slot, and the socket that it applies to.
#[derive(Debug)]
pub(super) struct Deadline {
    table: SlotDeadlines,
    id: DeadlineId,
    socket: RefCell<Option<Rc<OwnedFd>>>,
    cut: Cell<Option<RequestFailure>>,
}

impl Deadline {
    pub(super) fn new(table: &SlotDeadlines, slot: u32) -> Self {
        let id = table.borrow_mut().insert(slot);
        Self { table: Rc::clone(table), id, socket: RefCell::new(None), cut: Cell::new(None) }
    }

    /// Applies the deadline to this socket.
    pub(super) fn watch(&self, socket: &Rc<OwnedFd>) {
        self.socket.replace(Some(Rc::clone(socket)));
        self.cut.set(None);
    }

    /// Applies the deadline to a stream.
    pub(super) fn watch_stream(&self) {
        self.socket.replace(None);
        self.cut.set(None);
    }

    /// Releases the socket, which must happen before it is closed.
    pub(super) fn forget(&self) {
        self.clear();
        self.socket.replace(None);
    }

    /// Sets the deadline, in nanoseconds on the monotonic clock.
    pub(super) fn set(&self, due_ns: u64) {
        self.table.borrow_mut().set(self.id, due_ns);
    }

    /// Clears the deadline.
    pub(super) fn clear(&self) {
        self.set(NEVER);
    }

    /// Returns why the exchange was aborted, if it was. This reason takes precedence over the socket's error.
    pub(super) fn cut(&self) -> Option<RequestFailure> {
        self.cut.get()
    }

    /// Aborts the exchange in progress. Returns whether the slot's task must be woken.
    pub(super) fn cut_now(&self, why: RequestFailure) -> bool {
        self.cut.set(Some(why));
        match &*self.socket.borrow() {
            Some(socket) => {
                // Fails only on a socket that is no longer connected, whose task is awake.
                let _shut = shutdown(socket, Shutdown::Both);
                false
            }
            None => true,
        }
    }
}
