//! Rate limits per address: the generic cell rate algorithm, in one table shared by all workers.
//!
//! Each address has one number, its theoretical arrival time: when it would have used up its requests so far. The
//! numbers are in a table of fixed size, with eight per set (a cache line), each in one atomic word with a tag of the
//! address, so there is no lock and no growth. A full set replaces its oldest number, which matters least: an
//! attacker with many addresses regains a burst for some of them. The hash is keyed per process, so collisions cannot
//! be targeted.

use crate::network::normalise;
use flatout_config::model::RateLimit;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries per set; together one cache line.
const WAYS: usize = 8;

/// Sets per table: 32,768 addresses in 256 KiB for each `rate-limit` step.
const SETS: usize = 4096;

/// Ticks per millisecond. 42 bits of ticks are two years and two months; a number from before a wrap-around is
/// further in the future than possible, and is ignored.
const TICKS_PER_MS: u64 = 64;
const TIME_BITS: u32 = 42;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Tolerance for clock differences, in ticks. Workers read the clock once per turn, so they may disagree; a minute
/// exceeds any turn.
const SKEW_TICKS: u64 = 60_000 * TICKS_PER_MS;

/// Attempts of an exchange that races with other workers; after that the request passes.
const RACES_MAX: u32 = 16;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It passes.
    Pass,
    /// It is rejected, and may be repeated after this many seconds, at least one.
    Wait(u64),
}

/// The addresses under one `rate-limit` step.
#[derive(Debug)]
pub(crate) struct RateTable {
    limit: RateLimit,
    hash: RandomState,
    /// Allocated with the first request, as most of a thousand sites are inactive.
    words: OnceLock<Box<[AtomicU64]>>,
    /// Interval between evenly spaced requests, in ticks.
    interval_ticks: u64,
    /// How far ahead an address may be, in ticks.
    burst_ticks: u64,
}

impl RateTable {
    /// An empty table for `limit`.
    pub(crate) fn new(limit: RateLimit) -> Self {
        let period_ticks = limit.period_ms.saturating_mul(TICKS_PER_MS);
        let interval_ticks = (period_ticks / u64::from(limit.requests.max(1))).clamp(1, TIME_MASK >> 4);
        let burst_ticks = interval_ticks.saturating_mul(u64::from(limit.burst.max(1))).min(TIME_MASK >> 2);
        Self { limit, hash: RandomState::new(), words: OnceLock::new(), interval_ticks, burst_ticks }
    }

    /// The limit of this table.
    pub(crate) const fn limit(&self) -> &RateLimit {
        &self.limit
    }

    /// Counts a request of `client` at `now_ms`.
    pub(crate) fn decide(&self, client: Option<IpAddr>, now_ms: u64) -> Decision {
        let hash = self.hash.hash_one(subject(client));
        let set = (hash as usize % SETS) * WAYS;
        let words = self.words.get_or_init(|| (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect());
        let words = &words[set..set + WAYS];
        // Never zero, so that no word in use looks empty. Of eight addresses in a set, one in half a million shares
        // its tag with a ninth.
        let tag = (hash >> TIME_BITS).max(1) << TIME_BITS;
        let now = now_ms.saturating_mul(TICKS_PER_MS) & TIME_MASK;
        for _ in 0..RACES_MAX {
            let (word, old, ahead) = self.find(words, tag, now);
            let ahead = ahead + self.interval_ticks;
            if ahead > self.burst_ticks {
                let wait_ms = (ahead - self.burst_ticks).div_ceil(TICKS_PER_MS);
                return Decision::Wait(wait_ms.div_ceil(1000).max(1));
            }
            let new = tag | (now + ahead) & TIME_MASK;
            if word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Decision::Pass;
            }
        }
        Decision::Pass
    }

    /// The word for `tag`, its value, and how far its address is ahead of `now`: its own word, or one to replace.
    fn find<'a>(&self, words: &'a [AtomicU64], tag: u64, now: u64) -> (&'a AtomicU64, u64, u64) {
        let mut oldest: Option<(&AtomicU64, u64, u64)> = None;
        for word in words {
            let value = word.load(Ordering::Relaxed);
            let ahead = self.ahead(value, now);
            if value & !TIME_MASK == tag {
                return (word, value, ahead);
            }
            if oldest.is_none_or(|(_, _, least)| ahead < least) {
                oldest = Some((word, value, ahead));
            }
        }
        let (word, value, _) = oldest.unwrap_or((&words[0], 0, 0));
        (word, value, 0)
    }

    /// How far the address with `value` is ahead of `now`. An impossible value is in the past, so it is not ahead.
    fn ahead(&self, value: u64, now: u64) -> u64 {
        let ahead = (value & TIME_MASK).wrapping_sub(now) & TIME_MASK;
        if value == 0 || ahead > self.burst_ticks + SKEW_TICKS { 0 } else { ahead }
    }
}

/// The unit that a client counts as: a whole /64 for IPv6, as a subscriber has at least that (RFC 6177).
fn subject(client: Option<IpAddr>) -> (u8, u64) {
    match client.map(normalise) {
        None => (0, 0),
        Some(IpAddr::V4(address)) => (4, u64::from(address.to_bits())),
        Some(IpAddr::V6(address)) => (6, (address.to_bits() >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::{Decision, RateTable, SETS, WAYS};
    use flatout_config::model::RateLimit;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::{AtomicU32, Ordering};

    fn table(requests: u32, period_ms: u64, burst: u32) -> RateTable {
        RateTable::new(RateLimit { requests, period_ms, burst })
    }

    #[test]
    fn a_burst_and_then_evenly() {
        let table = table(10, 1000, 3);
        let client: Option<IpAddr> = "192.0.2.1".parse().ok();
        let pass = |now_ms| table.decide(client, now_ms) == Decision::Pass;
        assert!(pass(5000) && pass(5000) && pass(5000) && !pass(5000) && !pass(5099));
        assert!(pass(5100) && !pass(5100), "one each 100 ms");
        assert!(pass(6000) && pass(6000) && pass(6000) && !pass(6000), "a burst again after a rest");
        assert_eq!(table.decide(client, 6000), Decision::Wait(1));
        assert!(table.decide("192.0.2.2".parse().ok(), 6000) == Decision::Pass, "another address");
        assert!(table.decide(None, 0) == Decision::Pass);
    }

    #[test]
    fn a_worker_whose_clock_is_behind_forgets_nothing() {
        let table = table(1, 1000, 2);
        let client: Option<IpAddr> = "192.0.2.1".parse().ok();
        assert_eq!((table.decide(client, 5000), table.decide(client, 5000)), (Decision::Pass, Decision::Pass));
        for at_ms in [4990, 4000, 1] {
            assert_ne!(table.decide(client, at_ms), Decision::Pass, "{at_ms}");
        }
        assert_eq!(table.decide(client, 6000), Decision::Pass);
    }

    #[test]
    fn the_wait_is_whole_seconds_and_enough() {
        let table = table(1, 60_000, 1);
        let client: Option<IpAddr> = "::1".parse().ok();
        assert_eq!(table.decide(client, 1_000), Decision::Pass);
        assert_eq!(table.decide(client, 1_001), Decision::Wait(60));
        assert_eq!(table.decide(client, 60_500), Decision::Wait(1));
        assert_eq!(table.decide(client, 61_000), Decision::Pass);
    }

    #[test]
    fn networks_of_ipv6_count_as_one_and_mapped_addresses_as_ipv4() {
        let table = table(1, 1000, 1);
        let pass = |client: &str| table.decide(client.parse().ok(), 9000) == Decision::Pass;
        assert!(pass("2001:db8::1") && !pass("2001:db8::2") && pass("2001:db8:0:1::1"));
        assert!(pass("192.0.2.1") && !pass("::ffff:192.0.2.1"));
    }

    #[test]
    fn a_clock_that_wraps_or_is_set_back_blocks_nobody_for_long() {
        let table = table(1, 1000, 2);
        let client: Option<IpAddr> = "192.0.2.1".parse().ok();
        let wrap_ms = (1_u64 << 42) / 64;
        for at_ms in [0, wrap_ms - 90_000, wrap_ms + 5_000, 3 * wrap_ms / 2, 90_000, 2 * wrap_ms + 3_000] {
            assert_eq!(table.decide(client, at_ms), Decision::Pass, "{at_ms}");
        }
    }

    #[test]
    fn odd_limits_are_bounded() {
        for (requests, period_ms, burst) in
            [(0, 0, 0), (u32::MAX, 1, u32::MAX), (1, u64::MAX, u32::MAX), (1, u64::MAX, 1)]
        {
            let table = table(requests, period_ms, burst);
            assert_eq!(table.decide(None, 1), Decision::Pass);
            let _ = table.decide(None, u64::MAX);
        }
    }

    #[test]
    fn a_full_table_forgets_the_oldest_and_never_grows() {
        let table = table(1, 1_000_000, 1);
        let pass = |address: u32| {
            table.decide(Some(Ipv4Addr::from_bits(address).into()), u64::from(address) + 1) == Decision::Pass
        };
        let passed = (0..(SETS * WAYS * 2) as u32).filter(|&address| pass(address)).count();
        assert!(passed + 5 > SETS * WAYS * 2, "tags are shared too often: {passed}");
        let last = (SETS * WAYS * 2 - 1) as u32;
        assert_ne!(table.decide(Some(Ipv4Addr::from_bits(last).into()), u64::from(last) + 2), Decision::Pass);
    }

    #[test]
    fn workers_together_let_no_more_pass() {
        let table = table(100, 1_000_000, 100);
        let passed = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        if table.decide("192.0.2.1".parse().ok(), 50) == Decision::Pass {
                            passed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // A race that was lost too often lets one pass; sixteen times in a row it hardly ever is.
        assert!((100..=104).contains(&passed.into_inner()));
    }
}
