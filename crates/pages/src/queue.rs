//! The queue of pages that have used up their slice.
//!
//! One task per worker runs them. Between any two slices it lets the worker poll its sockets and gives every ready
//! connection its turn. So a request for a file waits for at most one slice, however many pages compute.
//!
//! Short pages take turns with everything. Of long ones, a few take turns, and the others wait until one of these ends:
//! if all of them took turns, all would end late. The queue of those that wait is bounded by the time that they wait.

use crate::job::PageRun;
use crate::sandbox::ResumeResult;
use crate::sandbox::failure::FailureKind;
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

/// Slices after which a page is long.
const SHORT_SLICES_MAX: u32 = 5;

/// Long pages that take turns.
const LONG_ACTIVE_MAX: u32 = 4;

/// The bound of the queue. Each page that is admitted delays all others.
const SETTINGS: QueueSettings = QueueSettings { delay_target_ms: 100, entries_min: 6, entries_max: 4096 };

/// Time after which a waiting page is refused, in milliseconds: those that arrived before the rate was known may be more
/// than the bound, and they delay all others.
const WAIT_MS_MAX: u64 = 500;

/// The queued pages of one worker.
pub(crate) struct RunQueue {
    /// Those that take turns.
    active: RefCell<VecDeque<Rc<Ticket>>>,
    /// Long pages in `active`.
    long_active: Cell<u32>,
    /// Long pages that wait, with the time since when, in milliseconds.
    waiting: RefCell<VecDeque<(Rc<Ticket>, u64)>>,
    /// The bounds of short and of long pages: many long ones are no reason to refuse a short one.
    short_bound: RefCell<QueueBound>,
    long_bound: RefCell<QueueBound>,
    is_running: Cell<bool>,
    /// Pages that used up their first slice since sockets were last polled.
    preempted: Cell<u32>,
}

/// The owner's handle of a queued page. Dropping it cancels the page.
pub(crate) struct Claim(Rc<Ticket>);

/// A queued page.
struct Ticket {
    job: RefCell<Option<PageRun>>,
    is_long: Cell<bool>,
    /// The result of its slice, unless it only needs another turn.
    came: RefCell<Option<ResumeResult>>,
    waker: RefCell<Option<Waker>>,
}

impl Default for RunQueue {
    fn default() -> Self {
        Self {
            active: RefCell::default(),
            long_active: Cell::new(0),
            waiting: RefCell::default(),
            short_bound: RefCell::new(QueueBound::new(SETTINGS)),
            long_bound: RefCell::new(QueueBound::new(SETTINGS)),
            is_running: Cell::new(false),
            preempted: Cell::new(0),
        }
    }
}

impl RunQueue {
    /// Returns whether another page may start, which was long when it last ran or not: whether the queued ones of its
    /// kind end within the target delay.
    pub(crate) fn admits(&self, is_long: bool) -> bool {
        if is_long { self.has_room_for_long() } else { self.short_count() < self.short_bound.borrow().bound() }
    }

    fn has_room_for_long(&self) -> bool {
        self.long_count() < self.long_bound.borrow().bound()
    }

    fn short_count(&self) -> u32 {
        (self.active.borrow().len() as u32).saturating_sub(self.long_active.get())
    }

    fn long_count(&self) -> u32 {
        self.long_active.get().saturating_add(self.waiting.borrow().len() as u32)
    }

    /// Reports how many pages of each kind need the CPU no longer.
    fn report(&self, short_ended: u32, long_ended: u32) {
        let now_ms = Now::read().monotonic_ms;
        let report = |bound: &RefCell<QueueBound>, ended, left| {
            let mut bound = bound.borrow_mut();
            if left == 0 { bound.handle_empty(now_ms) } else { bound.handle_saturated(ended, now_ms, || None) }
        };
        report(&self.short_bound, short_ended, self.short_count());
        report(&self.long_bound, long_ended, self.long_count());
    }

    /// Has the page take turns or, if it is long and enough others do, wait.
    fn admit(&self, ticket: Rc<Ticket>, is_long: bool) {
        if is_long && !ticket.is_long.get() {
            ticket.is_long.set(true);
            if self.long_active.get() >= LONG_ACTIVE_MAX {
                self.waiting.borrow_mut().push_back((ticket, Now::read().monotonic_ms));
                return;
            }
            self.long_active.set(self.long_active.get() + 1);
        }
        self.active.borrow_mut().push_back(ticket);
    }

    /// Has a waiting page take the turns of a long one that has ended.
    fn promote(&self) {
        let now_ms = Now::read().monotonic_ms;
        let next = loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some((ticket, since_ms)) = next else { break None };
            // Those whose client has left are gone.
            if ticket.job.borrow().is_none() {
                continue;
            }
            let has_time = now_ms.saturating_sub(since_ms) <= WAIT_MS_MAX;
            if has_time || !ticket.refuse() {
                break Some(ticket);
            }
        };
        match next {
            Some(ticket) => self.active.borrow_mut().push_back(ticket),
            None => self.long_active.set(self.long_active.get().saturating_sub(1)),
        }
    }

    /// Appends a page to the queue. Must be called within the worker's runtime.
    pub(crate) fn push(self: &Rc<Self>, job: PageRun) -> Claim {
        let is_long = job.slices() > SHORT_SLICES_MAX;
        let ticket = Rc::new(Ticket {
            job: RefCell::new(Some(job)),
            is_long: Cell::new(false),
            came: RefCell::default(),
            waker: RefCell::default(),
        });
        self.admit(Rc::clone(&ticket), is_long);
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

impl Ticket {
    /// Ends the page with a 503, unless its response has begun.
    fn refuse(&self) -> bool {
        let failure = self.job.borrow_mut().as_mut().and_then(|job| job.refuse(FailureKind::Overloaded));
        let is_refused = failure.is_some();
        if let Some(failure) = failure {
            self.finish(ResumeResult::Failed(failure));
        }
        is_refused
    }

    /// Hands the result of the slice to the owner.
    fn finish(&self, came: ResumeResult) {
        self.came.replace(Some(came));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
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
        let (began, mut short_ended, mut long_ended) = (Instant::now(), 0, 0);
        loop {
            let next = queue.active.borrow_mut().pop_front();
            let Some(ticket) = next else {
                queue.report(short_ended, long_ended);
                queue.is_running.set(false);
                return;
            };
            let job = ticket.job.borrow_mut().take();
            let Some(mut job) = job else {
                if ticket.is_long.get() {
                    queue.promote();
                }
                continue;
            };
            let step = job.resume();
            let (slice, is_long) = (job.slice(), job.slices() > SHORT_SLICES_MAX);
            job.page.is_long.set(is_long);
            ticket.job.replace(Some(job));
            if matches!(step, ResumeResult::Preempted) {
                let becomes_long = is_long && !ticket.is_long.get();
                if !(becomes_long && !queue.has_room_for_long() && ticket.refuse()) {
                    queue.admit(ticket, is_long);
                }
                break;
            }
            if ticket.is_long.get() {
                queue.promote();
                long_ended += 1;
            } else {
                short_ended += 1;
            }
            ticket.finish(step);
            if began.elapsed() >= slice / SHORT_RUNS_SHARE {
                break;
            }
        }
        queue.report(short_ended, long_ended);
    }
}
