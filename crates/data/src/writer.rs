//! The writing thread, which runs jobs in order and combines queued writes into one commit.

use crate::connection::Session;
use crate::database::{Counters, ReadJob};
use crate::limits::Limits;
use crate::pending::Promise;
use crate::queue::JobQueue;
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::transaction::{self, Transaction};
use crate::value::Statement;
use crate::writing::{Command, Writing};
use crate::{migration, statement};
use flatout_os::clock;
use rusqlite::wal::CheckpointMode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum number of writes per commit.
const BATCH_MAX: usize = 256;

/// Time after which a commit accepts no more writes, counted from the beginning of its first write.
const BATCH_MAX_TIME: Duration = Duration::from_millis(10);

/// Number of pages in the log above which a checkpoint is worthwhile, as by default in SQLite.
const CHECKPOINT_PAGES: u32 = 1_000;

/// Number of pages in the log above which it must restart, even if that means waiting for readers: 64 MiB.
const RESTART_PAGES: u32 = 16_000;

/// Maximum time to wait for readers. If they take longer, a later commit tries again.
const RESTART_WAIT: Duration = Duration::from_millis(100);

/// A job of the writer.
#[derive(Debug)]
pub(crate) enum WriteJob {
    /// A single statement.
    One(ReadJob),
    /// A batch transaction.
    Whole { statements: Vec<Statement>, limits: Limits, asked_at: Instant, promise: Promise<Vec<Rows>> },
    /// An interactive transaction.
    Begin { limits: Limits, asked_at: Instant, promise: Promise<Transaction> },
    /// The migrations in a folder.
    Migrate { folder: PathBuf, wait_until: Instant, promise: Promise<Vec<String>> },
    /// A request to sync every later commit to disk before it is reported.
    SyncCommits { wait_until: Instant, promise: Promise<()> },
}

/// The result of a job, which is reported after the commit.
enum WriteResult {
    Rows(Rows),
    Whole(Vec<Rows>),
}

impl WriteJob {
    pub(crate) fn queue_max(&self) -> usize {
        match self {
            Self::One(ask) => ask.limits.queue_max,
            Self::Whole { limits, .. } | Self::Begin { limits, .. } => limits.queue_max,
            Self::Migrate { .. } | Self::SyncCommits { .. } => usize::MAX,
        }
    }

    /// Refuses the job with this reason.
    pub(crate) fn refuse(self, reason: DataReason) {
        self.fail(reason.into());
    }

    fn fail(self, error: DataError) {
        match self {
            Self::One(ask) => ask.promise.keep(Err(error)),
            Self::Whole { promise, .. } => promise.keep(Err(error)),
            Self::Begin { promise, .. } => promise.keep(Err(error)),
            Self::Migrate { promise, .. } => promise.keep(Err(error)),
            Self::SyncCommits { promise, .. } => promise.keep(Err(error)),
        }
    }

    /// Returns whether the job can share a commit with other jobs.
    fn is_unit(&self) -> bool {
        matches!(self, Self::One(_) | Self::Whole { .. })
    }

    fn is_given_up(&self) -> bool {
        match self {
            Self::One(ask) => ask.promise.is_given_up(),
            Self::Whole { promise, .. } => promise.is_given_up(),
            Self::Begin { promise, .. } => promise.is_given_up(),
            Self::Migrate { promise, .. } => promise.is_given_up(),
            Self::SyncCommits { promise, .. } => promise.is_given_up(),
        }
    }

    fn wait_until(&self) -> Instant {
        match self {
            Self::One(ask) => ask.wait_until(),
            Self::Whole { limits, asked_at, .. } | Self::Begin { limits, asked_at, .. } => {
                *asked_at + Duration::from_millis(limits.wait_max_ms)
            }
            Self::Migrate { wait_until, .. } | Self::SyncCommits { wait_until, .. } => *wait_until,
        }
    }

    /// Returns the job if its result is still awaited and its deadline has not passed.
    fn in_time(self, counters: &Counters) -> Option<Self> {
        if self.is_given_up() {
            return None;
        }
        if clock::now() >= self.wait_until() {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            self.refuse(DataReason::QueueTimeout);
            return None;
        }
        Some(self)
    }

    /// Runs the job in an open transaction.
    fn run(&self, session: &Session) -> Result<WriteResult, DataError> {
        let run = |sql: &str, parameters, limits: &Limits| {
            let until = clock::now() + Duration::from_millis(limits.statement_max_ms);
            statement::write(session, sql, parameters, limits, until)
        };
        match self {
            Self::One(ask) => run(&ask.sql, &ask.parameters, &ask.limits).map(WriteResult::Rows),
            Self::Whole { statements, limits, .. } => statements
                .iter()
                .map(|statement| run(&statement.sql, &statement.parameters, limits))
                .collect::<Result<_, _>>()
                .map(WriteResult::Whole),
            Self::Begin { .. } | Self::Migrate { .. } | Self::SyncCommits { .. } => Err(DataReason::Failed.into()),
        }
    }

    /// Reports the result of the job.
    fn tell(self, outcome: Result<WriteResult, DataError>) {
        match (self, outcome) {
            (Self::One(ask), Ok(WriteResult::Rows(rows))) => ask.promise.keep(Ok(rows)),
            (Self::Whole { promise, .. }, Ok(WriteResult::Whole(rows))) => promise.keep(Ok(rows)),
            (job, Err(error)) => job.fail(error),
            (job, Ok(_)) => job.refuse(DataReason::Failed),
        }
    }
}

/// Runs jobs until the queue is closed.
pub(crate) fn run(writing: &Writing<'_>, queue: &JobQueue<WriteJob>, counters: &Counters) {
    let mut checkpoint_at = CHECKPOINT_PAGES;
    while let Some(job) = queue.pop() {
        let Some(job) = job.in_time(counters) else { continue };
        writing.session.bounds.wait_until(job.wait_until());
        // A panic is a defect. What it left open is rolled back below, and the thread continues with the next job.
        let _ = catch_unwind(AssertUnwindSafe(|| match job {
            WriteJob::Begin { limits, promise, .. } => transaction::lead(writing, limits, promise, counters),
            WriteJob::Migrate { folder, promise, .. } => promise.keep(migration::apply(writing.session, &folder)),
            WriteJob::SyncCommits { promise, .. } => promise.keep(writing.session.sync_commits()),
            job => batch(writing, job, queue, counters),
        }));
        writing.undo();
        checkpoint(writing.session, &mut checkpoint_at);
    }
}

/// Runs a job and queued jobs in one transaction, rolls back each job separately if it fails, and reports all results
/// after the commit. If the transaction as a whole fails (a full disk, ON CONFLICT ROLLBACK), a single job must be the
/// cause, so each job is then run in a separate transaction.
fn batch(writing: &Writing<'_>, first: WriteJob, queue: &JobQueue<WriteJob>, counters: &Counters) {
    if let Err(error) = writing.command(Command::Begin) {
        counters.failed.fetch_add(1, Ordering::Relaxed);
        return first.fail(error);
    }
    let started = clock::now();
    let mut done: Vec<(WriteJob, Result<WriteResult, DataError>)> = Vec::new();
    let mut next = Some(first);
    let mut whole = Ok(());
    while let Some(job) = next.take() {
        let outcome = writing.part(|| job.run(writing.session));
        done.push((job, outcome));
        if writing.is_over() {
            whole = Err(DataReason::TransactionEnded.into());
            break;
        }
        while next.is_none() && done.len() < BATCH_MAX && clock::since(started) < BATCH_MAX_TIME && writing.can_share()
        {
            let Some(job) = queue.pop_if(WriteJob::is_unit) else { break };
            next = job.in_time(counters);
        }
    }
    if whole.is_ok() {
        whole = writing.command(Command::Commit);
    }
    let Err(error) = whole else {
        counters.commits.fetch_add(1, Ordering::Relaxed);
        return done.into_iter().for_each(|(job, outcome)| tell(job, outcome, counters));
    };
    writing.undo();
    match <[_; 1]>::try_from(done) {
        // There was only one job, which failed itself or in its commit.
        Ok([(job, outcome)]) => tell(job, outcome.and(Err(error)), counters),
        Err(done) => done.into_iter().for_each(|(job, outcome)| again(writing, job, outcome, counters)),
    }
}

/// Runs a job again in a separate transaction, unless its own timeout made it fail: when SQLite stops a statement, it
/// rolls back the whole transaction.
fn again(writing: &Writing<'_>, job: WriteJob, outcome: Result<WriteResult, DataError>, counters: &Counters) {
    if outcome.as_ref().is_err_and(|error| error.reason == DataReason::StatementTimeout) {
        return tell(job, outcome, counters);
    }
    alone(writing, job, counters);
}

/// Runs a job in a separate transaction.
fn alone(writing: &Writing<'_>, job: WriteJob, counters: &Counters) {
    let Some(job) = job.in_time(counters) else { return };
    writing.session.bounds.wait_until(job.wait_until());
    let outcome = writing.command(Command::Begin).and_then(|()| job.run(writing.session));
    let outcome = outcome.and_then(|outcome| writing.command(Command::Commit).map(|()| outcome));
    match outcome {
        Ok(_) => drop(counters.commits.fetch_add(1, Ordering::Relaxed)),
        Err(_) => writing.undo(),
    }
    tell(job, outcome, counters);
}

fn tell(job: WriteJob, outcome: Result<WriteResult, DataError>, counters: &Counters) {
    let counter = if outcome.is_ok() { &counters.writes } else { &counters.failed };
    counter.fetch_add(1, Ordering::Relaxed);
    job.tell(outcome);
}

/// Copies the log into the file when the log has grown. Called after results have been reported.
fn checkpoint(session: &Session, at: &mut u32) {
    let pages = session.bounds.log_pages.load(Ordering::Relaxed);
    if pages < CHECKPOINT_PAGES {
        *at = CHECKPOINT_PAGES;
    }
    if pages < *at {
        return;
    }
    let mode = if pages < RESTART_PAGES {
        CheckpointMode::PASSIVE
    } else {
        session.bounds.wait_until(clock::now() + RESTART_WAIT);
        CheckpointMode::RESTART
    };
    // If a reader or a full disk prevents this, the next checkpoint tries again. Until then, the log grows.
    let _ = session.connection.wal_checkpoint_v2(None::<&str>, mode);
    *at = pages.saturating_add(CHECKPOINT_PAGES);
}

#[cfg(test)]
mod tests;
