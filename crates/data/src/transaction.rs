//! Statements that hold together, one at a time: a page looks at what one said before it asks the next.

use crate::database::Counters;
use crate::limits::Limits;
use crate::pending::{Pending, Promise, pair};
use crate::queue::{Next, Queue, Refused};
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::statement;
use crate::value::Parameters;
use crate::writing::{Command, Writing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Statements of one transaction that wait at the most: a page waits for each in turn.
const STEPS_MAX: usize = 64;

/// A transaction that a page leads. It sees what it wrote; nobody else does before [`commit`](Self::commit). Dropped
/// without it, and after [`Limits::transaction_max_ms`], it is rolled back.
#[derive(Debug)]
pub struct Transaction {
    shared: Arc<Led>,
}

/// What a transaction's holder and the writer share.
#[derive(Debug)]
struct Led {
    steps: Queue<Step>,
    limits: Limits,
    /// It ended by the clock, rather than by what went wrong in it.
    late: AtomicBool,
}

/// What a page asks of its transaction.
#[derive(Debug)]
enum Step {
    Execute { sql: Box<str>, parameters: Parameters, promise: Promise<Rows> },
    Commit(Promise<()>),
    Rollback(Promise<()>),
}

impl Step {
    fn fail(self, error: DataError) {
        match self {
            Self::Execute { promise, .. } => promise.keep(Err(error)),
            Self::Commit(promise) | Self::Rollback(promise) => promise.keep(Err(error)),
        }
    }
}

impl Led {
    fn push(&self, step: Step) {
        let (step, reason) = match self.steps.push(step, STEPS_MAX) {
            Ok(()) => return,
            Err(Refused::Full(step)) => (step, DataReason::QueueFull),
            Err(Refused::Closed(step)) => (step, self.ended()),
        };
        step.fail(reason.into());
    }

    /// Why there is no more to ask.
    fn ended(&self) -> DataReason {
        if self.late.load(Ordering::Acquire) { DataReason::TransactionTimeout } else { DataReason::TransactionEnded }
    }

    /// Answers what is asked from now on, and what was asked too late.
    fn end(&self) {
        for step in self.steps.close() {
            step.fail(self.ended().into());
        }
    }
}

impl Transaction {
    /// Runs a statement, reading or writing. One that fails leaves no effect and the transaction standing, except
    /// where SQLite says that all is rolled back: then everything further is [`DataReason::TransactionEnded`].
    pub fn execute(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let (promise, pending) = pair();
        self.shared.push(Step::Execute { sql: sql.into(), parameters, promise });
        pending
    }

    /// Makes what was written lasting. An error means that nothing of it is.
    pub fn commit(self) -> Pending<()> {
        let (promise, pending) = pair();
        self.shared.push(Step::Commit(promise));
        pending
    }

    /// Undoes what was written. Dropping does the same, without telling when it is done.
    pub fn rollback(self) -> Pending<()> {
        let (promise, pending) = pair();
        self.shared.push(Step::Rollback(promise));
        pending
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.shared.steps.finish();
    }
}

/// Leads a transaction on the writer's thread, from its beginning to its end.
pub(crate) fn lead(writing: &Writing<'_>, limits: Limits, promise: Promise<Transaction>, counters: &Counters) {
    if let Err(error) = writing.command(Command::Begin) {
        counters.failed.fetch_add(1, Ordering::Relaxed);
        return promise.keep(Err(error));
    }
    counters.transactions.fetch_add(1, Ordering::Relaxed);
    let until = Instant::now() + Duration::from_millis(limits.transaction_max_ms);
    let led = Arc::new(Led { steps: Queue::new(), limits, late: AtomicBool::new(false) });
    promise.keep(Ok(Transaction { shared: Arc::clone(&led) }));
    let last = follow(writing, &led, until, counters);
    if let Some(Step::Commit(promise)) = last {
        let committed = writing.command(Command::Commit);
        writing.undo();
        led.end();
        return promise.keep(committed);
    }
    writing.undo();
    led.end();
    if let Some(Step::Rollback(promise)) = last {
        promise.keep(Ok(()));
    }
}

/// Runs statements until the transaction is to end: by a step, or without one.
fn follow(writing: &Writing<'_>, led: &Led, until: Instant, counters: &Counters) -> Option<Step> {
    loop {
        match led.steps.pop_until(Some(until)) {
            Next::Job(step @ Step::Execute { .. }) if Instant::now() >= until => {
                led.late.store(true, Ordering::Release);
                step.fail(led.ended().into());
                return None;
            }
            Next::Job(Step::Execute { sql, parameters, promise }) => {
                let run_until = until.min(Instant::now() + Duration::from_millis(led.limits.statement_max_ms));
                let answer =
                    writing.part(|| statement::write(writing.session, &sql, &parameters, &led.limits, run_until));
                counters.failed.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
                let ended = writing.is_over();
                if ended {
                    // Before the page hears of it, so that whatever it asks next is told the same.
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
