//! A bounded FIFO queue of jobs for threads.

use flatout_os::clock;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A queue of jobs that one or more threads take.
#[derive(Debug)]
pub(crate) struct JobQueue<J> {
    state: Mutex<QueueState<J>>,
    wakeup: Condvar,
}

#[derive(Debug)]
struct QueueState<J> {
    jobs: VecDeque<J>,
    /// Number of sleeping threads.
    idle: usize,
    /// Number of sleeping threads that have been notified.
    wakeups: usize,
    closed: bool,
}

/// A job that was refused and is returned to its sender.
#[derive(Debug)]
pub(crate) enum RefusedJob<J> {
    /// The queue is full.
    Full(J),
    /// The queue is closed.
    Closed(J),
}

/// The result of waiting for a job.
#[derive(Debug)]
pub(crate) enum Next<J> {
    Job(J),
    /// The deadline passed before a job arrived.
    Late,
    /// The queue is closed and empty.
    Closed,
}

impl<J> JobQueue<J> {
    pub(crate) fn new() -> Self {
        let state = QueueState { jobs: VecDeque::new(), idle: 0, wakeups: 0, closed: false };
        Self { state: Mutex::new(state), wakeup: Condvar::new() }
    }

    /// Ignores poisoning: every change is a single step, so the state is consistent after a panic.
    fn lock(&self) -> MutexGuard<'_, QueueState<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a job, unless `jobs_max` jobs are already queued.
    pub(crate) fn push(&self, job: J, jobs_max: usize) -> Result<(), RefusedJob<J>> {
        let mut state = self.lock();
        if state.closed {
            return Err(RefusedJob::Closed(job));
        }
        if state.jobs.len() >= jobs_max {
            return Err(RefusedJob::Full(job));
        }
        state.jobs.push_back(job);
        // A running thread checks the queue again before it sleeps, and a notification is a system call.
        let ring = state.idle > state.wakeups;
        state.wakeups += usize::from(ring);
        drop(state);
        if ring {
            self.wakeup.notify_one();
        }
        Ok(())
    }

    /// Waits for the next job. Returns `None` if the queue is closed.
    pub(crate) fn pop(&self) -> Option<J> {
        match self.pop_until(None) {
            Next::Job(job) => Some(job),
            Next::Late | Next::Closed => None,
        }
    }

    /// Waits for the next job, at most until `until`.
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
                None => self.wakeup.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let timeout = until.saturating_duration_since(clock::now());
                    if timeout.is_zero() {
                        state.idle -= 1;
                        return Next::Late;
                    }
                    self.wakeup.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.idle -= 1;
            state.wakeups = state.wakeups.saturating_sub(1);
        }
    }

    /// Takes the next job if there is one and `wanted` returns true for it.
    pub(crate) fn pop_if(&self, wanted: impl FnOnce(&J) -> bool) -> Option<J> {
        let mut state = self.lock();
        if !state.jobs.front().is_some_and(wanted) {
            return None;
        }
        state.jobs.pop_front()
    }

    /// Returns true if threads have taken all jobs.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().jobs.is_empty()
    }

    /// Closes the queue to new jobs. Queued jobs remain.
    pub(crate) fn finish(&self) {
        self.lock().closed = true;
        self.wakeup.notify_all();
    }

    /// Closes the queue and returns the queued jobs.
    pub(crate) fn close(&self) -> VecDeque<J> {
        let mut state = self.lock();
        state.closed = true;
        let jobs = std::mem::take(&mut state.jobs);
        drop(state);
        self.wakeup.notify_all();
        jobs
    }
}
