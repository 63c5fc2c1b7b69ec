//! What waits for a thread: bounded, first come first served, closed once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Jobs for one or several threads.
#[derive(Debug)]
pub(crate) struct Queue<J> {
    state: Mutex<State<J>>,
    bell: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    /// Threads that sleep.
    idle: usize,
    /// Threads of them that were rung for and are about to look.
    rung: usize,
    closed: bool,
}

/// Why a job was not taken: it comes back.
#[derive(Debug)]
pub(crate) enum Refused<J> {
    /// Too many wait.
    Full(J),
    /// The queue is closed.
    Closed(J),
}

/// What came of waiting.
#[derive(Debug)]
pub(crate) enum Next<J> {
    /// A job.
    Job(J),
    /// None by the time that was given.
    Late,
    /// None, and there will be none.
    Closed,
}

impl<J> Queue<J> {
    pub(crate) fn new() -> Self {
        let state = State { jobs: VecDeque::new(), idle: 0, rung: 0, closed: false };
        Self { state: Mutex::new(state), bell: Condvar::new() }
    }

    /// A panic elsewhere leaves the state whole: every change is one step.
    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a job, unless `jobs_max` wait already.
    pub(crate) fn push(&self, job: J, jobs_max: usize) -> Result<(), Refused<J>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed(job));
        }
        if state.jobs.len() >= jobs_max {
            return Err(Refused::Full(job));
        }
        state.jobs.push_back(job);
        // A thread that is up looks again before it sleeps, and ringing is a system call.
        let ring = state.idle > state.rung;
        state.rung += usize::from(ring);
        drop(state);
        if ring {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// The next job, when there is one. `None`: the queue is closed.
    pub(crate) fn pop(&self) -> Option<J> {
        match self.pop_until(None) {
            Next::Job(job) => Some(job),
            Next::Late | Next::Closed => None,
        }
    }

    /// The next job, when there is one before `until`.
    pub(crate) fn pop_until(&self, until: Option<Instant>) -> Next<J> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Next::Job(job);
            }
            if state.closed {
                return Next::Closed;
            }
            state.idle += 1;
            state = match until {
                None => self.bell.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let patience = until.saturating_duration_since(Instant::now());
                    if patience.is_zero() {
                        state.idle -= 1;
                        return Next::Late;
                    }
                    self.bell.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.idle -= 1;
            state.rung = state.rung.saturating_sub(1);
        }
    }

    /// The next job if there is one now and `wanted` agrees.
    pub(crate) fn pop_if(&self, wanted: impl FnOnce(&J) -> bool) -> Option<J> {
        let mut state = self.lock();
        if !state.jobs.front().is_some_and(wanted) {
            return None;
        }
        state.jobs.pop_front()
    }

    /// Takes no more; what is there is still to be had.
    pub(crate) fn finish(&self) {
        self.lock().closed = true;
        self.bell.notify_all();
    }

    /// Takes no more, and gives what had not been begun.
    pub(crate) fn close(&self) -> VecDeque<J> {
        let mut state = self.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.bell.notify_all();
        jobs
    }
}
