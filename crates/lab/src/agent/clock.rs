//! Clock offsets of other machines, estimated from request/response exchanges.
//!
//! A response contains a reading of the other clock, taken at some moment between sending the request and receiving the
//! response. The midpoint is wrong by at most half of the round-trip time, so the fastest exchange gives the best
//! estimate, and half of its round-trip time is the error bound.

/// The difference between another clock and the local one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The number of nanoseconds to add to local time to get the other clock's time.
    pub ahead_ns: i64,
    /// Upper bound of the error in nanoseconds, provided that no clock ran backwards.
    pub error_ns_max: u64,
}

impl Offset {
    /// Calculates the offset from one exchange. The request was sent at `asked_ns` and the response was received at
    /// `answered_ns`, both on the local clock; `theirs_ns` is the reading of the other clock.
    pub fn from_answer(asked_ns: u64, answered_ns: u64, theirs_ns: u64) -> Self {
        let waited_ns = answered_ns.saturating_sub(asked_ns);
        let middle_ns = asked_ns + waited_ns / 2;
        Self { ahead_ns: theirs_ns.wrapping_sub(middle_ns).cast_signed(), error_ns_max: waited_ns.div_ceil(2) }
    }

    /// Returns the more precise of two offsets.
    #[must_use]
    pub fn or_better(self, other: Self) -> Self {
        if other.error_ns_max < self.error_ns_max { other } else { self }
    }

    /// Converts local time to the other clock's time.
    pub fn to_theirs(self, ours_ns: u64) -> u64 {
        ours_ns.wrapping_add(self.ahead_ns.cast_unsigned())
    }

    /// Converts the other clock's time to local time.
    pub fn to_ours(self, theirs_ns: u64) -> u64 {
        theirs_ns.wrapping_sub(self.ahead_ns.cast_unsigned())
    }
}

#[cfg(test)]
mod tests {
    use super::Offset;

    #[test]
    fn the_truth_is_within_the_bound_wherever_the_delay_was() {
        // Their clock is 5 s ahead. The two directions take 300 ns and 100 ns, in either order.
        for (there_ns, back_ns) in [(300, 100), (100, 300), (400, 0), (0, 400)] {
            let offset = Offset::from_answer(1_000, 1_000 + there_ns + back_ns, 5_000_001_000 + there_ns);
            assert!((offset.ahead_ns - 5_000_000_000).unsigned_abs() <= offset.error_ns_max, "{offset:?}");
            assert_eq!(offset.to_ours(offset.to_theirs(77)), 77);
        }
    }

    #[test]
    fn the_fastest_exchange_determines_the_offset() {
        let slow = Offset::from_answer(0, 1_000, 2_000);
        let quick = Offset::from_answer(2_000, 2_100, 4_050);
        assert_eq!(slow.or_better(quick), quick);
        assert_eq!(quick.or_better(slow), quick);
        assert_eq!(quick, Offset { ahead_ns: 2_000, error_ns_max: 50 });
        // A clock that is behind, and responses out of order, must not cause a panic.
        assert_eq!(Offset::from_answer(5_000, 4_000, 1_000).to_theirs(5_000), 1_000);
    }
}
