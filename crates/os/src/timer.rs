//! A timerfd that ticks only while needed.
//!
//! The runtime would check tokio's own timers on every turn; this timer costs nothing until it ticks.

use crate::registered::Registered;
#[cfg(any(test, feature = "settable-clock"))]
use crate::settable_clock::SettableTimer;
use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Stands in for the settable timer when the feature is disabled: no value of this type exists.
#[cfg(not(any(test, feature = "settable-clock")))]
#[derive(Debug)]
enum SettableTimer {}

#[cfg(not(any(test, feature = "settable-clock")))]
impl SettableTimer {
    const fn new() -> Option<Self> {
        None
    }

    const fn set(&self, _: Option<u64>, _: u64) {
        match *self {}
    }

    const fn poll_tick(&self, _: &Context<'_>) -> Poll<()> {
        match *self {}
    }
}

/// A timer that is stopped, ticks once, or ticks at an interval.
#[derive(Debug)]
pub struct Timer(Kind);

#[derive(Debug)]
enum Kind {
    Kernel(Registered),
    /// A timer of the settable clock that the thread has entered.
    Settable(SettableTimer),
}

impl Timer {
    /// Creates a stopped timer. Must be called within a worker's runtime.
    pub fn new() -> io::Result<Self> {
        if let Some(timer) = SettableTimer::new() {
            return Ok(Self(Kind::Settable(timer)));
        }
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self(Kind::Kernel(Registered::new(fd)?)))
    }

    /// Makes the timer tick every `interval_ms` from now on; 0 stops the timer.
    pub fn set_interval(&self, interval_ms: u64) -> io::Result<()> {
        let fd = match &self.0 {
            Kind::Kernel(fd) => fd,
            Kind::Settable(timer) => {
                let interval_ns = interval_ms.saturating_mul(1_000_000);
                timer.set((interval_ns > 0).then_some(interval_ns), interval_ns);
                return Ok(());
            }
        };
        let interval = Timespec {
            tv_sec: i64::try_from(interval_ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(interval_ms % 1000).unwrap_or(0) * 1_000_000,
        };
        let setting = Itimerspec { it_interval: interval, it_value: interval };
        timerfd_settime(fd.fd(), TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// Makes the timer tick once, after `delay`; a zero delay makes it tick at once.
    pub fn set_once(&self, delay: Duration) -> io::Result<()> {
        // A zero value would stop the timer.
        let delay = delay.max(Duration::from_nanos(1));
        let fd = match &self.0 {
            Kind::Kernel(fd) => fd,
            Kind::Settable(timer) => {
                timer.set(Some(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)), 0);
                return Ok(());
            }
        };
        let value = Timespec {
            tv_sec: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: delay.subsec_nanos().into(),
        };
        let setting = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(fd.fd(), TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// Waits for the next tick. Missed ticks count as one.
    pub async fn tick(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// The polling form of [`Self::tick`]. Only one task may wait at a time.
    pub fn poll_tick(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let fd = match &self.0 {
            Kind::Kernel(fd) => fd,
            Kind::Settable(timer) => return timer.poll_tick(context).map(Ok),
        };
        loop {
            let mut guard = ready!(fd.poll_read_ready(context))?;
            match read(fd.fd(), &mut [0_u8; 8]) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(Errno::AGAIN | Errno::INTR) => guard.clear_ready(),
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timer;
    use crate::runtime::build_runtime;
    use std::time::Duration;

    #[test]
    fn a_timer_ticks_repeatedly() {
        build_runtime().unwrap().block_on(async {
            let timer = Timer::new().unwrap();
            timer.set_interval(1).unwrap();
            for _ in 0..3 {
                timer.tick().await.unwrap();
            }
            timer.set_interval(0).unwrap();
            for delay_ms in [0, 1] {
                timer.set_once(Duration::from_millis(delay_ms)).unwrap();
                timer.tick().await.unwrap();
            }
        });
    }
}
