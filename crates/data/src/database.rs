//! A database file, which is opened once per process and shared by all workers.

use crate::connection::{Role, Session};
use crate::limits::Limits;
use crate::pending::{Pending, Promise, pair, ready};
use crate::queue::{JobQueue, RefusedJob};
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::transaction::Transaction;
use crate::value::{Parameters, Statement};
use crate::writer::WriteJob;
use crate::writing::Writing;
use crate::{reader, writer};
use flatout_os::clock;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of readers per file.
const READERS_MAX: usize = 64;

/// Total size of the page caches of a file's readers, and minimum size of each, in KiB.
const CACHE_KIB: u32 = 64 * 1024;
const CACHE_KIB_MIN: u32 = 4 * 1024;

/// A handle of a database file, which is cheap to clone and can be shared among threads. All handles of a file share
/// its single writer and its readers, but each handle has separate limits. Dropping the last handle closes the file.
#[derive(Clone, Debug)]
pub struct Database {
    file: Arc<File>,
    limits: Limits,
}

/// Numbers of events of a database since it was opened, over all handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of statements run by readers.
    pub reads: u64,
    /// Number of statements and batch transactions run by the writer.
    pub writes: u64,
    /// Number of commits of these. Concurrent writes share a commit.
    pub commits: u64,
    /// Number of interactive transactions started.
    pub transactions: u64,
    /// Number of statements that failed.
    pub failed: u64,
}

/// An open file. Dropping it ends its threads.
#[derive(derive_more::Debug)]
#[debug("File({})", path.display())]
struct File {
    path: PathBuf,
    /// The device and the inode of the file; `None` if they could not be read.
    identity: Option<(u64, u64)>,
    shared: Arc<DatabaseShared>,
}

/// State that the threads and handles of a file share.
#[derive(Debug)]
pub(crate) struct DatabaseShared {
    pub(crate) reads: JobQueue<ReadJob>,
    writes: JobQueue<WriteJob>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) counters: Counters,
}

/// The atomic form of [`Counts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// A queued statement.
#[derive(Debug)]
pub(crate) struct ReadJob {
    pub(crate) sql: Box<str>,
    pub(crate) parameters: Parameters,
    pub(crate) limits: Limits,
    pub(crate) asked_at: Instant,
    pub(crate) promise: Promise<Rows>,
}

impl ReadJob {
    /// The deadline for starting the statement.
    pub(crate) fn wait_until(&self) -> Instant {
        self.asked_at + Duration::from_millis(self.limits.wait_max_ms)
    }

    /// Returns the job if its result is still awaited and its deadline has not passed.
    pub(crate) fn in_time(self, counters: &Counters) -> Option<Self> {
        if self.promise.is_given_up() {
            return None;
        }
        if clock::now() >= self.wait_until() {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            self.promise.keep(Err(DataReason::QueueTimeout.into()));
            return None;
        }
        Some(self)
    }
}

impl Database {
    /// Opens the file, or creates it in an existing folder, with at least `readers` reading threads. Blocks on the
    /// disk, and on another process's lock for up to `limits.wait_max_ms`, so call it when the server starts, not on
    /// its event loop. A file that is already open in this process is shared.
    pub fn open(path: &Path, readers: usize, limits: Limits) -> Result<Self, DataError> {
        let path = absolute(path)?;
        let mut files = lock(FILES.get_or_init(Mutex::default));
        let file = if let Some(file) = files.get(&path).and_then(Weak::upgrade) {
            file
        } else {
            let file = Arc::new(File::open(path.clone(), limits)?);
            files.retain(|_, file| file.strong_count() > 0);
            files.insert(path, Arc::downgrade(&file));
            file
        };
        drop(files);
        file.read_with(readers.clamp(1, READERS_MAX), limits)?;
        Ok(Self { file, limits })
    }

    /// Applies the pending migrations `NNN_name.sql` of a folder in order, each in a separate transaction. Returns the
    /// names of those that it has applied. Blocks like `open`.
    pub fn migrate(&self, folder: &Path) -> Result<Vec<String>, DataError> {
        let (promise, pending) = pair();
        let wait_until = clock::now() + Duration::from_millis(self.limits.wait_max_ms);
        self.file.shared.write(WriteJob::Migrate { folder: folder.to_owned(), wait_until, promise });
        pending.wait()
    }

    /// Makes sure that every later commit has reached the disk before it is reported, for all handles of the file.
    /// Blocks like `open`.
    pub fn sync_commits(&self) -> Result<(), DataError> {
        let (promise, pending) = pair();
        let wait_until = clock::now() + Duration::from_millis(self.limits.wait_max_ms);
        self.file.shared.write(WriteJob::SyncCommits { wait_until, promise });
        pending.wait()
    }

    /// Returns whether another file now has the path. What is written then is lost, or overwrites the other file.
    pub fn is_replaced(&self) -> bool {
        let now = identity_of(&self.file.path);
        self.file.identity.is_some_and(|opened| now.is_some_and(|now| now != opened))
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Runs a read-only statement on a reader. A statement that writes is forwarded to the writer, which adds latency.
    pub fn query(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let (ask, pending) = self.ask(sql, parameters);
        if let Err(refused) = self.file.shared.reads.push(ask, self.limits.queue_max) {
            let (ask, reason) = match refused {
                RefusedJob::Full(ask) => (ask, DataReason::QueueFull),
                RefusedJob::Closed(ask) => (ask, DataReason::Stopped),
            };
            self.file.shared.counters.failed.fetch_add(1, Ordering::Relaxed);
            ask.promise.keep(Err(reason.into()));
        }
        pending
    }

    /// Runs a statement on the writer, as if in a separate transaction. It has been committed when the result arrives.
    pub fn execute(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let (ask, pending) = self.ask(sql, parameters);
        self.file.shared.write(WriteJob::One(ask));
        pending
    }

    /// Runs statements in one transaction. If one fails, none has an effect. The result contains one [`Rows`] for each
    /// statement.
    pub fn transaction(&self, statements: Vec<Statement>) -> Pending<Vec<Rows>> {
        if statements.is_empty() {
            return ready(Ok(Vec::new()));
        }
        let (promise, pending) = pair();
        self.file.shared.write(WriteJob::Whole { statements, limits: self.limits, asked_at: clock::now(), promise });
        pending
    }

    /// Begins an interactive transaction, whose statements may depend on earlier results. It occupies the only writer
    /// until it ends, so it should consist of few statements. Awaiting another write to the same database inside the
    /// transaction causes a deadlock until [`Limits::transaction_max_ms`] ends both.
    pub fn begin(&self) -> Pending<Transaction> {
        let (promise, pending) = pair();
        self.file.shared.write(WriteJob::Begin { limits: self.limits, asked_at: clock::now(), promise });
        pending
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.file.shared.counters;
        Counts {
            reads: counters.reads.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
            transactions: counters.transactions.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
        }
    }

    fn ask(&self, sql: &str, parameters: Parameters) -> (ReadJob, Pending<Rows>) {
        let (promise, pending) = pair();
        (ReadJob { sql: sql.into(), parameters, limits: self.limits, asked_at: clock::now(), promise }, pending)
    }
}

impl DatabaseShared {
    /// Queues a job for the writer, or refuses it if the queue is full or closed.
    pub(crate) fn write(&self, job: WriteJob) {
        let jobs_max = job.queue_max();
        let (job, reason) = match self.writes.push(job, jobs_max) {
            Ok(()) => return,
            Err(RefusedJob::Full(job)) => (job, DataReason::QueueFull),
            Err(RefusedJob::Closed(job)) => (job, DataReason::Stopped),
        };
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        job.refuse(reason);
    }
}

impl File {
    /// Opens the file and starts its writer, but no readers.
    fn open(path: PathBuf, limits: Limits) -> Result<Self, DataError> {
        let session = Session::open(&path, Role::Writer, wait_until(limits))?;
        let shared = Arc::new(DatabaseShared {
            reads: JobQueue::new(),
            writes: JobQueue::new(),
            readers: Mutex::default(),
            counters: Counters::default(),
        });
        let theirs = Arc::clone(&shared);
        // The commands are prepared here to report errors. The thread prepares its own again.
        drop(Writing::new(&session)?);
        spawn("db-writer", move || {
            if let Ok(writing) = Writing::new(&session) {
                writer::run(&writing, &theirs.writes, &theirs.counters);
            }
            for job in theirs.writes.close() {
                job.refuse(DataReason::Stopped);
            }
            // The last connection to close copies the log into the file, which a reader cannot do. So the writer waits
            // for the readers.
            let readers = std::mem::take(&mut *lock(&theirs.readers));
            for reader in readers {
                let _ = reader.join();
            }
        })?;
        Ok(Self { identity: identity_of(&path), path, shared })
    }

    /// Starts readers until there are `count`.
    fn read_with(&self, count: usize, limits: Limits) -> Result<(), DataError> {
        let mut readers = lock(&self.shared.readers);
        let cache_kib = (CACHE_KIB / count as u32).max(CACHE_KIB_MIN);
        while readers.len() < count {
            let session = Session::open(&self.path, Role::Reader { cache_kib }, wait_until(limits))?;
            let shared = Arc::clone(&self.shared);
            readers.push(spawn("db-reader", move || reader::run(&session, &shared))?);
        }
        Ok(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        for ask in self.shared.reads.close() {
            ask.promise.keep(Err(DataReason::Stopped.into()));
        }
        for job in self.shared.writes.close() {
            job.refuse(DataReason::Stopped);
        }
    }
}

/// The open files of this process, by absolute path.
static FILES: OnceLock<Mutex<HashMap<PathBuf, Weak<File>>>> = OnceLock::new();

/// Ignores poisoning: every change is a single step, so the state is consistent after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_until(limits: Limits) -> Instant {
    clock::now() + Duration::from_millis(limits.wait_max_ms)
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, DataError> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| DataError::new(DataReason::MemoryFull, format!("no thread: {error}")))
}

/// Returns the canonical path of a file that may not exist, in a folder that must exist.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

fn absolute(path: &Path) -> Result<PathBuf, DataError> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let missing = |detail: String| DataError::new(DataReason::FileMissing, detail);
    let name = path.file_name().ok_or_else(|| missing(format!("{} is not a file name", path.display())))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().map_err(|error| missing(format!("{}: {error}", folder.display())))?;
    Ok(folder.join(name))
}

#[cfg(test)]
mod tests;
