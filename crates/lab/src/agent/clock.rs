//! Clock offsets of other machines, from request/response exchanges.
//!
//! A response contains the other clock's reading at some moment between our request and its arrival. The midpoint is
//! wrong by at most half of the round trip, so the fastest exchange is the best, and half of it is the error bound.

/// The difference between another clock and the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Added to local time, gives the other's time, in nanoseconds.
    pub ahead_ns: i64,
    /// Upper bound of the error, in nanoseconds, if no clock ran backwards.
    pub error_ns_max: u64,
}

impl Offset {
    /// From one exchange, sent at `asked_ns` and received at `answered_ns` by the local clock, with the other's
    /// reading.
    pub fn from_answer(asked_ns: u64, answered_ns: u64, theirs_ns: u64) -> Self {
        let waited_ns = answered_ns.saturating_sub(asked_ns);
        let middle_ns = asked_ns + waited_ns / 2;
        Self { ahead_ns: theirs_ns.wrapping_sub(middle_ns).cast_signed(), error_ns_max: waited_ns.div_ceil(2) }
    }

    /// The more precise of two.
    #[must_use]
    pub fn or_better(self, other: Self) -> Self {
        if other.error_ns_max < self.error_ns_max { other } else { self }
    }

    /// Converts local time to the other's.
    pub fn to_theirs(self, ours_ns: u64) -> u64 {
        ours_ns.wrapping_add(self.ahead_ns.cast_unsigned())
    }

    /// Converts the other's time to local time.
    pub fn to_ours(self, theirs_ns: u64) -> u64 {
        theirs_ns.wrapping_sub(self.ahead_ns.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::Offset;

    #[test]
    fn the_truth_is_within_the_bound_wherever_the_delay_was() {
        // Their clock is 5 s ahead; the way there takes 300 ns and the way back 100 ns, or the other way round.
        for (there_ns, back_ns) in [(300, 100), (100, 300), (400, 0), (0, 400)] {
            let offset = Offset::from_answer(1_000, 1_000 + there_ns + back_ns, 5_000_001_000 + there_ns);
            assert!((offset.ahead_ns - 5_000_000_000).unsigned_abs() <= offset.error_ns_max, "{offset:?}");
            assert_eq!(offset.to_ours(offset.to_theirs(77)), 77);
        }
    }

    #[test]
    fn the_quickest_answer_is_believed() {
        let slow = Offset::from_answer(0, 1_000, 2_000);
        let quick = Offset::from_answer(2_000, 2_100, 4_050);
        assert_eq!(slow.or_better(quick), quick);
        assert_eq!(quick.or_better(slow), quick);
        assert_eq!(quick, Offset { ahead_ns: 2_000, error_ns_max: 50 });
        // A clock behind ours, and answers out of order, are no reason to panic.
        assert_eq!(Offset::from_answer(5_000, 4_000, 1_000).to_theirs(5_000), 1_000);
    }
}
