//! Running a chunk for one request.

use super::code::{Code, Instance};
use super::failure::{CodeLocation, FailureKind, RunFailure};
use super::limits::Limits;
use super::meter::Account;
use super::wait::{WaitResult, Wanted};
use super::{Inner, KEPT_BYTES_MAX};
use crate::exchange::Exchange;
use mlua::thread::ThreadStatus;
use mlua::{Thread, Value};
use std::rc::Rc;
use std::time::Duration;

/// The error of a page whose last statement has run while a transaction is still open in one of its coroutines.
const UNFINISHED: &str = "the page ended inside a transaction, which is rolled back: end the transaction first";

/// The reason why a running page has returned control.
#[derive(derive_more::Debug)]
pub enum ResumeResult {
    /// The page has ended.
    Done,
    /// The page waits. Poll this future, pass its result to [`Run::answer`], and resume the run.
    #[debug("Wants")]
    Wants(Wanted),
    /// The page has requested that its output so far be sent. Do that, and resume the run.
    Flush,
    /// The slice is used up. Resume the run after other work of the worker.
    Preempted,
    /// The run has failed and cannot be resumed.
    Failed(Box<RunFailure>),
}

/// A run of a chunk: a coroutine, its globals and its exchange. Dropping it releases everything.
#[derive(derive_more::Debug)]
#[debug("Run {{ code: {code:?}, ended: {ended:?}, .. }}")]
pub struct Run {
    inner: Rc<Inner>,
    code: Rc<Code>,
    instance: Option<Instance>,
    thread: Option<Thread>,
    exchange: Option<Box<Exchange>>,
    account: Account,
    limits: Limits,
    answer: Option<WaitResult>,
    /// True if the run has ended or failed.
    ended: bool,
}

impl Run {
    pub(crate) fn new(inner: Rc<Inner>, code: Rc<Code>, exchange: Box<Exchange>, limits: Limits) -> Self {
        Self {
            inner,
            code,
            instance: None,
            thread: None,
            exchange: Some(exchange),
            account: Account::default(),
            limits: limits.bounded(),
            answer: None,
            ended: false,
        }
    }

    /// Runs for at most one slice.
    pub fn resume(&mut self) -> ResumeResult {
        if self.ended {
            return ResumeResult::Done;
        }
        let step = self.step();
        if matches!(step, ResumeResult::Done | ResumeResult::Failed(_)) {
            self.ended = true;
            self.release();
        }
        step
    }

    fn step(&mut self) -> ResumeResult {
        let inner = Rc::clone(&self.inner);
        inner.tidy();
        let (lua, hub) = (&inner.lua, &inner.hub);
        if self.thread.is_none()
            && let Err(error) = self.begin()
        {
            return ResumeResult::Failed(Box::new(RunFailure::of_error(&error)));
        }
        let (Some(thread), Some(exchange)) = (&self.thread, self.exchange.take()) else { return ResumeResult::Done };
        hub.main.set(thread.to_pointer());
        *hub.lines.borrow_mut() = self.code.lines();
        *hub.exchange.borrow_mut() = Some(exchange);
        if self.answer.is_some() {
            *hub.answer.borrow_mut() = self.answer.take();
        }
        hub.meter.begin(lua, self.account, self.limits);
        let result = thread.resume::<Value>(());
        let (account, failure) = hub.meter.end(lua);
        self.account = account;
        let mut exchange = hub.exchange.take();
        let halted = exchange.as_ref().is_some_and(|exchange| exchange.halted);
        let wanted = exchange.as_mut().and_then(|exchange| exchange.wanted.take());
        let flush = exchange.as_mut().is_some_and(|exchange| std::mem::take(&mut exchange.flush));
        self.exchange = exchange;
        // If the page was preempted before it took the result of its wait, the result stays available.
        self.answer = hub.answer.take();
        hub.forget();
        if let Some(failure) = failure {
            return ResumeResult::Failed(Box::new(failure));
        }
        let is_done = halted || (result.is_ok() && thread.status() != ThreadStatus::Resumable);
        if is_done && !halted && self.exchange.as_ref().is_some_and(|exchange| exchange.is_unfinished()) {
            return ResumeResult::Failed(Box::new(self.unplaced(FailureKind::ScriptError, UNFINISHED)));
        }
        if is_done {
            return ResumeResult::Done;
        }
        match result {
            Err(error) => {
                let mut failure = RunFailure::of_error(&error);
                // The error of a failed allocation contains no place, but the coroutine is still where it was.
                if failure.line.is_none()
                    && let Ok(text) = inner.traceback.call::<String>(thread.clone())
                {
                    failure.put(CodeLocation::of_traceback(&text));
                }
                if failure.chunk.is_empty() {
                    self.code.name().clone_into(&mut failure.chunk);
                }
                ResumeResult::Failed(Box::new(failure))
            }
            Ok(Value::Nil) => match wanted {
                Some(wanted) => ResumeResult::Wants(wanted),
                None if flush => ResumeResult::Flush,
                None => ResumeResult::Preempted,
            },
            Ok(_) => ResumeResult::Failed(Box::new(self.unplaced(FailureKind::Stray, FailureKind::Stray.text()))),
        }
    }

    /// Creates a failure without a place.
    fn unplaced(&self, kind: FailureKind, message: &str) -> RunFailure {
        let mut failure = RunFailure::at(kind, message.to_owned(), CodeLocation::default());
        self.code.name().clone_into(&mut failure.chunk);
        failure
    }

    /// Number of bytes that the run holds between its slices.
    pub fn held_bytes(&self) -> usize {
        let exchange = self.exchange.as_ref().map_or(0, |exchange| exchange.held_bytes());
        self.account.memory_bytes.saturating_add(exchange)
    }

    /// Terminates the run. Returns the failure, with the place at which the run was suspended.
    pub fn end(&mut self, kind: FailureKind) -> Box<RunFailure> {
        let mut failure = self.unplaced(kind, kind.text());
        if let Some(thread) = &self.thread
            && let Ok(text) = self.inner.traceback.call::<String>(thread.clone())
        {
            failure.put(CodeLocation::of_traceback(&text));
        }
        self.ended = true;
        self.release();
        Box::new(failure)
    }

    fn begin(&mut self) -> mlua::Result<()> {
        let instance = self.code.take(&self.inner)?;
        self.thread = Some(match self.inner.threads.borrow_mut().pop() {
            Some(thread) => {
                thread.reset(instance.function.clone())?;
                thread
            }
            None => self.inner.lua.create_thread(instance.function.clone())?,
        });
        self.instance = Some(instance);
        Ok(())
    }

    /// Sets the result of the wait. Must be called before the next [`Run::resume`].
    pub fn answer(&mut self, answer: WaitResult) {
        self.answer = Some(answer);
    }

    /// The run's exchange, which is always present between two calls of [`Run::resume`].
    pub fn exchange(&mut self) -> &mut Exchange {
        self.exchange.get_or_insert_default()
    }

    /// Sets the length of the run's later slices.
    pub const fn set_slice(&mut self, slice: Duration) {
        self.limits.slice = slice;
    }

    /// Ends the run, in any state, and returns its exchange.
    pub fn finish(mut self) -> Box<Exchange> {
        self.release();
        self.exchange.take().unwrap_or_default()
    }

    /// Empties the coroutine and the globals and returns them for reuse. Those of a large run are left to the garbage
    /// collector.
    fn release(&mut self) {
        let account = std::mem::take(&mut self.account.memory_bytes);
        self.inner.hub.meter.forget(Account { memory_bytes: account, ..Account::default() });
        let (Some(thread), Some(instance)) = (self.thread.take(), self.instance.take()) else { return };
        if account > KEPT_BYTES_MAX {
            drop((thread, instance));
            self.inner.owe_collection();
            return;
        }
        if thread.status() != ThreadStatus::Finished && thread.reset(self.inner.nothing.clone()).is_err() {
            return;
        }
        self.code.put(instance);
        self.inner.put_thread(thread);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.release();
    }
}
