//! A thread pool for work that must not run on an event loop: hashing, compression, reading folders.
//!
//! The queue is bounded; surplus jobs are refused and counted, and the caller continues without them. The threads
//! start on demand, with lower priority than the event loops.

use std::collections::{BinaryHeap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Upper bound of queued jobs, per urgency.
pub(crate) const JOBS_MAX: usize = 256;

/// Upper bound of pending timed waits.
const WAITS_MAX: usize = 4096;

/// The threads' `nice` value.
const NICENESS: i32 = 10;

type PoolJob = Box<dyn FnOnce() + Send>;

/// The urgency of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A response waits for it.
    Prompt,
    /// No response waits for it.
    Patient,
}

/// The queue was full, or no thread could be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolFull;

/// The threads and their queue.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    shared: Arc<PoolShared>,
    timer: Arc<SignalTimer>,
    threads_max: usize,
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

/// A panic elsewhere leaves these states consistent: every change is one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ThreadPool {
    /// A pool of up to `threads_max` threads, which start on demand.
    pub(crate) fn new(threads_max: usize) -> Self {
        Self { shared: Arc::default(), timer: Arc::default(), threads_max: threads_max.max(1) }
    }

    /// Queues `job`. If it is refused, it is dropped.
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
        if !has_thread || line.len() >= JOBS_MAX {
            drop(queue);
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            // The job is dropped here, outside the lock, as its drop may signal others.
            return Err(PoolFull);
        }
        line.push_back(job);
        drop(queue);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Number of refused jobs.
    pub(crate) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Signals `signal` after `delay`, in addition to any other source. Returns false if too many waits are
    /// pending.
    pub(crate) fn ring_after(&self, delay: Duration, signal: Arc<Signal>) -> bool {
        self.timer.add(Instant::now() + delay, signal)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        lock(&self.shared.queue).stopping = true;
        self.shared.work.notify_all();
        lock(&self.timer.waits).stopping = true;
        self.timer.changed.notify_all();
    }
}

fn work(shared: &PoolShared) {
    // Without permission, or without the call, the threads merely have normal priority.
    let _ = rustix::process::nice(NICENESS);
    let mut queue = lock(&shared.queue);
    loop {
        if let Some(job) = queue.prompt.pop_front().or_else(|| queue.patient.pop_front()) {
            drop(queue);
            // A job that panics is a defect; the others must run nevertheless.
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

/// Wakes one future of one worker, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
}

#[derive(Debug, Default)]
struct SignalState {
    notified: bool,
    waker: Option<Waker>,
}

impl Signal {
    /// Wakes the waiting future. Only the first call has an effect.
    pub(crate) fn ring(&self) {
        let waker = {
            let mut state = lock(&self.state);
            state.notified = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Ready after its signal.
#[derive(Debug)]
pub(crate) struct Notified(pub(crate) Arc<Signal>);

impl Future for Notified {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0.state);
        if state.notified {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Sends timed signals. The servers' runtimes have no timers of this precision.
#[derive(Debug, Default)]
struct SignalTimer {
    waits: Mutex<TimerQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerQueue {
    heap: BinaryHeap<Wait>,
    started: bool,
    stopping: bool,
}

#[derive(Debug)]
struct Wait {
    until: Instant,
    signal: Arc<Signal>,
}

/// The earliest is the greatest, as the heap is a max-heap.
impl Ord for Wait {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.until.cmp(&self.until)
    }
}

impl PartialOrd for Wait {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for Wait {}

impl SignalTimer {
    fn add(self: &Arc<Self>, until: Instant, signal: Arc<Signal>) -> bool {
        let mut waits = lock(&self.waits);
        if waits.heap.len() >= WAITS_MAX {
            return false;
        }
        if !waits.started {
            let timer = Arc::clone(self);
            waits.started = thread::Builder::new().name("timer".to_owned()).spawn(move || timer.watch()).is_ok();
            if !waits.started {
                return false;
            }
        }
        waits.heap.push(Wait { until, signal });
        drop(waits);
        self.changed.notify_one();
        true
    }

    fn watch(&self) {
        let mut waits = lock(&self.waits);
        while !waits.stopping {
            let now = Instant::now();
            match waits.heap.peek() {
                Some(wait) if wait.until <= now => {
                    let wait = waits.heap.pop();
                    drop(waits);
                    if let Some(wait) = wait {
                        wait.signal.ring();
                    }
                    waits = lock(&self.waits);
                }
                Some(wait) => {
                    let delay = wait.until - now;
                    waits = self.changed.wait_timeout(waits, delay).unwrap_or_else(PoisonError::into_inner).0;
                }
                None => waits = self.changed.wait(waits).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{JOBS_MAX, Notified, PoolFull, Signal, ThreadPool, Urgency};
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{channel, sync_channel};
    use std::sync::{Arc, Barrier};
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread;
    use std::time::{Duration, Instant};

    struct Unpark(thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    /// Polls `future` on this thread until it is ready.
    pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
            thread::park_timeout(Duration::from_mins(1));
        }
    }

    #[test]
    fn jobs_are_done_prompt_ones_first_and_too_many_refused() {
        let thread_pool = ThreadPool::new(1);
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
        let thread_pool = ThreadPool::new(1);
        thread_pool.submit(Urgency::Patient, || std::panic::resume_unwind(Box::new("as tests do"))).unwrap();
        let (sender, receiver) = sync_channel(1);
        thread_pool.submit(Urgency::Patient, move || sender.send(7).unwrap()).unwrap();
        assert_eq!(receiver.recv().unwrap(), 7);
    }

    #[test]
    fn a_signal_rings_by_hand_or_by_the_timer() {
        let thread_pool = ThreadPool::new(2);
        let start = Instant::now();
        let late = Arc::<Signal>::default();
        assert!(thread_pool.ring_after(Duration::from_mins(10), Arc::clone(&late)));
        let soon = Arc::<Signal>::default();
        assert!(thread_pool.ring_after(Duration::from_millis(20), Arc::clone(&soon)));
        block_on(Notified(soon));
        assert!(start.elapsed() >= Duration::from_millis(20));
        let count = Arc::new(AtomicUsize::new(0));
        let (signal, counted) = (Arc::clone(&late), Arc::clone(&count));
        thread_pool
            .submit(Urgency::Prompt, move || {
                counted.fetch_add(1, Ordering::SeqCst);
                signal.ring();
            })
            .unwrap();
        block_on(Notified(late));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}
