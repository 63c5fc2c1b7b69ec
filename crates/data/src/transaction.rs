//! Interactive transactions, in which a page can inspect each result before it runs the next statement.

use crate::database::Counters;
use crate::limits::Limits;
use crate::pending::{Pending, Promise, pair};
use crate::queue::{JobQueue, Next, RefusedJob};
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::statement;
use crate::value::Parameters;
use crate::writing::{Command, Writing};
use flatout_os::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of queued statements in one transaction. A page usually awaits each statement.
const STEPS_MAX: usize = 64;

/// An interactive transaction. Its writes are visible to others only after [`commit`](Self::commit). If it is dropped
/// before that, or when [`Limits::transaction_max_ms`] has passed, it is rolled back.
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<Led>,
}

/// State that a transaction's handle and the writer share.
#[derive(Debug)]
struct Led {
    steps: JobQueue<TransactionCommand>,
    limits: Limits,
    /// True if the transaction ended because of its timeout rather than an error.
    late: AtomicBool,
}

/// A request to the writer in a transaction.
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

    /// The reason why the transaction has ended.
    fn ended(&self) -> DataReason {
        if self.late.load(Ordering::Acquire) { DataReason::TransactionTimeout } else { DataReason::TransactionEnded }
    }

    /// Refuses all queued and future requests.
    fn end(&self) {
        for step in self.steps.close() {
            step.fail(self.ended().into());
        }
    }
}

impl Transaction {
    /// Runs a statement that reads or writes. A failed statement has no effect and leaves the transaction open, unless
    /// SQLite rolls back the whole transaction. In that case, later statements fail with
    /// [`DataReason::TransactionEnded`].
    pub fn execute(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let (promise, pending) = pair();
        self.shared.push(TransactionCommand::Execute { sql: sql.into(), parameters, promise });
        pending
    }

    /// Commits the transaction. If this fails, nothing was committed.
    pub fn commit(self) -> Pending<()> {
        let (promise, pending) = pair();
        self.shared.push(TransactionCommand::Commit(promise));
        pending
    }

    /// Rolls back the transaction. Dropping it does the same, without confirmation.
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

/// Runs a transaction on the writer's thread, from beginning to end.
pub(crate) fn lead(writing: &Writing<'_>, limits: Limits, promise: Promise<Transaction>, counters: &Counters) {
    if let Err(error) = writing.command(Command::Begin) {
        counters.failed.fetch_add(1, Ordering::Relaxed);
        return promise.keep(Err(error));
    }
    counters.transactions.fetch_add(1, Ordering::Relaxed);
    let until = clock::now() + Duration::from_millis(limits.transaction_max_ms);
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
            Next::Job(step @ TransactionCommand::Execute { .. }) if clock::now() >= until => {
                led.late.store(true, Ordering::Release);
                step.fail(led.ended().into());
                return None;
            }
            Next::Job(TransactionCommand::Execute { sql, parameters, promise }) => {
                let run_until = until.min(clock::now() + Duration::from_millis(led.limits.statement_max_ms));
                let answer =
                    writing.part(|| statement::write(writing.session, &sql, &parameters, &led.limits, run_until));
                counters.failed.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
                let ended = writing.is_over();
                if ended {
                    // The transaction is ended before the page gets the result, so that later requests fail
                    // consistently.
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
