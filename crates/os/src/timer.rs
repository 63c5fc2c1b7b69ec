//! A timerfd that ticks only while needed.
//!
//! The runtime would check tokio's own timers on every turn; this one costs nothing until it ticks.

use crate::registered::Registered;
use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::future::poll_fn;
use std::io;
use std::task::ready;

/// A timer that ticks at an interval, or is stopped.
#[derive(Debug)]
pub struct Timer {
    fd: Registered,
}

impl Timer {
    /// A stopped timer. Must be called within a worker's runtime.
    pub fn new() -> io::Result<Self> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Self { fd: Registered::new(fd)? })
    }

    /// Ticks every `interval_ms` from now on; 0 stops it.
    pub fn set_interval(&self, interval_ms: u64) -> io::Result<()> {
        let interval = Timespec {
            tv_sec: i64::try_from(interval_ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(interval_ms % 1000).unwrap_or(0) * 1_000_000,
        };
        let setting = Itimerspec { it_interval: interval, it_value: interval };
        timerfd_settime(self.fd.fd(), TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// Waits for the next tick. Missed ticks count as one.
    pub async fn tick(&self) -> io::Result<()> {
        poll_fn(|context| {
            loop {
                let mut guard = ready!(self.fd.poll_read_ready(context))?;
                match read(self.fd.fd(), &mut [0_u8; 8]) {
                    Ok(_) => return std::task::Poll::Ready(Ok(())),
                    Err(Errno::AGAIN | Errno::INTR) => guard.clear_ready(),
                    Err(errno) => return std::task::Poll::Ready(Err(errno.into())),
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::Timer;
    use crate::runtime::build_runtime;

    #[test]
    fn it_ticks_again_and_again() {
        build_runtime().unwrap().block_on(async {
            let timer = Timer::new().unwrap();
            timer.set_interval(1).unwrap();
            for _ in 0..3 {
                timer.tick().await.unwrap();
            }
            timer.set_interval(0).unwrap();
        });
    }
}
