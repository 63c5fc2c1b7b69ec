//! Events that other threads send to the control thread, and the descriptor that wakes the control thread. The supervisor
//! receives the results of its threads in the same way.

use crate::admin::AdminCommand;
use crate::failure::Failure;
use crate::reload::CompiledReload;
use flatout_server::WorkerReport;
use flatout_upstream::events::OriginEvent;
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
        /// True if Landlock confines the worker.
        confined: bool,
    },
    /// The thread of the worker with this index has ended.
    Ended(usize, WorkerEnd),
    /// A command from the admin socket.
    Order(AdminCommand),
    /// The configuration that the supervisor has sent, with the number of its reload, is compiled, or cannot be.
    Compiled(u64, Result<Box<CompiledReload>, Failure>),
    /// A line for standard error.
    Said(String),
    /// An event of an origin.
    Origin(OriginEvent),
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) enum WorkerEnd {
    /// The worker stopped as instructed.
    Well(WorkerReport),
    /// A system call failed.
    Failed(io::Error),
    /// The worker panicked with this message.
    Panicked(String),
}

/// The sender of events. Clones share the channel.
#[derive(Debug)]
pub(crate) struct EventSender<T = WorkerEvent> {
    events: Sender<T>,
    wake: Arc<OwnedFd>,
}

impl<T> Clone for EventSender<T> {
    fn clone(&self) -> Self {
        Self { events: self.events.clone(), wake: Arc::clone(&self.wake) }
    }
}

impl<T> EventSender<T> {
    /// Sends `event`, and wakes the receiver's thread. If the receiver has been dropped, nothing happens.
    pub(crate) fn send(&self, event: T) {
        if self.events.send(event).is_ok() {
            // The write fails only if the counter is at its maximum; the thread has then been woken already.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
    }
}

/// The receiver of events, and the descriptor on which its thread waits for them.
#[derive(Debug)]
pub(crate) struct EventReceiver<T = WorkerEvent> {
    events: Receiver<T>,
    wake: Arc<OwnedFd>,
}

impl<T> EventReceiver<T> {
    /// A descriptor that is readable when there is an event.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes the next event, if any.
    pub(crate) fn next(&self) -> Option<T> {
        self.events.try_recv().ok()
    }

    /// Makes the descriptor unreadable until the next event. Must be called before [`EventReceiver::next`]; otherwise,
    /// a wake-up could be lost.
    pub(crate) fn quiet(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }
}

/// Creates an event channel.
pub(crate) fn event_channel<T>() -> io::Result<(EventSender<T>, EventReceiver<T>)> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, events) = channel();
    Ok((EventSender { events: sender, wake: Arc::clone(&wake) }, EventReceiver { events, wake }))
}
