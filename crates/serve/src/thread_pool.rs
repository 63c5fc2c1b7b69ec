//! A thread pool for work that must not run on an event loop, such as hashing, compression and reading folders.
//!
//! The queue is bounded. If it is full, the pool refuses and counts further jobs, and the caller continues without
//! their results. Threads start on demand, with a lower priority than the event loops.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Amount added to the `nice` value of the threads.
const NICENESS: i32 = 10;

type PoolJob = Box<dyn FnOnce() + Send>;

/// The urgency of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A response waits for the job.
    Prompt,
    /// No response waits for the job.
    Patient,
}

/// The error if a job is refused because the queue is full or no thread could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolFull;

/// Threads that run jobs from a queue.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    shared: Arc<PoolShared>,
    threads_max: usize,
    /// Maximum number of queued jobs of each urgency.
    jobs_max: usize,
}

#[derive(Debug, Default)]
struct PoolShared {
    queue: Mutex<PoolQueue>,
    work: Condvar,
    refused: AtomicU64,
}

#[derive(Default)]
struct PoolQueue {
    prompt: VecDeque<PoolJob>,
    patient: VecDeque<PoolJob>,
    threads: usize,
    idle: usize,
    stopping: bool,
}

impl std::fmt::Debug for PoolQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Queue({} prompt, {} patient)", self.prompt.len(), self.patient.len())
    }
}

/// Locks `mutex`, even if it is poisoned. A panic leaves the state consistent, because no change has an intermediate
/// state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadPool {
    /// Creates a pool of up to `threads_max` threads, which start on demand, and a queue of up to `jobs_max` jobs of
    /// each urgency.
    pub(crate) fn new(threads_max: usize, jobs_max: usize) -> Self {
        Self { shared: Arc::default(), threads_max: threads_max.max(1), jobs_max }
    }

    /// Queues `job`. If the pool refuses the job, drops it.
    pub(crate) fn submit(&self, urgency: Urgency, job: impl FnOnce() + Send + 'static) -> Result<(), PoolFull> {
        let job: PoolJob = Box::new(job);
        let mut queue = lock(&self.shared.queue);
        if queue.idle == 0 && queue.threads < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let started = thread::Builder::new().name("thread-pool".to_owned()).spawn(move || work(&shared));
            queue.threads += usize::from(started.is_ok());
        }
        let has_thread = queue.threads > 0;
        let line = if urgency == Urgency::Prompt { &mut queue.prompt } else { &mut queue.patient };
        if !has_thread || line.len() >= self.jobs_max {
            drop(queue);
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            // The job is dropped here, outside the lock, because its destructor may wake waiting requests.
            return Err(PoolFull);
        }
        line.push_back(job);
        drop(queue);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Returns the number of refused jobs.
    pub(crate) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        lock(&self.shared.queue).stopping = true;
        self.shared.work.notify_all();
    }
}

fn work(shared: &PoolShared) {
    // If the call fails, the threads have normal priority, which is acceptable.
    let _ = rustix::process::nice(NICENESS);
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(job) = queue.prompt.pop_front().or_else(|| queue.patient.pop_front()) {
            drop(queue);
            // A panic in a job is a bug, but other jobs must still run.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = lock(&shared.queue);
            continue;
        }
        if queue.stopping {
            return;
        }
        queue.idle += 1;
        queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{PoolFull, ThreadPool, Urgency};
    use std::sync::mpsc::{channel, sync_channel};
    use std::sync::{Arc, Barrier};
    use std::thread;

    #[test]
    fn jobs_are_done_prompt_ones_first_and_too_many_refused() {
        const JOBS_MAX: usize = 3;
        let thread_pool = ThreadPool::new(1, JOBS_MAX);
        let (gate, done) = (Arc::new(Barrier::new(2)), channel());
        let opened = Arc::clone(&gate);
        thread_pool
            .submit(Urgency::Patient, move || {
                opened.wait();
            })
            .unwrap();
        // The only thread is busy once it has taken that job.
        while !super::lock(&thread_pool.shared.queue).patient.is_empty() {
            thread::yield_now();
        }
        let submit = |urgency, number| {
            let sender = done.0.clone();
            thread_pool.submit(urgency, move || sender.send(number).unwrap())
        };
        (0..JOBS_MAX).for_each(|number| submit(Urgency::Patient, number).unwrap());
        assert_eq!(submit(Urgency::Patient, 0), Err(PoolFull));
        assert_eq!(thread_pool.refused(), 1);
        submit(Urgency::Prompt, 1000).unwrap();
        gate.wait();
        let order: Vec<usize> = (0..=JOBS_MAX).map(|_| done.1.recv().unwrap()).collect();
        assert_eq!(order[0], 1000);
        assert!(order[1..].is_sorted());
    }

    #[test]
    fn a_panic_ends_a_job_and_no_thread() {
        let thread_pool = ThreadPool::new(1, 2);
        thread_pool.submit(Urgency::Patient, || std::panic::resume_unwind(Box::new("as tests do"))).unwrap();
        let (sender, receiver) = sync_channel(1);
        thread_pool.submit(Urgency::Patient, move || sender.send(7).unwrap()).unwrap();
        assert_eq!(receiver.recv().unwrap(), 7);
    }
}
