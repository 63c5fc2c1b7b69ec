//! Count of requests that began to wait within the last second.
//!
//! A request that has been waiting for longer, while others are answered as usual, waits for something else than the
//! origin's capacity, and must not keep others from being sent. Requests are counted by the tick in which they began, so
//! that no timer is needed per request.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Length of a tick, in milliseconds.
pub(super) const TICK_MS: u64 = 250;

/// Number of whole ticks after which a request is no longer young.
const YOUNG_TICKS: u64 = 4;

/// Number of ticks that are counted. More than those in which young requests can have begun.
const TICKS: usize = 8;

/// Counts of young requests, by the tick in which they began: the tick in the upper half, the number in the lower half.
#[derive(Debug, Default)]
pub(super) struct YoungRequests {
    ticks: [AtomicU64; TICKS],
    /// The latest tick in which [`age`](Self::age) was called.
    latest: AtomicU64,
}

/// The tick in which a request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tick(u32);

impl YoungRequests {
    /// Returns the number of requests that have ceased to be young since the last call. Call this before
    /// [`begin`](Self::begin) with the same time.
    pub(super) fn age(&self, now_ms: u64) -> u32 {
        let tick = now_ms / TICK_MS;
        // The first comparison avoids a write, so that workers do not contend for the cache line.
        if self.latest.load(SeqCst) >= tick || self.latest.fetch_max(tick, SeqCst) >= tick {
            return 0;
        }
        let mut aged = 0;
        for counted in &self.ticks {
            let empty = |counted: u64| {
                let began = counted >> 32;
                (counted as u32 > 0 && began + YOUNG_TICKS < tick).then_some(began << 32)
            };
            if let Ok(counted) = counted.fetch_update(SeqCst, SeqCst, empty) {
                aged += counted as u32;
            }
        }
        aged
    }

    /// Counts a request that begins now. Also returns the number of requests that have ceased to be young, if another
    /// worker is about to find that out.
    pub(super) fn begin(&self, now_ms: u64) -> (Tick, u32) {
        // Another worker may have read a later time.
        let tick = (now_ms / TICK_MS).max(self.latest.load(SeqCst));
        let add = |counted: u64| Some(if counted >> 32 == tick { counted + 1 } else { tick << 32 | 1 });
        let before = self.ticks[tick as usize % TICKS].fetch_update(SeqCst, SeqCst, add).unwrap_or_default();
        (Tick(tick as u32), if before >> 32 == tick { 0 } else { before as u32 })
    }

    /// Ends a request that began in `tick`. Returns whether it was still young.
    pub(super) fn end(&self, tick: Tick) -> bool {
        let subtract = |counted: u64| {
            let is_counted = counted >> 32 == u64::from(tick.0) && counted as u32 > 0;
            is_counted.then(|| counted - 1)
        };
        self.ticks[tick.0 as usize % TICKS].fetch_update(SeqCst, SeqCst, subtract).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::YoungRequests;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn requests_age_after_a_second() {
        let young = YoungRequests::default();
        let (first, second) = (young.begin(0).0, young.begin(600).0);
        assert_eq!((young.age(1_000), young.age(1_249)), (0, 0));
        assert_eq!((young.age(1_250), young.age(1_260)), (1, 0));
        assert!(!young.end(first) && young.end(second) && !young.end(second));
        assert_eq!(young.age(90_000), 0);
    }

    proptest! {
        /// Every request ends once, or ages once.
        #[test]
        fn each_is_counted_once(events in proptest::collection::vec((0_u64..600, 0_u8..3), 1..200)) {
            let (young, mut now_ms, mut open, mut counted) = (YoungRequests::default(), 0, Vec::new(), 0_u32);
            for (wait_ms, event) in events {
                now_ms += wait_ms;
                counted -= young.age(now_ms);
                match event {
                    0 if !open.is_empty() => counted -= u32::from(young.end(open.swap_remove(0))),
                    _ => {
                        open.push(young.begin(now_ms).0);
                        counted += 1;
                    }
                }
                prop_assert!(counted as usize <= open.len());
            }
            counted -= young.age(now_ms + 10_000);
            prop_assert_eq!(counted, 0);
        }
    }
}
