//! The value of the Date field, formatted from the coarse clock once a second.

use flatout_http::date::{DATE_BYTES, format_date};
use flatout_os::clock::Now;
use std::cell::Cell;

/// A worker's clock, with the formatted value of the Date field.
#[derive(Debug)]
pub(crate) struct DateClock {
    latest: Cell<Now>,
    text: Cell<[u8; DATE_BYTES]>,
}

impl DateClock {
    /// Creates a clock that has not been read.
    pub(crate) const fn new() -> Self {
        let never = Now { monotonic_ms: 0, unix_s: i64::MIN };
        Self { latest: Cell::new(never), text: Cell::new([b' '; DATE_BYTES]) }
    }

    /// Reads the clock and formats the date if a second has passed.
    pub(crate) fn read(&self) -> Now {
        let now = Now::read();
        if now.unix_s != self.latest.get().unix_s {
            self.text.set(format_date(now.unix_s));
        }
        self.latest.set(now);
        now
    }

    /// Returns the time of the last [`DateClock::read`].
    #[inline]
    pub(crate) fn latest(&self) -> Now {
        self.latest.get()
    }

    /// Returns the value of the Date field as of the last [`DateClock::read`].
    pub(crate) fn date(&self) -> [u8; DATE_BYTES] {
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
    use super::DateClock;
    use flatout_http::date::parse_date;

    #[test]
    fn the_date_is_that_of_the_clock() {
        let clock = DateClock::new();
        let now = clock.read();
        assert_eq!(parse_date(&clock.date()), Some(now.unix_s));
    }
}
