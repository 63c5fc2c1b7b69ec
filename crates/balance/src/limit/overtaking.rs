//! Requests that are answered as usual although they were sent after others that still wait.
//!
//! In an overloaded origin, requests wait for the same capacity, so that one that is sent later is not answered sooner,
//! except by as much as it takes less itself. A request that overtakes another therefore shows that the other one takes
//! long for a reason of its own, such as a long poll that waits for an event.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of bits of a delay in [`LatestUsual`].
const DELAY_BITS: u32 = 24;

/// By how many times the delay of the request that overtakes it a request must have taken longer than usual. An overloaded
/// origin that works on all requests at the same time finishes short ones before long ones, too.
const LONGER: u64 = 4;

/// The request that was sent last of those that have been answered as usual.
#[derive(Debug, Default)]
pub(super) struct LatestUsual {
    /// The time at which it was sent in the upper bits, and its delay in the lower ones, both in milliseconds.
    sent_and_delay_ms: AtomicU64,
}

impl LatestUsual {
    /// Notes a request that has been answered as usual.
    pub(super) fn note(&self, sent_ms: u64, delay_us: u64) {
        // A load first, so that workers do not contend for the cache line.
        if self.sent_and_delay_ms.load(Relaxed) >> DELAY_BITS < sent_ms {
            let delay_ms = delay_us.div_ceil(1_000).min((1 << DELAY_BITS) - 1);
            self.sent_and_delay_ms.fetch_max(sent_ms << DELAY_BITS | delay_ms, Relaxed);
        }
    }

    /// Returns whether a request overtook one that was sent at `sent_ms`, is answered now, and has taken `longer_us` more
    /// than usual.
    pub(super) fn overtook(&self, sent_ms: u64, longer_us: u64) -> bool {
        let latest = self.sent_and_delay_ms.load(Relaxed);
        let delay_ms = latest & ((1 << DELAY_BITS) - 1);
        latest >> DELAY_BITS > sent_ms && delay_ms * 1_000 * LONGER <= longer_us
    }
}

#[cfg(test)]
mod tests {
    use super::LatestUsual;

    #[test]
    fn one_that_was_sent_later_and_took_much_less_overtakes() {
        let latest = LatestUsual::default();
        assert!(!latest.overtook(0, 1_000_000));
        latest.note(1_000, 20_000);
        for (sent_ms, longer_us, overtook) in
            [(999, 80_000, true), (999, 79_999, false), (1_000, 80_000, false), (0, u64::MAX, true)]
        {
            assert_eq!(latest.overtook(sent_ms, longer_us), overtook, "{sent_ms} {longer_us}");
        }
        // An earlier one is not noted.
        latest.note(900, 1);
        assert!(!latest.overtook(950, 79_999));
        latest.note(2_000, u64::MAX);
        assert!(latest.overtook(1_000, u64::MAX) && !latest.overtook(1_000, 60_000_000_000));
    }
}
