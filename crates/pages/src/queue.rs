//! The queue of pages that have used up their slices.
//!
//! One task per worker runs the queued pages. Between two slices, it lets the worker poll its sockets and gives every
//! ready connection its turn. A request for a file therefore waits for at most one slice, no matter how many pages
//! compute.
//!
//! Short pages take turns with each other and with long ones. Only a few long pages take turns; the others wait until
//! one of these ends, because all would finish late if all took turns. The number of waiting pages is limited according
//! to how long they wait.

use crate::job::PageRun;
use crate::sandbox::ResumeResult;
use crate::sandbox::failure::FailureKind;
use crate::step::PagesShared;
use flatout_os::clock;
use flatout_os::clock::Now;
use flatout_overload::{QueueBound, QueueGauge, QueueSettings};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use tokio::task::{spawn_local, yield_now};

/// A slice divided by this number is the time that short runs may use in a row before sockets are polled again.
const SHORT_RUNS_SHARE: u32 = 4;

/// Number of slices after which a page counts as long.
const SHORT_SLICES_MAX: u32 = 5;

/// Maximum number of long pages that take turns.
const LONG_ACTIVE_MAX: u32 = 4;

/// Settings of the queue's bound. Each page that is admitted delays all others.
const SETTINGS: QueueSettings = QueueSettings { delay_target_ms: 100, entries_min: 6, entries_max: 4096 };

/// Time after which a waiting page is refused, in milliseconds. More pages than the bound allows may have arrived
/// before the rate was known, and they would delay all others.
const WAIT_MS_MAX: u64 = 500;

flatout_reason::defaults! {
    /// The queued pages of one worker.
    pub(crate) struct RunQueue {
        /// The pages that take turns.
        active: RefCell<VecDeque<Rc<Ticket>>>,
        /// Number of long pages in `active`.
        long_active: Cell<u32> = Cell::new(0),
        /// Long pages that wait, each with the time at which it began to wait, in milliseconds.
        waiting: RefCell<VecDeque<(Rc<Ticket>, u64)>>,
        /// Separate bounds for short and for long pages, so that many long pages do not cause short pages to be
        /// refused.
        short_bound: RefCell<QueueBound> = RefCell::new(QueueBound::new(SETTINGS)),
        long_bound: RefCell<QueueBound> = RefCell::new(QueueBound::new(SETTINGS)),
        /// The state of short and of long pages, for other threads.
        short_gauge: Arc<QueueGauge>,
        long_gauge: Arc<QueueGauge>,
        is_running: Cell<bool> = Cell::new(false),
        /// Number of pages that have used up their first slice since sockets were last polled.
        preempted: Cell<u32> = Cell::new(0),
    }
}

/// The owner's handle of a queued page. Dropping it removes the page from the queue.
#[derive(derive_more::Debug)]
#[debug("Claim")]
pub(crate) struct Claim(Rc<Ticket>);

/// A queued page.
struct Ticket {
    job: RefCell<Option<PageRun>>,
    is_long: Cell<bool>,
    /// The result of the last slice, unless the page only needs another turn.
    came: RefCell<Option<ResumeResult>>,
    waker: RefCell<Option<Waker>>,
}

impl RunQueue {
    /// Creates an empty queue, whose state is shown in the gauges of `shared`.
    pub(crate) fn shown_in(shared: &PagesShared) -> Self {
        let (short_gauge, long_gauge) = (shared.short_queues.add(), shared.long_queues.add());
        let queue = Self { short_gauge, long_gauge, ..Self::default() };
        queue.show();
        queue
    }

    fn show(&self) {
        self.short_gauge.set(self.short_count(), self.short_bound.borrow().bound());
        self.long_gauge.set(self.long_count(), self.long_bound.borrow().bound());
    }

    /// Returns whether another page may start. `is_long` says whether it was long when it last ran. The queued pages of
    /// the same kind must be able to finish within the target delay.
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

    /// Reports the number of pages of each kind that no longer need the CPU.
    fn report(&self, short_ended: u32, long_ended: u32) {
        let now_ms = Now::read().monotonic_ms;
        let report = |bound: &RefCell<QueueBound>, ended, left| {
            let mut bound = bound.borrow_mut();
            if left == 0 { bound.handle_empty(now_ms) } else { bound.handle_saturated(ended, now_ms, || None) }
        };
        report(&self.short_bound, short_ended, self.short_count());
        report(&self.long_bound, long_ended, self.long_count());
        self.show();
    }

    /// Lets a page take turns, or makes it wait if it is long and enough long pages already take turns.
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

    /// Lets a waiting page take turns in place of a long page that has ended.
    fn promote(&self) {
        let now_ms = Now::read().monotonic_ms;
        let next = loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some((ticket, since_ms)) = next else { break None };
            // Skips pages that were cancelled because the client has disconnected.
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
        let is_long = job.slices() > SHORT_SLICES_MAX || job.page.is_long.get();
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

    /// Records that a page has used up its first slice on arrival.
    pub(crate) fn note_preempted(&self) {
        self.preempted.set(self.preempted.get().saturating_add(1));
    }

    /// Number of slices that other pages use, or may use, before sockets are polled again.
    pub(crate) fn slices_taken(&self) -> u32 {
        self.preempted.get().saturating_add(u32::from(self.is_running.get()))
    }
}

impl Ticket {
    /// Ends the page with a 503, unless its response has begun. Returns whether the page was ended.
    fn refuse(&self) -> bool {
        let failure = self.job.borrow_mut().as_mut().and_then(|job| job.refuse(FailureKind::Overloaded));
        let is_refused = failure.is_some();
        if let Some(failure) = failure {
            self.finish(ResumeResult::Failed(failure));
        }
        is_refused
    }

    /// Passes the result of the slice to the owner.
    fn finish(&self, came: ResumeResult) {
        self.came.replace(Some(came));
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Claim {
    /// Takes the page with its result. If the page needs more turns, returns `None` and wakes `waker` later.
    pub(crate) fn take(&self, waker: &Waker) -> Option<(PageRun, ResumeResult)> {
        let came = self.0.came.borrow_mut().take();
        let Some(step) = came else {
            *self.0.waker.borrow_mut() = Some(waker.clone());
            return None;
        };
        self.0.job.borrow_mut().take().map(|job| (job, step))
    }

    /// Removes the page from the queue.
    pub(crate) fn cancel(&self) -> Option<PageRun> {
        self.0.job.borrow_mut().take()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Returns the page's exchange to the pool immediately instead of at the page's next turn.
        let job = self.0.job.borrow_mut().take();
        drop(job);
    }
}

/// Runs slices until the queue is empty.
async fn run(queue: Rc<RunQueue>) {
    loop {
        // tokio resumes a task that has yielded after polling the kernel and after all tasks that this has woken.
        yield_now().await;
        queue.preempted.set(0);
        let (began, mut short_ended, mut long_ended) = (clock::now(), 0, 0);
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
            let is_preempted = matches!(step, ResumeResult::Preempted);
            // A run that was preempted early does not show that the page is short.
            if is_long || !is_preempted {
                job.page.is_long.set(is_long);
            }
            ticket.job.replace(Some(job));
            if is_preempted {
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
            if clock::since(began) >= slice / SHORT_RUNS_SHARE {
                break;
            }
        }
        queue.report(short_ended, long_ended);
    }
}
