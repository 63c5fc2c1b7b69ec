//! The worker threads: starting them, sending them commands, and handling their exits.

use crate::events::{EventSender, WorkerEnd, WorkerEvent};
use crate::failure::Failure;
use crate::threads::{check_address_space, explain_failure};
use flatout_server::{Command, Phase, WorkerReport};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// Maximum time for which a reload waits for workers. A worker that is busy for longer must not block the control
/// thread.
const COMMANDS_WAIT_MAX: Duration = Duration::from_secs(2);

/// One worker, as seen by the control thread.
pub(crate) struct Worker<H> {
    pub(crate) commands: UnboundedSender<Command<H>>,
    thread: Option<JoinHandle<()>>,
}

/// All workers.
pub(crate) struct Workers<H> {
    pub(crate) all: Vec<Worker<H>>,
    pub(crate) phase: watch::Sender<Phase>,
}

/// Returns the name of a worker's thread.
pub(crate) fn worker_name(index: usize) -> String {
    format!("worker-{index}")
}

/// Starts the worker with the index `index`, which runs `body`. Its end is sent to `event_sender`, even after a panic.
pub(crate) fn start_worker<H>(
    index: usize,
    commands: UnboundedSender<Command<H>>,
    event_sender: EventSender,
    body: impl FnOnce() -> io::Result<WorkerReport> + Send + 'static,
) -> Result<Worker<H>, Failure> {
    let run = move || {
        // After a panic, only the worker's counters are used, which are plain numbers.
        let ended = match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(report)) => WorkerEnd::Well(report),
            Ok(Err(error)) => WorkerEnd::Failed(error),
            Err(payload) => WorkerEnd::Panicked(panic_text(payload.as_ref())),
        };
        event_sender.send(WorkerEvent::Ended(index, ended));
    };
    let thread = check_address_space().and_then(|()| thread::Builder::new().name(worker_name(index)).spawn(run));
    let thread = thread.map_err(|error| Failure::runtime(explain_failure(&format!("worker {}", index + 1), &error)))?;
    Ok(Worker { commands, thread: Some(thread) })
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("for an unknown reason").to_owned()
}

impl<H> Workers<H> {
    /// Sends a command to each worker. A worker that has exited drops the command.
    pub(crate) fn tell(&self, mut command: impl FnMut(usize) -> Command<H>) {
        for (index, worker) in self.all.iter().enumerate() {
            let _ = worker.commands.send(command(index));
        }
    }

    /// Waits until all workers have executed the commands sent so far, within a time limit.
    pub(crate) fn wait_until_executed(&self) {
        let (sender, executed) = mpsc::channel::<()>();
        self.tell(|_| {
            let sender = sender.clone();
            Command::Handler(Box::new(move |_| drop(sender)))
        });
        drop(sender);
        // The channel is disconnected when the last worker has dropped its sender.
        let _ = executed.recv_timeout(COMMANDS_WAIT_MAX);
    }

    /// Joins a thread that has reported its end.
    pub(crate) fn join(&mut self, index: usize) {
        if let Some(thread) = self.all.get_mut(index).and_then(|worker| worker.thread.take()) {
            // The result was sent as an event.
            let _ = thread.join();
        }
    }

    /// Returns whether any worker is running.
    pub(crate) fn any_running(&self) -> bool {
        self.all.iter().any(|worker| worker.thread.is_some())
    }

    /// Sets the phase of all workers.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// The phase most recently set for the workers.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::start_worker;
    use crate::events::{WorkerEnd, WorkerEvent, event_channel};
    use flatout_server::{WorkerReport, command_channel};
    use std::io;

    fn end_of(body: impl FnOnce() -> io::Result<WorkerReport> + Send + 'static) -> WorkerEnd {
        let (event_sender, event_receiver) = event_channel().unwrap();
        let (commands, _) = command_channel::<()>();
        let mut worker = start_worker(7, commands, event_sender, body).unwrap();
        worker.thread.take().unwrap().join().unwrap();
        match event_receiver.next() {
            Some(WorkerEvent::Ended(7, ended)) => ended,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_end_of_a_worker_is_told() {
        assert!(
            matches!(end_of(|| Ok(WorkerReport { connections_cut: 2 })), WorkerEnd::Well(report) if report.connections_cut == 2)
        );
        assert!(matches!(end_of(|| Err(io::ErrorKind::OutOfMemory.into())), WorkerEnd::Failed(_)));
        assert!(matches!(end_of(|| panic!("a defect")), WorkerEnd::Panicked(text) if text == "a defect"));
    }
}
