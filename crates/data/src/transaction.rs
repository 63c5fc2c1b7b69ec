//! Interactive transactions: a page may inspect each result before the next statement.

use crate::database::Counters;
use crate::limits::Limits;
use crate::pending::{Pending, Promise, pair};
use crate::queue::{JobQueue, Next, RefusedJob};
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::statement;
use crate::value::Parameters;
use crate::writing::{Command, Writing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum queued statements of one transaction: a page usually awaits each.
const STEPS_MAX: usize = 64;

/// An interactive transaction. Its writes are visible to others only after [`commit`](Self::commit). Dropped without
/// it, or after [`Limits::transaction_max_ms`], it is rolled back.
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<Led>,
}

/// State shared by a transaction's handle and the writer.
#[derive(Debug)]
struct Led {
    steps: JobQueue<TransactionCommand>,
    limits: Limits,
    /// It ended by timeout rather than by an error.
    late: AtomicBool,
}

/// A request to a transaction.
#[derive(Debug)]
enum TransactionCommand {
    Execute { sql: Box<str>, parameters: Parameters, promise: Promise<Rows> },
    Commit(Promise<()>),
    Rollback(Promise<()>),
}

impl TransactionCommand {
    fn fail(self, error: DataError) {
        match self {
            Self::Execute { promise, .. } => promise.keep(Err(error)),
            Self::Commit(promise) | Self::Rollback(promise) => promise.keep(Err(error)),
        }
    }
}

impl Led {
    fn push(&self, step: TransactionCommand) {
        let (step, reason) = match self.steps.push(step, STEPS_MAX) {
            Ok(()) => return,
            Err(RefusedJob::Full(step)) => (step, DataReason::QueueFull),
            Err(RefusedJob::Closed(step)) => (step, self.ended()),
        };
        step.fail(reason.into());
    }

    /// Reason why it has ended.
    fn ended(&self) -> DataReason {
        if self.late.load(Ordering::Acquire) { DataReason::TransactionTimeout } else { DataReason::TransactionEnded }
    }

    /// Refuses queued and future requests.
    fn end(&self) {
        for step in self.steps.close() {
            step.fail(self.ended().into());
        }
    }
}

impl Transaction {
    /// Runs a statement, reading or writing. A failed statement has no effect and leaves the transaction open, unless
    /// SQLite rolls back everything: later statements then fail with [`DataReason::TransactionEnded`].
    pub fn execute(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let (promise, pending) = pair();
        self.shared.push(TransactionCommand::Execute { sql: sql.into(), parameters, promise });
        pending
    }

    /// Commits. On an error nothing was committed.
    pub fn commit(self) -> Pending<()> {
        let (promise, pending) = pair();
        self.shared.push(TransactionCommand::Commit(promise));
        pending
    }

    /// Rolls back. Dropping does the same, without confirmation.
    pub fn rollback(self) -> Pending<()> {
        let (promise, pending) = pair();
        self.shared.push(TransactionCommand::Rollback(promise));
        pending
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.shared.steps.finish();
    }
}

/// Runs a transaction on the writer's thread from beginning to end.
pub(crate) fn lead(writing: &Writing<'_>, limits: Limits, promise: Promise<Transaction>, counters: &Counters) {
    if let Err(error) = writing.command(Command::Begin) {
        counters.failed.fetch_add(1, Ordering::Relaxed);
        return promise.keep(Err(error));
    }
    counters.transactions.fetch_add(1, Ordering::Relaxed);
    let until = Instant::now() + Duration::from_millis(limits.transaction_max_ms);
    let led = Arc::new(Led { steps: JobQueue::new(), limits, late: AtomicBool::new(false) });
    promise.keep(Ok(Transaction { shared: Arc::clone(&led) }));
    let last = follow(writing, &led, until, counters);
    if let Some(TransactionCommand::Commit(promise)) = last {
        let committed = writing.command(Command::Commit);
        writing.undo();
        led.end();
        return promise.keep(committed);
    }
    writing.undo();
    led.end();
    if let Some(TransactionCommand::Rollback(promise)) = last {
        promise.keep(Ok(()));
    }
}

/// Runs statements until the transaction ends. Returns the request that ended it, if any.
fn follow(writing: &Writing<'_>, led: &Led, until: Instant, counters: &Counters) -> Option<TransactionCommand> {
    loop {
        match led.steps.pop_until(Some(until)) {
            Next::Job(step @ TransactionCommand::Execute { .. }) if Instant::now() >= until => {
                led.late.store(true, Ordering::Release);
                step.fail(led.ended().into());
                return None;
            }
            Next::Job(TransactionCommand::Execute { sql, parameters, promise }) => {
                let run_until = until.min(Instant::now() + Duration::from_millis(led.limits.statement_max_ms));
                let answer =
                    writing.part(|| statement::write(writing.session, &sql, &parameters, &led.limits, run_until));
                counters.failed.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
                let ended = writing.is_over();
                if ended {
                    // Before the page is notified, so that later requests fail consistently.
                    led.end();
                }
                promise.keep(answer);
                if ended {
                    return None;
                }
            }
            Next::Job(last) => return Some(last),
            Next::Late => {
                led.late.store(true, Ordering::Release);
                return None;
            }
            Next::Closed => return None,
        }
    }
}

#[cfg(test)]
mod tests;
