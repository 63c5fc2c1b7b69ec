//! Pages that have used their slice, and how each gets its next one.
//!
//! One task a worker runs them, round robin, and between any two slices it lets the worker look at its sockets and give
//! every connection that is ready its turn. So whoever asks for a file waits for one slice at the most, however many
//! pages compute.

use crate::job::Job;
use crate::sandbox::Step;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
use tokio::task::{spawn_local, yield_now};

/// Of a slice, this part may be used by several short runs, one after the other, before sockets are looked at again.
const SHORT_RUNS_SHARE: u32 = 4;

/// The pages of one worker that wait for their turn.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    is_running: Cell<bool>,
    /// Pages that used up their first slice since sockets were last looked at.
    preempted: Cell<u32>,
}

/// A page in the queue, as whoever waits for it holds it. Dropped, the page does not go on.
pub(crate) struct Claim(Rc<Ticket>);

/// A page in the queue.
struct Ticket {
    job: RefCell<Option<Job>>,
    /// What the slice came to, but for another turn.
    came: RefCell<Option<Step>>,
    waker: RefCell<Option<Waker>>,
}

impl Queue {
    /// Puts a page at the end. Must be called within the worker's runtime.
    pub(crate) fn push(self: &Rc<Self>, job: Job) -> Claim {
        let ticket =
            Rc::new(Ticket { job: RefCell::new(Some(job)), came: RefCell::default(), waker: RefCell::default() });
        self.waiting.borrow_mut().push_back(Rc::clone(&ticket));
        if !self.is_running.replace(true) {
            spawn_local(run(Rc::clone(self)));
        }
        Claim(ticket)
    }

    /// A page has used up its first slice, at once when it came.
    pub(crate) fn note_preempted(&self) {
        self.preempted.set(self.preempted.get().saturating_add(1));
    }

    /// Slices that others use, or may use, before sockets are looked at again.
    pub(crate) fn slices_taken(&self) -> u32 {
        self.preempted.get().saturating_add(u32::from(self.is_running.get()))
    }
}

impl Claim {
    /// The page with what it came to; `None`: it has not had enough turns yet, and `waker` is woken when it has.
    pub(crate) fn take(&self, waker: &Waker) -> Option<(Job, Step)> {
        let came = self.0.came.borrow_mut().take();
        let Some(step) = came else {
            *self.0.waker.borrow_mut() = Some(waker.clone());
            return None;
        };
        self.0.job.borrow_mut().take().map(|job| (job, step))
    }

    /// The page as it is: it gets no more turns.
    pub(crate) fn cancel(&self) -> Option<Job> {
        self.0.job.borrow_mut().take()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Its exchange goes back to the pool now, not when its turn comes.
        let job = self.0.job.borrow_mut().take();
        drop(job);
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Claim")
    }
}

/// Gives out slices until nobody waits.
async fn run(queue: Rc<Queue>) {
    loop {
        // tokio wakes whoever yields after it has asked the kernel, and behind all that the kernel had to say.
        yield_now().await;
        queue.preempted.set(0);
        let began = Instant::now();
        loop {
            let next = queue.waiting.borrow_mut().pop_front();
            let Some(ticket) = next else {
                queue.is_running.set(false);
                return;
            };
            let Some(mut job) = ticket.job.borrow_mut().take() else { continue };
            let step = job.resume();
            let slice = job.slice();
            ticket.job.replace(Some(job));
            if matches!(step, Step::Preempted) {
                queue.waiting.borrow_mut().push_back(ticket);
                break;
            }
            ticket.came.replace(Some(step));
            let waker = ticket.waker.borrow_mut().take();
            if let Some(waker) = waker {
                waker.wake();
            }
            if began.elapsed() >= slice / SHORT_RUNS_SHARE {
                break;
            }
        }
    }
}
