//! The thread that writes: one job after another, and as many as wait in one commit.

use crate::connection::Session;
use crate::database::{Ask, Counters};
use crate::limits::Limits;
use crate::pending::Promise;
use crate::queue::Queue;
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::transaction::{self, Transaction};
use crate::value::Statement;
use crate::writing::{Command, Writing};
use crate::{migration, statement};
use rusqlite::wal::CheckpointMode;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Writes that share a commit at the most.
const BATCH_MAX: usize = 256;

/// A commit takes in no more writes when the first has waited this long for it.
const BATCH_MAX_TIME: Duration = Duration::from_millis(10);

/// Pages of the log of changes that are worth copying into the file: SQLite's own default.
const CHECKPOINT_PAGES: u32 = 1_000;

/// Pages at which the log must begin anew, though readers have to be waited for: 64 MiB.
const RESTART_PAGES: u32 = 16_000;

/// How long they are waited for: a query that takes longer leaves it to the next commit.
const RESTART_WAIT: Duration = Duration::from_millis(100);

/// What the writer does.
#[derive(Debug)]
pub(crate) enum Job {
    /// A statement.
    One(Ask),
    /// Statements that hold together.
    Whole { statements: Vec<Statement>, limits: Limits, asked_at: Instant, promise: Promise<Vec<Rows>> },
    /// A transaction that a page leads.
    Begin { limits: Limits, asked_at: Instant, promise: Promise<Transaction> },
    /// The changes of a folder.
    Migrate { folder: PathBuf, wait_until: Instant, promise: Promise<Vec<String>> },
    /// From now on, every commit is on disk before it is reported.
    SyncCommits { wait_until: Instant, promise: Promise<()> },
}

/// A job that has run and is told of when it is committed.
enum Outcome {
    Rows(Rows),
    Whole(Vec<Rows>),
}

impl Job {
    pub(crate) fn queue_max(&self) -> usize {
        match self {
            Self::One(ask) => ask.limits.queue_max,
            Self::Whole { limits, .. } | Self::Begin { limits, .. } => limits.queue_max,
            Self::Migrate { .. } | Self::SyncCommits { .. } => usize::MAX,
        }
    }

    /// Says that it will not be done.
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

    /// True: it can share a commit with others.
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

    /// Itself, while somebody waits for it and has not waited for too long.
    fn in_time(self, counters: &Counters) -> Option<Self> {
        if self.is_given_up() {
            return None;
        }
        if Instant::now() >= self.wait_until() {
            counters.failed.fetch_add(1, Ordering::Relaxed);
            self.refuse(DataReason::QueueTimeout);
            return None;
        }
        Some(self)
    }

    /// Runs it, in a transaction that is begun.
    fn run(&self, session: &Session) -> Result<Outcome, DataError> {
        let run = |sql: &str, parameters, limits: &Limits| {
            let until = Instant::now() + Duration::from_millis(limits.statement_max_ms);
            statement::write(session, sql, parameters, limits, until)
        };
        match self {
            Self::One(ask) => run(&ask.sql, &ask.parameters, &ask.limits).map(Outcome::Rows),
            Self::Whole { statements, limits, .. } => statements
                .iter()
                .map(|statement| run(&statement.sql, &statement.parameters, limits))
                .collect::<Result<_, _>>()
                .map(Outcome::Whole),
            Self::Begin { .. } | Self::Migrate { .. } | Self::SyncCommits { .. } => Err(DataReason::Failed.into()),
        }
    }

    /// Tells what became of it.
    fn tell(self, outcome: Result<Outcome, DataError>) {
        match (self, outcome) {
            (Self::One(ask), Ok(Outcome::Rows(rows))) => ask.promise.keep(Ok(rows)),
            (Self::Whole { promise, .. }, Ok(Outcome::Whole(rows))) => promise.keep(Ok(rows)),
            (job, Err(error)) => job.fail(error),
            (job, Ok(_)) => job.refuse(DataReason::Failed),
        }
    }
}

/// Does what is asked until the queue is closed.
pub(crate) fn run(writing: &Writing<'_>, queue: &Queue<Job>, counters: &Counters) {
    let mut checkpoint_at = CHECKPOINT_PAGES;
    while let Some(job) = queue.pop() {
        let Some(job) = job.in_time(counters) else { continue };
        writing.session.bounds.wait_until(job.wait_until());
        // A panic is a defect; what it left open is undone, and the others shall be answered all the same.
        let _ = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Begin { limits, promise, .. } => transaction::lead(writing, limits, promise, counters),
            Job::Migrate { folder, promise, .. } => promise.keep(migration::apply(writing.session, &folder)),
            Job::SyncCommits { promise, .. } => promise.keep(writing.session.sync_commits()),
            job => batch(writing, job, queue, counters),
        }));
        writing.undo();
        checkpoint(writing.session, &mut checkpoint_at);
    }
}

/// Runs a job and those that wait behind it in one transaction, each undone alone when it fails, and tells all of
/// them when it is committed. What befalls the transaction as a whole (a full disk, ON CONFLICT ROLLBACK) must be the
/// fault of one: then each gets a transaction of its own.
fn batch(writing: &Writing<'_>, first: Job, queue: &Queue<Job>, counters: &Counters) {
    if let Err(error) = writing.command(Command::Begin) {
        counters.failed.fetch_add(1, Ordering::Relaxed);
        return first.fail(error);
    }
    let started = Instant::now();
    let mut done: Vec<(Job, Result<Outcome, DataError>)> = Vec::new();
    let mut next = Some(first);
    let mut whole = Ok(());
    while let Some(job) = next.take() {
        let outcome = writing.part(|| job.run(writing.session));
        done.push((job, outcome));
        if writing.is_over() {
            whole = Err(DataReason::TransactionEnded.into());
            break;
        }
        while next.is_none() && done.len() < BATCH_MAX && started.elapsed() < BATCH_MAX_TIME && writing.can_share() {
            let Some(job) = queue.pop_if(Job::is_unit) else { break };
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
        // It failed, or its commit did.
        Ok([(job, outcome)]) => tell(job, outcome.and(Err(error)), counters),
        Err(done) => done.into_iter().for_each(|(job, outcome)| again(writing, job, outcome, counters)),
    }
}

/// Runs a job once more, alone, unless its fault was its own length: SQLite undoes all when it stops one.
fn again(writing: &Writing<'_>, job: Job, outcome: Result<Outcome, DataError>, counters: &Counters) {
    if outcome.as_ref().is_err_and(|error| error.reason == DataReason::StatementTimeout) {
        return tell(job, outcome, counters);
    }
    alone(writing, job, counters);
}

/// Runs a job in a transaction of its own.
fn alone(writing: &Writing<'_>, job: Job, counters: &Counters) {
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

fn tell(job: Job, outcome: Result<Outcome, DataError>, counters: &Counters) {
    let counter = if outcome.is_ok() { &counters.writes } else { &counters.failed };
    counter.fetch_add(1, Ordering::Relaxed);
    job.tell(outcome);
}

/// Copies the log of changes into the file when it has grown, after whoever wrote has been told.
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
        session.bounds.wait_until(Instant::now() + RESTART_WAIT);
        CheckpointMode::RESTART
    };
    // What keeps it from being done, a reader or a full disk, is met again by the next; the log just grows.
    let _ = session.connection.wal_checkpoint_v2(None::<&str>, mode);
    *at = pages.saturating_add(CHECKPOINT_PAGES);
}

#[cfg(test)]
mod tests;
