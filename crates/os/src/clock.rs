//! The single access point to time: every clock that the server reads, and every pause of a thread.
//!
//! Decisions use the coarse clocks, durations the precise ones. With the feature `settable-clock`, which only tests and
//! simulations enable, a `SettableClock` replaces the system's clocks on the threads that have entered it. Without the
//! feature, each function is just the system call.

#[cfg(any(test, feature = "settable-clock"))]
pub use crate::settable_clock::SettableClock;

#[cfg(any(test, feature = "settable-clock"))]
use crate::settable_clock as settable;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, Instant};

/// Stands in for `SettableClock` when the feature is disabled: no clock is replaced, which the compiler can see.
#[cfg(not(any(test, feature = "settable-clock")))]
mod settable {
    use std::time::{Duration, Instant};

    pub(super) const fn now() -> Option<Instant> {
        None
    }

    pub(super) const fn monotonic_ns() -> Option<u64> {
        None
    }

    pub(super) const fn unix_ns() -> Option<i128> {
        None
    }

    pub(super) const fn sleep(_: Duration) -> bool {
        false
    }
}

/// The current time, read once per turn of a connection. The coarse clocks cost a few nanoseconds and lag by at most
/// one tick (1 to 10 ms; 4 ms on most kernels).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on the monotonic clock.
    pub monotonic_ms: u64,
    /// Seconds since 1970 on the wall clock.
    pub unix_s: i64,
}

impl Now {
    /// Reads both coarse clocks.
    pub fn read() -> Self {
        Self { monotonic_ms: monotonic_ms(), unix_s: unix_s() }
    }
}

/// The current instant of the precise monotonic clock.
#[inline]
pub fn now() -> Instant {
    settable::now().unwrap_or_else(Instant::now)
}

/// Time elapsed since `instant`; zero if `instant` is in the future.
pub fn since(instant: Instant) -> Duration {
    now().saturating_duration_since(instant)
}

/// Pauses this thread for at least `duration`. If a settable clock is in use, advances that clock instead.
pub fn sleep(duration: Duration) {
    if !settable::sleep(duration) {
        std::thread::sleep(duration);
    }
}

/// Milliseconds on the coarse monotonic clock.
#[inline]
pub fn monotonic_ms() -> u64 {
    settable::monotonic_ns().map_or_else(|| to_ms(clock_gettime(ClockId::MonotonicCoarse)), |ns| ns / 1_000_000)
}

/// Nanoseconds on the precise monotonic clock, for reported durations.
pub fn precise_ns() -> u64 {
    settable::monotonic_ns().unwrap_or_else(|| to_ns(clock_gettime(ClockId::Monotonic)))
}

/// Seconds since 1970 on the coarse wall clock.
#[inline]
pub fn unix_s() -> i64 {
    settable::unix_ns().map_or_else(
        || clock_gettime(ClockId::RealtimeCoarse).tv_sec,
        |ns| i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
    )
}

/// Milliseconds since 1970 on the coarse wall clock.
pub fn unix_ms() -> i64 {
    let ms = |time: Timespec| time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000);
    settable::unix_ns().map_or_else(
        || ms(clock_gettime(ClockId::RealtimeCoarse)),
        |ns| i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX),
    )
}

/// Nanoseconds since 1970 on the precise wall clock, for comparison with the times of files.
pub fn unix_ns() -> i128 {
    let ns = |time: Timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    settable::unix_ns().unwrap_or_else(|| ns(clock_gettime(ClockId::Realtime)))
}

/// CPU time of this thread. Reading it is a system call; the other clocks are read without one. A settable clock does
/// not replace it, because it measures work rather than waiting.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn to_ms(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

fn to_ns(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Now, precise_ns, unix_ms, unix_ns, unix_s};

    #[test]
    fn clocks_advance() {
        assert!(Now::read().unix_s > 1_700_000_000);
        let before = precise_ns();
        assert!(precise_ns() >= before);
    }

    /// The coarse wall clocks lag behind the precise one by at most a tick.
    #[test]
    fn wall_clocks_agree() {
        let (seconds, milliseconds, nanoseconds) = (unix_s(), unix_ms(), unix_ns());
        assert!((nanoseconds / 1_000_000_000 - i128::from(seconds)).unsigned_abs() <= 10);
        assert!((nanoseconds / 1_000_000 - i128::from(milliseconds)).unsigned_abs() <= 10_000);
    }
}
