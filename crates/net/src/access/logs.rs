//! All logs of a process: opened together, replaced by a reload, opened anew by a signal, closed at the end.

use super::line::Form;
use super::queue::{CHUNKS_MAX, Channel, Message, Totals, send_until};
use super::settings::{LogSettings, OpenError, Target};
use super::worker::WorkerLog;
use super::writer::Writer;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the writer may take to open files.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to write what is queued at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// What is said once when a target begins to take nothing, and once when it takes lines again.
pub type Warn = Box<dyn Fn(&str) + Send>;

/// One log, as a worker knows it.
#[derive(Debug)]
pub(super) struct Log {
    /// Never used again while the process runs.
    pub(super) number: u32,
    pub(super) form: Form,
    pub(super) channel: Arc<Channel>,
    pub(super) queue: SyncSender<Message>,
}

/// The logs of one configuration by index, for the workers.
#[derive(Clone, Debug, Default)]
pub struct LogSet(pub(super) Arc<[Arc<Log>]>);

/// What has become of the lines for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCount {
    /// Where they go.
    pub target: Target,
    /// Lines that the target has taken.
    pub lines_written: u64,
    /// Lines that it has not.
    pub lines_lost: u64,
    /// Files put aside.
    pub rotations: u64,
}

/// All logs of the process. Its thread is started with the first log: before the process restricts itself, if files are
/// to be opened anew later.
pub struct Logs {
    totals: Arc<Totals>,
    /// Held only for moments: signals are handled on an event loop.
    control: Mutex<Control>,
    /// Held by whoever replaces the logs.
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
    /// Ends with the thread.
    running: Receiver<()>,
}

impl Logs {
    /// Opens the logs. `warn` is called from the writer's thread.
    ///
    /// # Errors
    /// When a target cannot be written.
    pub fn open(settings: &[LogSettings], warn: Warn) -> Result<Self, OpenError> {
        let control = Control { warn: Some(warn), ..Control::default() };
        let logs = Self { totals: Arc::default(), control: Mutex::new(control), replacing: Mutex::default() };
        logs.replace(settings)?;
        Ok(logs)
    }

    /// Makes these the logs, for workers that adopt the set. A target that was there stays open and loses nothing;
    /// one that is not wanted any more is closed when no line for it is under way. Waits for the file system, so it is
    /// called off the event loop.
    ///
    /// # Errors
    /// When a target cannot be written; then the logs stay as they were.
    pub fn replace(&self, settings: &[LogSettings]) -> Result<LogSet, OpenError> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let _replacing = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let set_before = self.control().set.clone();
        let target = settings.first().map_or(Target::Stdout, |log| log.target.clone());
        let opened = self.open_channels(settings).map_err(|error| OpenError { target, error })?;
        let (channels, queue) = match opened {
            Some((channels, queue)) => (channels?, queue),
            None => return Ok(LogSet::default()),
        };
        let logs = settings.iter().zip(channels).map(|(settings, channel)| {
            let form = Form::new(settings);
            // What has not changed stays the same log, so that workers go on with their buffers.
            let kept = set_before.0.iter().find(|log| Arc::ptr_eq(&log.channel, &channel) && log.form == form);
            kept.cloned().unwrap_or_else(|| {
                let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
                Arc::new(Log { number, form, channel, queue: queue.clone() })
            })
        });
        let set = LogSet(logs.collect());
        self.control().set = set.clone();
        Ok(set)
    }

    /// Has the writer open the targets. `None` when there is no writer and none is needed.
    fn open_channels(&self, settings: &[LogSettings]) -> io::Result<Option<(Opened, SyncSender<Message>)>> {
        let queue = {
            let mut control = self.control();
            if settings.is_empty() && control.thread.is_none() {
                return Ok(None);
            }
            control.queue(&self.totals)?
        };
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let (answer, answered) = sync_channel(1);
        if send_until(&queue, Message::Replace(settings.to_vec(), answer), deadline).is_err() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the log writer is busy"));
        }
        match answered.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(opened) => Ok(Some((opened, queue))),
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the file system does not answer"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the log writer has ended")),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's side of the logs.
    pub fn worker(&self) -> WorkerLog {
        let control = self.control();
        WorkerLog::new(&control.set)
    }

    /// Opens the files anew by their names, after others have renamed them. Returns at once.
    pub fn reopen(&self) {
        self.totals.reopen.store(true, Ordering::Release);
        if let Some(thread) = &self.control().thread {
            // Where there is no room, the writer is awake and will look.
            let _ = thread.queue.try_send(Message::Wake);
        }
    }

    /// What each target of the present configuration has done, in the order of the logs; each once.
    pub fn counts(&self) -> Vec<LogCount> {
        let set = self.control().set.clone();
        let is_first =
            |index: usize, log: &Log| set.0[..index].iter().all(|earlier| !Arc::ptr_eq(&earlier.channel, &log.channel));
        let firsts = set.0.iter().enumerate().filter(|(index, log)| is_first(*index, log));
        let counts = firsts.map(|(_, log)| LogCount {
            target: log.channel.target.clone(),
            lines_written: log.channel.lines_written.load(Ordering::Relaxed),
            lines_lost: log.channel.lines_lost.load(Ordering::Relaxed),
            rotations: log.channel.rotations.load(Ordering::Relaxed),
        });
        counts.collect()
    }

    /// Lines that no target took, those of logs closed since included.
    pub fn lines_lost(&self) -> u64 {
        self.totals.lines_lost.load(Ordering::Relaxed)
    }

    /// Writes what is queued, waiting for it a few seconds at the most, and ends the writer. What comes later is lost
    /// and counted.
    pub fn close(&self) {
        let thread = {
            let mut control = self.control();
            control.closed = true;
            control.thread.take()
        };
        let Some(thread) = thread else { return };
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        if send_until(&thread.queue, Message::Close(deadline), deadline).is_ok() {
            // The writer ends by itself at the deadline, unless the kernel holds it.
            let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(500);
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
    /// The writer's queue; starts the writer if there is none.
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
        let writer = Writer::new(messages, Arc::clone(totals), warn);
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || {
            writer.run();
            drop(alive);
        })?;
        self.thread = Some(Thread { queue: queue.clone(), running });
        Ok(queue)
    }
}

type Opened = Result<Vec<Arc<Channel>>, OpenError>;
