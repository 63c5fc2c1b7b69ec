//! The coarse clock, and the Date field formatted from it once a second.

use flatout_http::date::{DATE_BYTES, format_date};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;

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

/// A worker's clock with the text of its Date field.
#[derive(Debug)]
pub struct DateClock {
    latest: Cell<Now>,
    text: Cell<[u8; DATE_BYTES]>,
}

impl DateClock {
    /// A clock that has not been read.
    pub const fn new() -> Self {
        let never = Now { monotonic_ms: 0, unix_s: i64::MIN };
        Self { latest: Cell::new(never), text: Cell::new([b' '; DATE_BYTES]) }
    }

    /// Reads the clock and formats the date if a second has passed.
    pub fn read(&self) -> Now {
        let now = Now::read();
        if now.unix_s != self.latest.get().unix_s {
            self.text.set(format_date(now.unix_s));
        }
        self.latest.set(now);
        now
    }

    /// The moment of the last [`DateClock::read`].
    #[inline]
    pub fn latest(&self) -> Now {
        self.latest.get()
    }

    /// The Date field's value as of the last [`DateClock::read`].
    pub fn date(&self) -> [u8; DATE_BYTES] {
        self.text.get()
    }
}

impl Default for DateClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{DateClock, precise_ns};
    use flatout_http::date::parse_date;

    #[test]
    fn the_date_is_the_clock_s() {
        let clock = DateClock::new();
        let now = clock.read();
        assert_eq!(parse_date(&clock.date()), Some(now.unix_s));
        assert!(now.unix_s > 1_700_000_000);
        let before = precise_ns();
        assert!(precise_ns() >= before);
    }
}
