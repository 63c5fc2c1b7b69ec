//! Precise timers of the connections of one endpoint. QUIC needs millisecond accuracy, which the sweep of other
//! deadlines does not offer. One kernel timer serves all connections, and is set again only for an earlier deadline.

use flatout_os::timer::Timer;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

/// The deadlines of all connections, and the kernel timer.
#[derive(Debug)]
pub(crate) struct QuicTimers {
    deadlines: RefCell<BTreeSet<(Instant, usize)>>,
    timer: Timer,
    /// When the kernel timer will expire, or `None` if it is not set.
    set_for: Cell<Option<Instant>>,
}

impl QuicTimers {
    /// Creates timers without deadlines. Must be called within a worker's runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { deadlines: RefCell::default(), timer: Timer::new()?, set_for: Cell::new(None) })
    }

    /// Replaces the `old` deadline of `connection` with the `new` one.
    pub(crate) fn set(&self, connection: usize, old: Option<Instant>, new: Option<Instant>) {
        let mut deadlines = self.deadlines.borrow_mut();
        if let Some(old) = old {
            deadlines.remove(&(old, connection));
        }
        let Some(new) = new else { return };
        deadlines.insert((new, connection));
        drop(deadlines);
        if self.set_for.get().is_none_or(|known| new < known) {
            self.start(new, flatout_os::clock::now());
        }
    }

    fn start(&self, deadline: Instant, now: Instant) {
        // An existing timerfd does not fail.
        let _ = self.timer.set_once(deadline.saturating_duration_since(now));
        self.set_for.set(Some(deadline));
    }

    /// Appends the connections whose deadlines have passed to `due`, if the kernel timer has expired.
    pub(crate) fn poll_due(&self, context: &mut Context<'_>, due: &mut Vec<usize>) -> io::Result<()> {
        while let Poll::Ready(ticked) = self.timer.poll_tick(context) {
            ticked?;
            self.set_for.set(None);
            let now = flatout_os::clock::now();
            let mut deadlines = self.deadlines.borrow_mut();
            while let Some(&(deadline, connection)) = deadlines.first()
                && deadline <= now
            {
                deadlines.pop_first();
                due.push(connection);
            }
            let next = deadlines.first().map(|(deadline, _)| *deadline);
            drop(deadlines);
            if let Some(next) = next {
                self.start(next, now);
            }
        }
        Ok(())
    }
}
