//! Progress of a client that reads slowly, by samples of the bytes that it has not acknowledged.
//!
//! A blocked socket does not prove that the client accepts nothing: the kernel buffers up to megabytes, and reports room
//! only when a third of the buffer is free. The owner of a blocked connection takes a sample several times in a write
//! timeout, so a connection that is never blocked for so long costs no system call. Neither a clock nor a socket is read
//! here.

/// Number of samples in a timeout.
const SAMPLES: u64 = 8;

/// Maximum interval between two samples, in milliseconds. Larger intervals would save little.
const INTERVAL_MS_MAX: u64 = 1000;

/// Samples during one wait for a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AcknowledgedSamples {
    /// The smallest number of unacknowledged bytes since the last write, or `None` before the first sample. Only a
    /// smaller number is progress, so answers to pings, which are written and acknowledged in between, are not.
    bytes_min: Option<u32>,
    /// When the last sample was taken, in milliseconds.
    sampled_ms: u64,
}

impl AcknowledgedSamples {
    /// Forgets the samples, because more bytes of a response have been written.
    pub(crate) const fn clear(&mut self) {
        self.bytes_min = None;
    }

    /// Returns when to call [`is_stuck`](Self::is_stuck), for a client that has accepted nothing since `since_ms`.
    pub(crate) fn deadline_ms(self, since_ms: u64, timeout_ms: u64) -> u64 {
        let interval_ms = (timeout_ms / SAMPLES).clamp(1, INTERVAL_MS_MAX);
        let sample_ms = since_ms.max(self.sampled_ms).saturating_add(interval_ms);
        sample_ms.min(since_ms.saturating_add(timeout_ms))
    }

    /// Takes a sample: `bytes` are unacknowledged, `None` if the number is unknown. Updates `since_ms`, since when the
    /// client has accepted nothing. Returns whether that is a whole timeout. What the client accepts between a write and
    /// the first sample is not seen, so it does not extend the timeout.
    pub(crate) fn is_stuck(&mut self, now_ms: u64, timeout_ms: u64, since_ms: &mut u64, bytes: Option<u32>) -> bool {
        self.sampled_ms = now_ms;
        if let Some(bytes) = bytes
            && self.bytes_min.is_none_or(|bytes_min| bytes < bytes_min)
            && self.bytes_min.replace(bytes).is_some()
        {
            *since_ms = now_ms;
        }
        now_ms.saturating_sub(*since_ms) >= timeout_ms
    }
}

#[cfg(test)]
mod tests {
    use super::AcknowledgedSamples;

    /// Returns when a wait that begins at `BEGAN_MS` ends, after it, for a client with these unacknowledged bytes at a
    /// time after the beginning. Deadlines are checked every `sweep_ms`. `None` if it goes on for 100 timeouts.
    fn end_ms(timeout_ms: u64, sweep_ms: usize, bytes: impl Fn(u64) -> Option<u32>) -> Option<u64> {
        const BEGAN_MS: u64 = 1_000_000;
        let (mut samples, mut since_ms) = (AcknowledgedSamples::default(), BEGAN_MS);
        (0..=100 * timeout_ms).step_by(sweep_ms).find(|&after_ms| {
            let now_ms = BEGAN_MS + after_ms;
            samples.deadline_ms(since_ms, timeout_ms) <= now_ms
                && samples.is_stuck(now_ms, timeout_ms, &mut since_ms, bytes(after_ms))
        })
    }

    #[test]
    fn a_client_that_accepts_nothing_is_stuck_after_one_timeout() {
        for bytes in [None, Some(0), Some(3_000_000)] {
            for (timeout_ms, sweep_ms, expected) in
                [(4_000, 250, 4_000), (30_000, 250, 30_000), (200, 25, 200), (1_000, 30, 1_020), (1, 5, 5)]
            {
                assert_eq!(
                    end_ms(timeout_ms, sweep_ms, |_| bytes),
                    Some(expected),
                    "{timeout_ms} {sweep_ms} {bytes:?}"
                );
            }
        }
    }

    #[test]
    fn the_timeout_begins_again_while_the_client_accepts_bytes() {
        // A byte at a time, each within the timeout.
        for every_ms in [1, 250, 3_700] {
            assert_eq!(
                end_ms(4_000, 250, |after_ms| Some(1_000_000 - (after_ms / every_ms) as u32)),
                None,
                "{every_ms}"
            );
        }
        // The end follows the last progress by a timeout, an interval and a sweep at most.
        for last_ms in [600, 3_900, 10_000, 12_345] {
            let end_ms = end_ms(4_000, 250, |after_ms| Some(1_000_000 - after_ms.min(last_ms) as u32)).unwrap();
            assert!((last_ms + 4_000..last_ms + 4_750).contains(&end_ms), "{last_ms} {end_ms}");
        }
    }

    #[test]
    fn what_comes_and_goes_is_no_progress() {
        // Answers to pings are unacknowledged at every other sample.
        let end_ms = end_ms(1_000, 125, |after_ms| Some(if after_ms % 250 == 125 { 17 } else { 0 }));
        assert_eq!(end_ms, Some(1_250));
    }

    #[test]
    fn a_write_makes_the_next_sample_the_first() {
        let (mut samples, mut since_ms) = (AcknowledgedSamples::default(), 0);
        assert!(!samples.is_stuck(500, 4_000, &mut since_ms, Some(100)));
        assert!(!samples.is_stuck(1_000, 4_000, &mut since_ms, Some(99)) && since_ms == 1_000);
        samples.clear();
        since_ms = 1_200;
        assert_eq!(samples.deadline_ms(since_ms, 4_000), 1_700);
        assert!(!samples.is_stuck(1_700, 4_000, &mut since_ms, Some(50)) && since_ms == 1_200);
        assert_eq!(samples.deadline_ms(since_ms, 4_000), 2_200);
        assert!(samples.is_stuck(5_200, 4_000, &mut since_ms, Some(50)));
        assert_eq!(samples.deadline_ms(u64::MAX - 1, u64::MAX), u64::MAX, "no overflow");
    }
}
