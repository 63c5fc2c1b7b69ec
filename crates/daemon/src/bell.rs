//! What other threads tell the control thread, and the descriptor that wakes it.

use crate::admin::Order;
use flatout_net::server::WorkerReport;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Something that happened elsewhere.
#[derive(Debug)]
pub(crate) enum Event {
    /// A worker accepts connections.
    Started {
        /// Whether the kernel confines it.
        confined: bool,
    },
    /// A worker's thread is at its end.
    Ended(usize, Ended),
    /// Somebody asks by the admin socket.
    Order(Order),
    /// A line for standard error.
    Said(String),
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// As it was told.
    Well(WorkerReport),
    /// The kernel refused something it needs.
    Failed(io::Error),
    /// By a defect of ours.
    Panicked(String),
}

/// Where other threads tell. Clones are of one bell.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    events: Sender<Event>,
    wake: Arc<OwnedFd>,
}

impl Bell {
    /// Tells `event`, and wakes the control thread. Nobody listening any more is fine.
    pub(crate) fn ring(&self, event: Event) {
        if self.events.send(event).is_ok() {
            // It fails only when the count is at its limit, and then the thread is awake.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The control thread's side.
#[derive(Debug)]
pub(crate) struct Ear {
    events: Receiver<Event>,
    wake: Arc<OwnedFd>,
}

impl Ear {
    /// Readable when there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The next event, if there is one.
    pub(crate) fn next(&self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// Lets the descriptor sleep until the next ring. To be called before [`Ear::next`], or a ring could be lost.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

/// A bell and the ear for it.
pub(crate) fn bell() -> io::Result<(Bell, Ear)> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, events) = channel();
    Ok((Bell { events: sender, wake: Arc::clone(&wake) }, Ear { events, wake }))
}
