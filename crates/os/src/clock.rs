//! The coarse clock for decisions, and the precise one for durations.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment, read once per turn of a connection. The coarse clocks cost a few nanoseconds and lag by at most one tick
/// (1 to 10 ms, 4 on most kernels).
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
        let monotonic = clock_gettime(ClockId::MonotonicCoarse);
        Self { monotonic_ms: to_ms(monotonic), unix_s: clock_gettime(ClockId::RealtimeCoarse).tv_sec }
    }
}

fn to_ms(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Milliseconds since 1970 on the coarse wall clock.
pub fn unix_ms() -> i64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

/// Nanoseconds on the precise monotonic clock, for reported durations.
pub fn precise_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Now, precise_ns};

    #[test]
    fn clocks_advance() {
        assert!(Now::read().unix_s > 1_700_000_000);
        let before = precise_ns();
        assert!(precise_ns() >= before);
    }
}
