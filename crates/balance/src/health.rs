//! Active health checks: schedule and evaluation.

use flatout_config::model::HealthCheck;

/// Result of a check's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// A final response.
    Answered {
        /// Its status.
        status: u16,
        /// Time from the start, including connecting, to its head, in milliseconds.
        elapsed_ms: u64,
    },
    /// The deadline passed.
    TimedOut,
    /// No connection, or no valid HTTP response.
    Failed,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckOutcome {
    /// The origin is healthy.
    Passed,
    /// The status is not an expected one.
    StatusOutside,
    /// No response before the deadline.
    TimedOut,
    /// No response.
    Failed,
}

impl CheckOutcome {
    /// Evaluates a result.
    pub fn judge(check: &HealthCheck, result: CheckResult) -> Self {
        let (first, last) = check.statuses;
        match result {
            CheckResult::Answered { elapsed_ms, .. } if elapsed_ms > check.timeout_ms => Self::TimedOut,
            CheckResult::Answered { status, .. } if (first..=last).contains(&status) => Self::Passed,
            CheckResult::Answered { .. } => Self::StatusOutside,
            CheckResult::TimedOut => Self::TimedOut,
            CheckResult::Failed => Self::Failed,
        }
    }

    /// Returns whether the origin is healthy, for [`Group::handle_check`](crate::group::Group::handle_check).
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Passed)
    }

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "check_passed",
            Self::StatusOutside => "check_status_outside",
            Self::TimedOut => "check_timed_out",
            Self::Failed => "check_failed",
        }
    }
}

/// Time of check `number` (from 0) of origin `index` out of `count`, in milliseconds. Checks are one interval apart,
/// starting at `start_ms`; the origins are spread evenly over the interval.
pub fn due_ms(check: &HealthCheck, start_ms: u64, index: usize, count: usize, number: u64) -> u64 {
    let interval_ms = check.interval_ms.max(1);
    let spread = u128::from(interval_ms) * index as u128 / count.max(1) as u128;
    start_ms.saturating_add(spread as u64).saturating_add(interval_ms.saturating_mul(number))
}

#[cfg(test)]
mod tests {
    use super::{CheckOutcome, CheckResult, due_ms};
    use flatout_config::model::HealthCheck;

    #[test]
    fn answers_are_judged() {
        let check = HealthCheck::default();
        for (status, elapsed_ms, expected) in [
            (200, 0, CheckOutcome::Passed),
            (399, 2_000, CheckOutcome::Passed),
            (400, 0, CheckOutcome::StatusOutside),
            (101, 0, CheckOutcome::StatusOutside),
            (503, 0, CheckOutcome::StatusOutside),
            (200, 2_001, CheckOutcome::TimedOut),
        ] {
            assert_eq!(CheckOutcome::judge(&check, CheckResult::Answered { status, elapsed_ms }), expected);
        }
        assert_eq!(CheckOutcome::judge(&check, CheckResult::TimedOut), CheckOutcome::TimedOut);
        assert_eq!(CheckOutcome::judge(&check, CheckResult::Failed), CheckOutcome::Failed);
        assert!(CheckOutcome::Passed.is_good() && !CheckOutcome::Failed.is_good());
    }

    #[test]
    fn checks_are_spread_over_the_interval() {
        let check = HealthCheck { interval_ms: 1_000, ..HealthCheck::default() };
        let due = |index, number| due_ms(&check, 10, index, 4, number);
        assert_eq!([due(0, 0), due(1, 0), due(3, 0), due(0, 1), due(3, 2)], [10, 260, 760, 1_010, 2_760]);
        assert_eq!(due_ms(&check, u64::MAX, 0, 0, u64::MAX), u64::MAX);
    }
}
