//! All logs of a process: they are opened together, replaced on reload, reopened on a signal, and closed at exit.

use super::failure::OpenError;
use super::line::Form;
use super::queue::{CHUNKS_MAX, Channel, Message, Totals, send_until};
use super::worker::WorkerLog;
use super::writer::LogWriter;
use flatout_http::access::{LogDestination, LogSettings};
use flatout_os::clock;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum time for opening the files.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time for writing queued lines at exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Receives one message when a target stops accepting lines, and one when the target accepts lines again.
pub type Warn = Box<dyn Fn(&str) + Send>;

/// One log, as seen by a worker.
#[derive(Debug)]
pub(super) struct LogHandle {
    /// Identifies the log; never reused while the process runs.
    pub(super) number: u32,
    pub(super) form: Form,
    pub(super) channel: Arc<Channel>,
    pub(super) queue: SyncSender<Message>,
}

/// The logs of one configuration, by index, for the workers.
#[derive(Clone, Debug, Default)]
pub struct LogSet(pub(super) Arc<[Arc<LogHandle>]>);

/// Line counts for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCount {
    /// The destination of the lines.
    pub target: LogDestination,
    /// Number of lines written.
    pub lines_written: u64,
    /// Number of lines lost.
    pub lines_lost: u64,
    /// Number of rotations of the file.
    pub rotations: u64,
}

/// All logs of the process. The writer thread is started with the first log. If files are to be reopened later, this
/// must happen before the process restricts its own permissions.
pub struct Logs {
    totals: Arc<Totals>,
    /// Locked only briefly, because signals are handled on an event loop.
    control: Mutex<Control>,
    /// Locked while the logs are being replaced.
    replacing: Mutex<()>,
}

#[derive(Default)]
struct Control {
    set: LogSet,
    thread: Option<Thread>,
    warn: Option<Warn>,
    closed: bool,
}

struct Thread {
    queue: SyncSender<Message>,
    /// Disconnects when the thread ends.
    running: Receiver<()>,
}

impl Logs {
    /// Opens the logs. `warn` is called on the writer thread.
    ///
    /// # Errors
    /// Returns an error if a target cannot be written.
    pub fn open(settings: &[LogSettings], warn: Warn) -> Result<Self, OpenError> {
        let control = Control { warn: Some(warn), ..Control::default() };
        let logs = Self { totals: Arc::default(), control: Mutex::new(control), replacing: Mutex::default() };
        logs.replace(settings)?;
        Ok(logs)
    }

    /// Replaces the logs for workers that adopt the returned set. A target in both sets stays open and loses no lines.
    /// A removed target is closed when no more lines for it are pending. The function waits for the file system, so it
    /// must not be called on an event loop.
    ///
    /// # Errors
    /// Returns an error if a target cannot be written; the logs are then unchanged.
    pub fn replace(&self, settings: &[LogSettings]) -> Result<LogSet, OpenError> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let set_before = self.control().set.clone();
        let target = settings.first().map_or(LogDestination::Stdout, |log| log.target.clone());
        let opened = self.open_channels(settings).map_err(|error| OpenError { target, error })?;
        let (channels, queue) = match opened {
            Some((channels, queue)) => (channels?, queue),
            None => return Ok(LogSet::default()),
        };
        let logs = settings.iter().zip(channels).map(|(settings, channel)| {
            let form = Form::new(settings);
            // An unchanged log keeps its identity, so that workers keep its buffers.
            let kept = set_before.0.iter().find(|log| Arc::ptr_eq(&log.channel, &channel) && log.form == form);
            kept.cloned().unwrap_or_else(|| {
                let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
                Arc::new(LogHandle { number, form, channel, queue: queue.clone() })
            })
        });
        let set = LogSet(logs.collect());
        self.control().set = set.clone();
        Ok(set)
    }

    /// Has the writer open the targets. Returns `None` if there is no writer and none is needed.
    fn open_channels(&self, settings: &[LogSettings]) -> io::Result<Option<(OpenedLogs, SyncSender<Message>)>> {
        let queue = {
            let mut control = self.control();
            if settings.is_empty() && control.thread.is_none() {
                return Ok(None);
            }
            control.queue(&self.totals)?
        };
        let deadline = clock::now() + OPEN_TIMEOUT;
        let (answer, answered) = sync_channel(1);
        if send_until(&queue, Message::Replace(settings.to_vec(), answer), deadline).is_err() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the log writer is busy"));
        }
        match answered.recv_timeout(deadline.saturating_duration_since(clock::now())) {
            Ok(opened) => Ok(Some((opened, queue))),
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the file system does not respond"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the log writer has exited")),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a worker's part of the logs.
    pub fn worker(&self) -> WorkerLog {
        let control = self.control();
        WorkerLog::new(&control.set)
    }

    /// Reopens the files by name, after they have been renamed. Returns immediately.
    pub fn reopen(&self) {
        self.totals.reopen.store(true, Ordering::Release);
        if let Some(thread) = &self.control().thread {
            // If the queue is full, the writer is awake and will check the flag.
            let _ = thread.queue.try_send(Message::Wake);
        }
    }

    /// Returns the counts of each target of the current configuration, in the order of the logs, without duplicates.
    pub fn counts(&self) -> Vec<LogCount> {
        let set = self.control().set.clone();
        let is_first = |index: usize, log: &LogHandle| {
            set.0[..index].iter().all(|earlier| !Arc::ptr_eq(&earlier.channel, &log.channel))
        };
        let firsts = set.0.iter().enumerate().filter(|(index, log)| is_first(*index, log));
        let counts = firsts.map(|(_, log)| LogCount {
            target: log.channel.target.clone(),
            lines_written: log.channel.lines_written.load(Ordering::Acquire),
            lines_lost: log.channel.lines_lost.load(Ordering::Relaxed),
            rotations: log.channel.rotations.load(Ordering::Relaxed),
        });
        counts.collect()
    }

    /// Returns the total number of lost lines, including those of closed logs.
    pub fn lines_lost(&self) -> u64 {
        self.totals.lines_lost.load(Ordering::Relaxed)
    }

    /// Writes queued lines, for a few seconds at most, and stops the writer. Later lines are lost and counted.
    pub fn close(&self) {
        let thread = {
            let mut control = self.control();
            control.closed = true;
            control.thread.take()
        };
        let Some(thread) = thread else { return };
        let deadline = clock::now() + CLOSE_TIMEOUT;
        if send_until(&thread.queue, Message::Close(deadline), deadline).is_ok() {
            // The writer stops at the deadline, unless the kernel blocks the thread.
            let left = deadline.saturating_duration_since(clock::now()) + Duration::from_millis(500);
            let _ = thread.running.recv_timeout(left);
        }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.close();
    }
}

impl Control {
    /// Returns the writer's queue. Starts the writer if there is none.
    fn queue(&mut self, totals: &Arc<Totals>) -> io::Result<SyncSender<Message>> {
        if let Some(thread) = &self.thread {
            return Ok(thread.queue.clone());
        }
        if self.closed {
            return Err(io::Error::other("the logs are closed"));
        }
        let (queue, messages) = sync_channel(CHUNKS_MAX);
        let (alive, running) = sync_channel::<()>(1);
        let warn = self.warn.take().unwrap_or_else(|| Box::new(|_| {}));
        let writer = LogWriter::new(messages, Arc::clone(totals), warn);
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || {
            writer.run();
            drop(alive);
        })?;
        self.thread = Some(Thread { queue: queue.clone(), running });
        Ok(queue)
    }
}

type OpenedLogs = Result<Vec<Arc<Channel>>, OpenError>;
