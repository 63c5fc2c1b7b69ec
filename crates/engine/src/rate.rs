//! Rate limits per client address: the generic cell rate algorithm (GCRA), with a table shared by all workers.
//!
//! Each address has one number, its theoretical arrival time, at which its requests so far would have arrived if they
//! were evenly spaced. The numbers are in a table of fixed size, which consists of sets of eight (a cache line). Each
//! number is in an atomic word together with a tag of the address, so that the table needs no lock and never grows. If
//! a set is full, its oldest number is replaced. That is the one that matters least, although an attacker with many
//! addresses regains a burst for some of them. The hash has a random key per process, so collisions cannot be provoked.

use crate::network::normalise;
use flatout_config::model::RateLimit;
use flatout_os::random::KeyedHashState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of entries per set, which together fill a cache line.
const WAYS: usize = 8;

/// Number of sets per table, which is enough for 32,768 addresses in 256 KiB for each `rate-limit` step.
const SETS: usize = 4096;

/// Ticks per millisecond. 42 bits of ticks wrap around after two years and two months. After that, an old number
/// appears to be further in the future than possible, and is ignored.
const TICKS_PER_MS: u64 = 64;
const TIME_BITS: u32 = 42;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Tolerance for clock differences between workers, in ticks. Workers read the clock once per turn of the event loop,
/// so they may disagree. A minute is longer than any turn.
const SKEW_TICKS: u64 = 60_000 * TICKS_PER_MS;

/// Maximum number of attempts at a compare-and-exchange that races with other workers. After that, the request passes.
const RACES_MAX: u32 = 16;

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The request passes.
    Pass,
    /// The request is rejected, and may be repeated after this number of seconds, which is at least 1.
    Wait(u64),
}

/// State of a `rate-limit` step: the theoretical arrival time of each address.
#[derive(Debug)]
pub(crate) struct RateTable {
    limit: RateLimit,
    hash: KeyedHashState,
    /// The table, which is allocated for the first request, since most of a large number of sites may be inactive.
    words: OnceLock<Box<[AtomicU64]>>,
    /// Interval between evenly spaced requests, in ticks.
    interval_ticks: u64,
    /// Maximum time by which an address may be ahead, in ticks.
    burst_ticks: u64,
}

impl RateTable {
    /// Creates an empty table for `limit`.
    pub(crate) fn new(limit: RateLimit) -> Self {
        let period_ticks = limit.period_ms.saturating_mul(TICKS_PER_MS);
        let interval_ticks = (period_ticks / u64::from(limit.requests.max(1))).clamp(1, TIME_MASK >> 4);
        let burst_ticks = interval_ticks.saturating_mul(u64::from(limit.burst.max(1))).min(TIME_MASK >> 2);
        Self { limit, hash: KeyedHashState::new(), words: OnceLock::new(), interval_ticks, burst_ticks }
    }

    /// Returns the limit.
    pub(crate) const fn limit(&self) -> &RateLimit {
        &self.limit
    }

    /// Counts a request from `client` at `now_ms`, and decides whether it passes.
    pub(crate) fn decide(&self, client: Option<IpAddr>, now_ms: u64) -> Decision {
        let hash = self.hash.hash_one(subject(client));
        let set = (hash as usize % SETS) * WAYS;
        let words = self.words.get_or_init(|| (0..SETS * WAYS).map(|_| AtomicU64::new(0)).collect());
        let words = &words[set..set + WAYS];
        // The tag is never zero, so that no word in use appears to be empty. With eight addresses in a set, the
        // probability that a ninth shares a tag with one of them is one in half a million.
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

    /// Returns the word that has `tag` or, failing that, the word to replace, with its value, and the time by which the
    /// address is ahead of `now`, in ticks.
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

    /// Returns the time by which the address with `value` is ahead of `now`, in ticks. An impossible value is from the
    /// past, so the result is 0.
    fn ahead(&self, value: u64, now: u64) -> u64 {
        let ahead = (value & TIME_MASK).wrapping_sub(now) & TIME_MASK;
        if value == 0 || ahead > self.burst_ticks + SKEW_TICKS { 0 } else { ahead }
    }
}

/// Returns what counts as one client: an IPv4 address, or a whole IPv6 /64, because a subscriber normally has at least
/// a /64 (RFC 6177).
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
