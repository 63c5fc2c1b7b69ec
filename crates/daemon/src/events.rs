//! Events from other threads to the control thread, and the descriptor that wakes it.

use crate::admin::AdminCommand;
use flatout_server::WorkerReport;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// An event from another thread.
#[derive(Debug)]
pub(crate) enum WorkerEvent {
    /// A worker accepts connections.
    Started {
        /// True if Landlock confines it.
        confined: bool,
    },
    /// A worker's thread has ended.
    Ended(usize, WorkerEnd),
    /// An order from the admin socket.
    Order(AdminCommand),
    /// A line for standard error.
    Said(String),
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) enum WorkerEnd {
    /// As instructed.
    Well(WorkerReport),
    /// A system call failed.
    Failed(io::Error),
    /// By a panic.
    Panicked(String),
}

/// The sender of events. Clones share the channel.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    events: Sender<WorkerEvent>,
    wake: Arc<OwnedFd>,
}

impl EventSender {
    /// Sends `event`, and wakes the control thread. A missing receiver is ignored.
    pub(crate) fn send(&self, event: WorkerEvent) {
        if self.events.send(event).is_ok() {
            // Fails only if the counter is at its limit; the thread is awake then.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The control thread's receiver.
#[derive(Debug)]
pub(crate) struct EventReceiver {
    events: Receiver<WorkerEvent>,
    wake: Arc<OwnedFd>,
}

impl EventReceiver {
    /// Readable if there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The next event, if any.
    pub(crate) fn next(&self) -> Option<WorkerEvent> {
        self.events.try_recv().ok()
    }

    /// Resets the descriptor until the next event. Must be called before [`EventReceiver::next`], or a wake-up could be lost.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

/// An event channel: sender and receiver.
pub(crate) fn event_channel() -> io::Result<(EventSender, EventReceiver)> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, events) = channel();
    Ok((EventSender { events: sender, wake: Arc::clone(&wake) }, EventReceiver { events, wake }))
}
