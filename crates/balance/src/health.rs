//! Schedule and evaluation of active health checks.

use flatout_config::model::HealthCheck;

/// Result of the request of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// A final response arrived.
    Answered {
        /// Status code of the response.
        status: u16,
        /// Time from the start of the check, including connecting, to the response head, in milliseconds.
        elapsed_ms: u64,
    },
    /// The timeout expired.
    TimedOut,
    /// No connection was established, or there was no valid HTTP response.
    Failed,
}

flatout_reason::reasons! {
    /// Outcome of a health check: passed, or the reason for its failure.
    pub enum CheckOutcome { name, }
    /// The origin is healthy.
    Passed, "check_passed";
    /// The status is not among the expected statuses.
    StatusOutside, "check_status_outside";
    /// There was no response within the timeout.
    TimedOut, "check_timed_out";
    /// There was no valid response.
    Failed, "check_failed";
}

impl CheckOutcome {
    /// Evaluates the result of a health check.
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
}

/// Returns when check `number` (from 0) of origin `index` out of `count` is due, in milliseconds. Checks of an origin
/// are one interval apart, starting at `start_ms`, and the origins are distributed evenly over the interval.
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
