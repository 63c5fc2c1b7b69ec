//! Evidence that an origin slows down because of the number of requests: most requests take several times as long as
//! others of the same kind took when fewer were waiting.

use super::kinds::{Base, Kinds};

/// Ratio of delays from which a request counts as evidence. By then, throughput no longer grows with concurrency, since
/// the delays that are compared are at least a factor of two apart in concurrency, and usually more.
const GROWN: f64 = 2.6;

/// Delay from which a request counts as evidence, in microseconds. Shorter ones trouble nobody, and vary with whatever
/// else runs on the machine.
const GROWN_US: u64 = 50_000;

/// Number of requests in a window. More than half of them must be evidence.
const WINDOW: u32 = 32;

/// Maximum duration of a window, in milliseconds. Requests further apart than that are no overload.
const WINDOW_MS: u64 = 10_000;

/// Factor by which the estimated number of requests that the origin works on is exceeded, so that the origin is never
/// idle.
const SPARE: f64 = 1.5;

/// Returns whether a delay is evidence.
pub(super) fn is_grown(base: Base, delay_us: u64) -> bool {
    delay_us >= GROWN_US && base.ratio(delay_us) >= GROWN
}

/// A window of responses whose delays can be compared with those at a lower concurrency.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    count: u32,
    grown: u32,
    asking_sum: f64,
    ratio_log_sum: f64,
    /// Highest number of requests at which delays were known to be good.
    good: u32,
    started_ms: u64,
}

impl Growth {
    /// Handles a response that took `delay_us` among `asking` requests, which must be comparable with `base`. Returns the
    /// limit that follows if the origin is overloaded.
    pub(super) fn handle(
        &mut self,
        (kinds, base): (&Kinds, Base),
        (asking, delay_us): (u32, u64),
        now_ms: u64,
    ) -> Option<u32> {
        if self.count == 0 || now_ms.saturating_sub(self.started_ms) > WINDOW_MS {
            *self = Self { started_ms: now_ms, ..Self::default() };
        }
        let ratio = base.ratio(delay_us);
        self.count += 1;
        self.grown += u32::from(is_grown(base, delay_us));
        self.asking_sum += f64::from(asking);
        self.ratio_log_sum += ratio.max(f64::MIN_POSITIVE).ln();
        if self.count >= WINDOW && ratio >= GROWN {
            self.good = self.good.max(kinds.good_concurrency(base));
        }
        if self.count < WINDOW {
            return None;
        }
        let (count, window) = (f64::from(self.count), std::mem::take(self));
        if window.grown * 2 <= window.count {
            return None;
        }
        // By Little's law, an origin whose requests take so many times as long works on this many at a time, and the
        // others wait within it.
        let asking = window.asking_sum / count;
        let working = asking / (window.ratio_log_sum / count).exp();
        let limit = (working * SPARE).max(f64::from(window.good)).round();
        (limit < asking).then_some(limit as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::Kinds;
    use super::{Growth, WINDOW};

    /// Responses of a kind that takes 20 ms alone. Returns the limit after a window of delays.
    fn limit(asking: u32, delays_us: impl Fn(u32) -> u64) -> Option<u32> {
        let (kinds, mut growth) = (Kinds::new(), Growth::default());
        let page = kinds.find(b"/page");
        (0..8).for_each(|_| kinds.add(page, 1, 20_000));
        let base = kinds.base(page, 4).unwrap();
        assert!(base.is_comparable(asking));
        (0..WINDOW).find_map(|number| {
            let delay_us = delays_us(number);
            kinds.add(page, asking, delay_us);
            growth.handle((&kinds, base), (asking, delay_us), u64::from(number))
        })
    }

    #[test]
    fn delays_that_grow_with_the_number_of_requests_are_overload() {
        // A hundred requests that take ten times as long: the origin works on ten.
        assert_eq!(limit(100, |_| 200_000), Some(15));
        assert_eq!(limit(100, |number| if number % 3 == 0 { 20_000 } else { 400_000 }), Some(21));
        for (asking, delay_us) in [(100, 20_000), (100, 50_000), (1_000, 24_000)] {
            assert_eq!(limit(asking, |_| delay_us), None, "{asking} requests of {delay_us} us");
        }
        // Some of the requests wait for something else.
        assert_eq!(limit(100, |number| if number % 2 == 0 { 20_000 } else { 25_000_000 }), None);
    }
}
