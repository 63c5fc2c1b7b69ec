//! A worker process's link to its supervisor.

use crate::admin::{CommandResult, OrderKind};
use crate::channel::{Channel, Incoming};
use crate::failure::{Failure, say};
use crate::inherit::WORKER;
use crate::messages::{ToSupervisor, ToWorker};
use flatout_os::process::take_inherited;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// The link, and the operators who wait for results of their orders.
#[derive(Debug)]
pub(crate) struct SupervisorLink {
    channel: Channel,
    /// The process ID of the supervisor.
    pub(crate) pid: u32,
    /// Interval at which the worker process reports to the supervisor that its control thread still works.
    pub(crate) alive_interval: Option<Duration>,
    askers: BTreeMap<u64, SyncSender<CommandResult>>,
    next_order: u64,
}

impl SupervisorLink {
    /// The link of this process, if a supervisor has started it. Must be called once, at startup.
    pub(crate) fn find() -> Option<Self> {
        let number = std::env::var(WORKER).ok()?.parse().ok()?;
        let socket = take_inherited(number).ok()?;
        let channel = Channel::of_worker(socket);
        Some(Self { channel, pid: 0, alive_interval: None, askers: BTreeMap::new(), next_order: 0 })
    }

    /// Another sender to the same supervisor, for a process that fails before it serves.
    pub(crate) fn reporter(&self) -> Option<Channel> {
        rustix::io::fcntl_dupfd_cloexec(self.channel.fd(), 0).ok().map(Channel::of_worker)
    }

    /// Readable if there is a message, or the supervisor has exited.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// The next message and its descriptors; `None` if there is none yet.
    ///
    /// # Errors
    /// If the supervisor has exited.
    pub(crate) fn receive(&mut self) -> Result<Option<(ToWorker, Vec<OwnedFd>)>, Failure> {
        const LOST: &str = "no descriptor is left to receive a message from the supervisor (open-files)";
        match self.channel.receive() {
            Ok(Incoming::Message(message, descriptors)) => Ok(Some((message, descriptors))),
            // The first message.
            Ok(Incoming::Lost) if self.pid == 0 => Err(Failure::runtime(LOST)),
            Ok(Incoming::Lost) => {
                say(&format!("error: {LOST}"));
                // A reload, whose result the supervisor waits for, or certificates.
                self.tell(&ToSupervisor::Lost(Failure::runtime(LOST)));
                Ok(None)
            }
            Ok(Incoming::Nothing) => Ok(None),
            Ok(Incoming::Closed) => Err(Failure::runtime("the supervisor has exited, and this process exits as well")),
            Err(error) => Err(Failure::runtime(format!("cannot receive from the supervisor: {error}"))),
        }
    }

    /// Waits for the first message.
    ///
    /// # Errors
    /// If the supervisor has exited.
    pub(crate) fn wait(&mut self) -> Result<(ToWorker, Vec<OwnedFd>), Failure> {
        loop {
            if let Some(received) = self.receive()? {
                return Ok(received);
            }
            match poll(&mut [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Failure::runtime(format!("cannot wait for the supervisor: {errno}"))),
            }
        }
    }

    /// Tells the supervisor. One that has exited is noticed by the next [`SupervisorLink::receive`].
    pub(crate) fn tell(&self, message: &ToSupervisor) {
        let _ = self.channel.send(message, &[]);
    }

    /// Passes an operator's order on.
    pub(crate) fn pass_on(&mut self, kind: OrderKind, answer: SyncSender<CommandResult>) {
        self.next_order += 1;
        self.askers.insert(self.next_order, answer);
        self.tell(&ToSupervisor::Order { kind, order: self.next_order });
    }

    /// Takes the operator who waits for the result of `order`, if any.
    pub(crate) fn take_asker(&mut self, order: Option<u64>) -> Option<SyncSender<CommandResult>> {
        self.askers.remove(&order?)
    }
}
