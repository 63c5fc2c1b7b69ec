//! The queue of pages that have used up their slice.
//!
//! One task per worker runs them, round robin. Between any two slices it lets the worker poll its sockets and gives
//! every ready connection its turn. So a request for a file waits for at most one slice, however many pages compute.

use crate::job::PageRun;
use crate::sandbox::ResumeResult;
use flatout_os::clock::Now;
use flatout_overload::{QueueBound, QueueSettings};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
use tokio::task::{spawn_local, yield_now};

/// Divisor of a slice: this part may be used by several short runs in a row before sockets are polled again.
const SHORT_RUNS_SHARE: u32 = 4;

/// The bound of the queue: pages that need more than one slice all advance together, so with each page that is
/// admitted, all of them take longer. Beyond the target, further pages are refused rather than all delayed.
const SETTINGS: QueueSettings = QueueSettings { delay_target_ms: 100, entries_min: 4, entries_max: 4096 };

/// The queued pages of one worker.
pub(crate) struct RunQueue {
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    control: RefCell<QueueBound>,
    is_running: Cell<bool>,
    /// Pages that used up their first slice since sockets were last polled.
    preempted: Cell<u32>,
}

/// The owner's handle of a queued page. Dropping it cancels the page.
pub(crate) struct Claim(Rc<Ticket>);

/// A queued page.
struct Ticket {
    job: RefCell<Option<PageRun>>,
    /// The result of its slice, unless it only needs another turn.
    came: RefCell<Option<ResumeResult>>,
    waker: RefCell<Option<Waker>>,
}

impl Default for RunQueue {
    fn default() -> Self {
        Self {
            waiting: RefCell::default(),
            control: RefCell::new(QueueBound::new(SETTINGS)),
            is_running: Cell::new(false),
            preempted: Cell::new(0),
        }
    }
}

impl RunQueue {
    /// Returns whether another page may start: whether the queued ones end within the target delay.
    pub(crate) fn admits(&self) -> bool {
        self.waiting.borrow().len() < self.control.borrow().bound() as usize
    }

    /// Reports that the queue has run `ended` pages to the end of their need for the CPU.
    fn report(&self, ended: u32) {
        let (now_ms, mut control) = (Now::read().monotonic_ms, self.control.borrow_mut());
        if self.waiting.borrow().is_empty() {
            control.handle_empty(now_ms);
        } else {
            control.handle_saturated(ended, now_ms);
        }
    }

    /// Appends a page to the queue. Must be called within the worker's runtime.
    pub(crate) fn push(self: &Rc<Self>, job: PageRun) -> Claim {
        let ticket =
            Rc::new(Ticket { job: RefCell::new(Some(job)), came: RefCell::default(), waker: RefCell::default() });
        self.waiting.borrow_mut().push_back(Rc::clone(&ticket));
        if !self.is_running.replace(true) {
            spawn_local(run(Rc::clone(self)));
        }
        Claim(ticket)
    }

    /// Records that a page has used up its first slice, on arrival.
    pub(crate) fn note_preempted(&self) {
        self.preempted.set(self.preempted.get().saturating_add(1));
    }

    /// Slices that others use, or may use, before sockets are polled again.
    pub(crate) fn slices_taken(&self) -> u32 {
        self.preempted.get().saturating_add(u32::from(self.is_running.get()))
    }
}

impl Claim {
    /// The page with its result; `None` if it needs more turns, and wakes `waker` afterwards.
    pub(crate) fn take(&self, waker: &Waker) -> Option<(PageRun, ResumeResult)> {
        let came = self.0.came.borrow_mut().take();
        let Some(step) = came else {
            *self.0.waker.borrow_mut() = Some(waker.clone());
            return None;
        };
        self.0.job.borrow_mut().take().map(|job| (job, step))
    }

    /// Takes the page out of the queue.
    pub(crate) fn cancel(&self) -> Option<PageRun> {
        self.0.job.borrow_mut().take()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Its exchange returns to the pool immediately, not at its next turn.
        let job = self.0.job.borrow_mut().take();
        drop(job);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Claim")
    }
}

/// Runs slices until the queue is empty.
async fn run(queue: Rc<RunQueue>) {
    loop {
        // tokio resumes a yielding task after polling the kernel, after all tasks that this woke.
        yield_now().await;
        queue.preempted.set(0);
        let began = Instant::now();
        let mut ended = 0;
        loop {
            let next = queue.waiting.borrow_mut().pop_front();
            let Some(ticket) = next else {
                queue.report(ended);
                queue.is_running.set(false);
                return;
            };
            let Some(mut job) = ticket.job.borrow_mut().take() else { continue };
            let step = job.resume();
            let slice = job.slice();
            ticket.job.replace(Some(job));
            if matches!(step, ResumeResult::Preempted) {
                queue.waiting.borrow_mut().push_back(ticket);
                break;
            }
            ended += 1;
            ticket.came.replace(Some(step));
            let waker = ticket.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
            if began.elapsed() >= slice / SHORT_RUNS_SHARE {
                break;
            }
        }
        queue.report(ended);
    }
}
