//! The timer for due bursts: a timerfd with the kernel's precision, which can fire early by the wake-up time of a
//! sleeping core.

use flatout_os::clock::precise_ns;
use flatout_os::registered::Registered;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::cell::Cell;
use std::io;
use std::task::{Context, Poll, ready};

/// Stands for a time that is not set.
const NEVER: u64 = u64::MAX;

/// A timer for one time on the monotonic clock. tokio's own timers have a granularity of a millisecond.
#[derive(Debug)]
pub(super) struct Pacer {
    fd: Registered,
    due_ns: Cell<u64>,
    early_ns: u64,
}

impl Pacer {
    /// Creates a timer that fires `early_ns` before the time it is set to. Must be called within a worker's runtime.
    pub(super) fn new(early_ns: u64) -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { fd: Registered::new(fd)?, due_ns: Cell::new(NEVER), early_ns })
    }

    /// Returns whether the set time has been reached.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns.get() <= now_ns
    }

    /// Returns whether the set time has been reached, or is too close to sleep until then.
    pub(super) fn is_near(&self, now_ns: u64) -> bool {
        self.due_ns.get() <= now_ns.saturating_add(self.early_ns)
    }

    /// Returns whether the set time has been reached, and clears it if so.
    pub(super) fn take_due(&self, now_ns: u64) -> bool {
        let is_due = self.is_due(now_ns);
        if is_due {
            self.due_ns.set(NEVER);
        }
        is_due
    }

    /// Sets the time, which replaces the previous one. Setting the same time again costs nothing.
    pub(super) fn set(&self, due_ns: u64) -> io::Result<()> {
        if self.due_ns.replace(due_ns) == due_ns {
            return Ok(());
        }
        let ring_ns = due_ns.saturating_sub(self.early_ns);
        let value = Timespec {
            tv_sec: i64::try_from(ring_ns / 1_000_000_000).unwrap_or(i64::MAX),
            // A value of zero would disarm the timer.
            tv_nsec: i64::try_from(ring_ns % 1_000_000_000).unwrap_or(0).max(i64::from(ring_ns == 0)),
        };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.fd.fd(), TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }

    /// Ready when the timer fires, once for each time that is set.
    pub(super) fn poll_ring(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            // The expiry is an edge, and setting the timer again clears it, so nothing has to be read.
            ready!(self.fd.poll_read_ready(context))?.clear_ready();
            // If the time is not near, the timer was set again after it fired.
            if self.is_near(precise_ns()) {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pacer;
    use flatout_os::clock::precise_ns;
    use flatout_os::runtime::build_runtime;
    use std::future::poll_fn;

    #[test]
    fn a_pacer_fires_once_and_not_early() {
        build_runtime().unwrap().block_on(async {
            let pacer = Pacer::new(0).unwrap();
            for wait_ns in [0, 1_000_000, 3_000_000] {
                let due_ns = precise_ns() + wait_ns;
                // The time that was set before has no effect.
                pacer.set(due_ns + 60_000_000_000).unwrap();
                pacer.set(due_ns).unwrap();
                assert!(!pacer.is_due(due_ns - 1) && pacer.is_due(due_ns));
                poll_fn(|context| pacer.poll_ring(context)).await.unwrap();
                assert!(precise_ns() >= due_ns);
                assert!(pacer.take_due(precise_ns()) && !pacer.take_due(precise_ns()));
                assert!(!pacer.is_due(u64::MAX - 1));
            }
            pacer.set(0).unwrap();
            poll_fn(|context| pacer.poll_ring(context)).await.unwrap();
        });
    }

    #[test]
    fn the_timer_fires_early_by_the_configured_time() {
        build_runtime().unwrap().block_on(async {
            const EARLY_NS: u64 = 50_000_000;
            let pacer = Pacer::new(EARLY_NS).unwrap();
            let due_ns = precise_ns() + 60_000_000_000;
            assert!(!pacer.is_near(due_ns));
            pacer.set(due_ns).unwrap();
            assert!(!pacer.is_near(due_ns - EARLY_NS - 1) && pacer.is_near(due_ns - EARLY_NS));
            assert!(!pacer.take_due(due_ns - 1) && pacer.take_due(due_ns));
            let due_ns = precise_ns() + EARLY_NS;
            pacer.set(due_ns).unwrap();
            poll_fn(|context| pacer.poll_ring(context)).await.unwrap();
            assert!(pacer.is_near(precise_ns()));
        });
    }
}
