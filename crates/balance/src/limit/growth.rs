//! Evidence that an origin slows down because of the number of requests: most requests take several times as long as
//! others of the same kind took when fewer were waiting.

use super::kinds::{Base, Kinds};

/// Ratio of delays from which a request counts as evidence. By then, throughput no longer grows with concurrency, since
/// the delays that are compared are at least a factor of two apart in concurrency, and usually more.
const GROWN: f64 = 2.6;

/// Delay from which a request counts as evidence, in microseconds. Shorter ones trouble nobody, and vary with whatever
/// else runs on the machine.
const GROWN_US: u64 = 50_000;

/// How many more requests must be evidence than twice as many as are none, since the last time that was not the case.
/// Less evidence could be chance, and an origin would be overrun before there is more.
const EVIDENCE: u32 = 16;

/// Number by which a request that is no evidence counts against it.
const AGAINST: u32 = 2;

/// How many times as long as the evidence a request must take to say nothing about it.
const LONGER: u64 = 4;

/// Maximum time between requests, in milliseconds. Requests further apart than that are no overload.
const APART_MS: u64 = 10_000;

/// Factor by which the estimated number of requests that the origin works on is exceeded, so that the origin is never
/// idle.
const SPARE: f64 = 1.5;

/// Returns whether a delay is much longer than the usual one, `usual_us`.
pub(super) fn is_grown(usual_us: u32, delay_us: u64) -> bool {
    delay_us >= GROWN_US && delay_us as f64 >= GROWN * f64::from(usual_us)
}

/// The limit that follows from the evidence, and the delays before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Overload {
    pub(super) limit: u32,
    /// Mean number of requests that were waiting for a head.
    pub(super) asking: u32,
    /// Mean ratio of the delays to those among few.
    pub(super) ratio: f64,
    /// Time of the first evidence, in milliseconds.
    pub(super) since_ms: u64,
}

/// Evidence from responses whose delays can be compared with those at a lower concurrency (a cumulative sum: Page,
/// 1954).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    evidence: u32,
    count: u32,
    asking_sum: f64,
    ratio_log_sum: f64,
    delay_us_sum: u64,
    /// Highest number of requests at which delays were known to be good.
    good: u32,
    /// Time of the first evidence.
    since_ms: u64,
    latest_ms: u64,
}

impl Growth {
    /// Handles a response that took `delay_us` among `asking` requests, which must be comparable with `base`.
    /// `is_evidence` is true if the delay has grown, and has no other reason than the number of requests. Returns the
    /// limit that follows if the origin is overloaded.
    pub(super) fn handle(
        &mut self,
        (kinds, base): (&Kinds, Base),
        (asking, delay_us): (u32, u64),
        is_evidence: bool,
        now_ms: u64,
    ) -> Option<Overload> {
        // A request that takes much longer than those does not show that the origin has capacity, and neither does one
        // that is still short, but takes several times as long.
        let is_longer = u64::from(self.count) * delay_us > LONGER * self.delay_us_sum;
        let is_short = delay_us < GROWN_US && base.ratio(delay_us) >= GROWN;
        if !is_evidence && (is_longer || is_short) {
            return None;
        }
        if now_ms.saturating_sub(self.latest_ms) > APART_MS || (!is_evidence && self.evidence <= AGAINST) {
            *self = Self { latest_ms: now_ms, ..Self::default() };
        }
        self.latest_ms = now_ms;
        if !is_evidence {
            self.evidence = self.evidence.saturating_sub(AGAINST);
            return None;
        }
        if self.count == 0 {
            self.since_ms = now_ms;
        }
        self.evidence += 1;
        self.count += 1;
        self.asking_sum += f64::from(asking);
        self.delay_us_sum = self.delay_us_sum.saturating_add(delay_us);
        self.ratio_log_sum += base.ratio(delay_us).ln();
        self.good = self.good.max(kinds.good_concurrency(base, asking));
        if self.evidence < EVIDENCE {
            return None;
        }
        let (count, sums) = (f64::from(self.count), std::mem::take(self));
        // By Little's law, an origin whose requests take so many times as long works on this many at a time, and the
        // others wait within it.
        let (asking, ratio) = (sums.asking_sum / count, (sums.ratio_log_sum / count).exp());
        let working = asking / ratio;
        let limit = (working * SPARE).max(f64::from(sums.good)).round();
        (limit < asking).then_some(Overload {
            limit: limit as u32,
            asking: asking as u32,
            ratio,
            since_ms: sums.since_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds::Kinds;
    use super::{Growth, is_grown};

    /// Responses of a kind that takes 20 ms alone. Returns the limit after these delays.
    fn limit(asking: u32, delays_us: impl Fn(u32) -> u64) -> Option<u32> {
        let (kinds, mut growth) = (Kinds::new(), Growth::default());
        let page = kinds.find(b"/page");
        (0..8).for_each(|_| kinds.add(page, 1, 20_000));
        let base = kinds.base(page, 4).unwrap();
        assert!(base.is_comparable(asking));
        (0..1_000)
            .find_map(|number| {
                let delay_us = delays_us(number);
                kinds.add(page, asking, delay_us);
                let is_evidence = is_grown(base.mean_us(), delay_us);
                growth.handle((&kinds, base), (asking, delay_us), is_evidence, u64::from(number))
            })
            .map(|overload| overload.limit)
    }

    #[test]
    fn delays_that_grow_with_the_number_of_requests_are_overload() {
        // A hundred requests that take ten times as long: the origin works on ten.
        assert_eq!(limit(100, |_| 200_000), Some(15));
        assert_eq!(limit(100, |number| if number % 5 == 0 { 20_000 } else { 400_000 }), Some(7));
        for (asking, delay_us) in [(100, 20_000), (100, 50_000), (1_000, 24_000)] {
            assert_eq!(limit(asking, |_| delay_us), None, "{asking} requests of {delay_us} us");
        }
        // Some of the requests wait for something else.
        assert_eq!(limit(100, |number| if number % 2 == 0 { 20_000 } else { 25_000_000 }), None);
    }
}
