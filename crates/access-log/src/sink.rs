//! One target of the writer: its pending lines, and the handling of failures.

use super::failure::OpenError;
use super::file::FileTarget;
use super::logs::Warn;
use super::queue::{Channel, Chunk, Totals};
use super::stream::StreamTarget;
use super::syslog::SyslogTarget;
use super::worker::recycle;
use flatout_http::access::{LogDestination, LogSettings, Rotation};
use rustix::fs::Access;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum size of the lines pending for a slow target, in bytes.
const PENDING_BYTES_MAX: usize = 1024 * 1024;

/// Number of seconds without lost lines after which a target has recovered. Without this delay, a reader at its limit
/// would cause a message every second.
const RECOVERY_S: i64 = 5;

/// Maximum time in which a removed target may write its pending lines, in seconds.
const RETIRED_S: i64 = 5;

/// The result of a write.
#[derive(Debug)]
pub(super) struct Written {
    /// Number of bytes written. After a failure, these bytes end with a whole line.
    pub(super) bytes: usize,
    pub(super) stop: Option<IncompleteWrite>,
}

/// Why a write was incomplete.
#[derive(Debug)]
pub(super) enum IncompleteWrite {
    /// The target would block.
    Blocked,
    /// The next line could not be written.
    Failed(io::Error),
}

#[derive(Debug)]
enum Outlet {
    File(FileTarget),
    Stream(StreamTarget),
    Syslog(SyslogTarget),
}

/// One target.
#[derive(Debug)]
pub(super) struct Sink {
    target: LogDestination,
    /// Mode of a new file.
    mode: u32,
    outlet: Outlet,
    channel: Arc<Channel>,
    pending: VecDeque<Chunk>,
    pending_bytes: usize,
    /// Number of bytes of the first pending chunk that were written.
    taken: usize,
    /// True if the target has accepted bytes since the last check.
    progress: bool,
    trouble: Option<Trouble>,
    /// The channel's count of lost lines at the last check.
    lines_lost_seen: u64,
    /// Time at which the target was removed.
    retired_s: Option<i64>,
}

/// The failure or slowness of a target.
#[derive(Debug)]
struct Trouble {
    lines_lost_before: u64,
    latest_loss_s: i64,
    works_again: bool,
}

impl Sink {
    /// Opens the target of `settings`.
    pub(super) fn open(settings: &LogSettings, totals: &Arc<Totals>, unix_s: i64) -> Result<Self, OpenError> {
        let target = settings.target.clone();
        let outlet = Outlet::open(&target, (settings.rotation, settings.mode), unix_s)
            .map_err(|error| OpenError { target: target.clone(), error })?;
        let channel = Arc::new(Channel {
            target: target.clone(),
            lines_written: AtomicU64::new(0),
            lines_lost: AtomicU64::new(0),
            rotations: AtomicU64::new(0),
            totals: Arc::clone(totals),
        });
        Ok(Self {
            target,
            mode: settings.mode,
            outlet,
            channel,
            pending: VecDeque::new(),
            pending_bytes: 0,
            taken: 0,
            progress: false,
            trouble: None,
            lines_lost_seen: 0,
            retired_s: None,
        })
    }

    pub(super) const fn target(&self) -> &LogDestination {
        &self.target
    }

    pub(super) const fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    pub(super) fn is_of(&self, channel: &Arc<Channel>) -> bool {
        Arc::ptr_eq(&self.channel, channel)
    }

    /// Marks the target as configured with this rotation, or as removed if `rotation` is `None`.
    pub(super) fn keep(&mut self, rotation: Option<Rotation>, unix_s: i64) {
        self.retired_s = rotation.is_none().then(|| self.retired_s.unwrap_or(unix_s));
        if let (Outlet::File(file), Some(rotation)) = (&mut self.outlet, rotation) {
            file.set_rotation(rotation);
        }
    }

    /// Returns whether the target was removed and has no senders left.
    pub(super) fn is_over(&self) -> bool {
        self.retired_s.is_some() && self.pending.is_empty() && Arc::strong_count(&self.channel) == 1
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) const fn take_progress(&mut self) -> bool {
        std::mem::replace(&mut self.progress, false)
    }

    pub(super) const fn needs_looks(&self) -> bool {
        let ages = matches!(&self.outlet, Outlet::File(file) if file.ages());
        ages || self.retired_s.is_some() || self.trouble.is_some()
    }

    /// Writes or queues `chunk`.
    pub(super) fn handle_chunk(&mut self, chunk: Chunk, unix_s: i64, warn: &Warn) {
        if self.pending_bytes + chunk.bytes.len() > PENDING_BYTES_MAX && !self.pending.is_empty() {
            // Pending lines are older, and may be partially written.
            self.write_pending(unix_s, warn);
            if self.pending_bytes + chunk.bytes.len() > PENDING_BYTES_MAX && !self.pending.is_empty() {
                self.lose(chunk.lines, "its reader cannot keep up", unix_s, warn);
                recycle(chunk);
                return;
            }
        }
        self.pending_bytes += chunk.bytes.len();
        self.pending.push_back(chunk);
        self.write_pending(unix_s, warn);
    }

    fn write_pending(&mut self, unix_s: i64, warn: &Warn) {
        while let Some(chunk) = self.pending.front() {
            let written = self.outlet.write(&chunk.bytes[self.taken..], unix_s);
            // Before the lines are counted, so that the count of lines never runs ahead of that of rotations.
            if let Outlet::File(file) = &mut self.outlet {
                self.channel.rotations.fetch_add(file.take_rotations(), Ordering::Relaxed);
            }
            self.taken += written.bytes;
            self.progress |= written.bytes > 0;
            let lost = match written.stop {
                None => None,
                Some(IncompleteWrite::Blocked) => return,
                Some(IncompleteWrite::Failed(error)) => Some(error),
            };
            let Some(lines_left) = self.end_chunk() else { return };
            match lost {
                Some(error) => self.lose(lines_left, &error.to_string(), unix_s, warn),
                None => self.note_success(),
            }
        }
    }

    /// Removes the first pending chunk. Returns how many of its lines were not written.
    fn end_chunk(&mut self) -> Option<u64> {
        let chunk = self.pending.pop_front()?;
        let left = &chunk.bytes[std::mem::take(&mut self.taken)..];
        let lines_left = left.split_inclusive(|&byte| byte == b'\n').count() as u64;
        self.pending_bytes -= chunk.bytes.len();
        self.channel.lines_written.fetch_add(chunk.lines.saturating_sub(lines_left), Ordering::Release);
        recycle(chunk);
        Some(lines_left)
    }

    fn lose(&mut self, lines: u64, why: &str, unix_s: i64, warn: &Warn) {
        self.channel.count_lost(lines);
        self.lines_lost_seen += lines;
        self.begin_trouble(self.lines_lost_seen - lines, why, unix_s, warn);
    }

    fn begin_trouble(&mut self, lines_lost_before: u64, why: &str, unix_s: i64, warn: &Warn) {
        if self.trouble.is_none() {
            warn(&format!("the access log {} cannot be written ({why}); new lines are lost", self.target));
        }
        let trouble =
            self.trouble.get_or_insert(Trouble { lines_lost_before, latest_loss_s: unix_s, works_again: false });
        trouble.latest_loss_s = unix_s;
        trouble.works_again = false;
    }

    const fn note_success(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.works_again = true;
        }
    }

    /// Retries pending lines, and handles rotation by age, recovery and removal.
    pub(super) fn look(&mut self, unix_s: i64, warn: &Warn) {
        self.write_pending(unix_s, warn);
        if self.retired_s.is_some_and(|since_s| unix_s.saturating_sub(since_s) >= RETIRED_S) {
            self.give_up();
        }
        // Workers lose lines if the queue is full.
        let lines_lost = self.channel.lines_lost.load(Ordering::Relaxed);
        if lines_lost > self.lines_lost_seen {
            let lines_lost_before = std::mem::replace(&mut self.lines_lost_seen, lines_lost);
            self.begin_trouble(lines_lost_before, "lines arrive faster than they can be written", unix_s, warn);
            self.note_success();
        }
        if let Some(trouble) = &self.trouble {
            let quiet_s = unix_s.saturating_sub(trouble.latest_loss_s);
            if trouble.works_again && self.pending.is_empty() && !(0..RECOVERY_S).contains(&quiet_s) {
                let lost = self.channel.lines_lost.load(Ordering::Relaxed) - trouble.lines_lost_before;
                warn(&format!("the access log {} can be written again; lines lost: {lost}", self.target));
                self.trouble = None;
            }
        }
        if let Outlet::File(file) = &mut self.outlet {
            file.handle_time(unix_s);
            self.channel.rotations.fetch_add(file.take_rotations(), Ordering::Relaxed);
            if let Some(complaint) = file.take_complaint() {
                warn(&complaint);
            }
        }
    }

    /// Reopens the target by name. If that fails, the old file remains in use.
    pub(super) fn reopen(&mut self, unix_s: i64, warn: &Warn) {
        self.look(unix_s, warn);
        // A partially written chunk must be completed in the file where it began. Standard output has no name.
        if self.taken > 0 || self.target == LogDestination::Stdout {
            return;
        }
        let rotation = match &self.outlet {
            Outlet::File(file) => file.rotation(),
            Outlet::Stream(_) | Outlet::Syslog(_) => Rotation::default(),
        };
        match Outlet::open(&self.target, (rotation, self.mode), unix_s) {
            Ok(outlet) => self.outlet = outlet,
            Err(error) => {
                warn(&format!(
                    "cannot reopen the access log {} ({error}); logging continues to the old file",
                    self.target
                ));
            }
        }
    }

    /// Counts all pending lines as lost.
    pub(super) fn give_up(&mut self) {
        while let Some(lines_left) = self.end_chunk() {
            self.channel.count_lost(lines_left);
            self.lines_lost_seen += lines_left;
        }
    }
}

/// Returns the targets that [`Logs::open`](crate::Logs::open) could not open, for `flatout validate`. Creates and changes
/// nothing.
pub fn find_unusable(settings: &[LogSettings]) -> Vec<OpenError> {
    let check = |log: &LogSettings| {
        let error = Outlet::check(&log.target).err()?;
        Some(OpenError { target: log.target.clone(), error })
    };
    settings.iter().filter_map(check).collect()
}

impl Outlet {
    fn open(target: &LogDestination, (rotation, mode): (Rotation, u32), unix_s: i64) -> io::Result<Self> {
        match target {
            LogDestination::File(path) => Self::open_path(path, (rotation, mode), unix_s),
            LogDestination::Stdout => {
                let file = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 0).map(File::from)?;
                Ok(if file.metadata()?.is_file() {
                    Self::File(FileTarget::of_stdout(file))
                } else {
                    Self::Stream(StreamTarget::new(file))
                })
            }
            LogDestination::Syslog(path) => SyslogTarget::open(path).map(Self::Syslog),
        }
    }

    /// Checks that [`Self::open`] would succeed, but creates and changes nothing.
    fn check(target: &LogDestination) -> io::Result<()> {
        match target {
            LogDestination::Stdout => Ok(()),
            LogDestination::Syslog(path) => SyslogTarget::open(path).map(drop),
            LogDestination::File(path) if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            LogDestination::File(path) => match rustix::fs::access(path, Access::WRITE_OK) {
                Err(Errno::NOENT) => {
                    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                    let folder = folder.unwrap_or(Path::new("."));
                    Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
                }
                result => Ok(result?),
            },
        }
    }

    fn open_path(path: &Path, (rotation, mode): (Rotation, u32), unix_s: i64) -> io::Result<Self> {
        // If a FIFO is opened write-only, the call blocks until there is a reader. If it is opened this way, it never
        // blocks.
        if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
            let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
            return Ok(Self::Stream(StreamTarget::new(file)));
        }
        let file = OpenOptions::new().append(true).create(true).mode(mode).open(path)?;
        let metadata = file.metadata()?;
        Ok(if metadata.is_file() {
            Self::File(FileTarget::new(path, file, &metadata, rotation, unix_s))
        } else {
            Self::Stream(StreamTarget::new(file))
        })
    }

    fn write(&mut self, bytes: &[u8], unix_s: i64) -> Written {
        match self {
            Self::File(file) => file.write(bytes, unix_s),
            Self::Stream(stream) => stream.write(bytes),
            Self::Syslog(syslog) => syslog.write(bytes, unix_s),
        }
    }
}
