//! What an active check asks, and how its answer is judged.
use flatout_config::model::{HealthCheck, Origin, Proxy};

/// Appends the field lines of the check's request; its method is GET, its target `check.path`.
pub fn write_check_lines(_settings: &Proxy, _origin: &Origin, _out: &mut Vec<u8>) {
    unimplemented!()
}

/// What a check met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The status of the final answer, and how long its head took.
    Status(u16, u64),
    /// No connection, or an answer that breaks the protocol.
    Failed,
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Well.
    Passed,
    /// The status is not among those that tell that it is well.
    StatusOutside,
    /// No answer in time.
    TimedOut,
    /// No answer.
    Failed,
}

impl CheckOutcome {
    /// Judges.
    pub fn judge(_check: &HealthCheck, _result: CheckResult) -> Self {
        unimplemented!()
    }
    /// For [`Group::handle_check`](crate::group::Group::handle_check).
    pub fn is_good(self) -> bool {
        self == Self::Passed
    }
    /// The stable name.
    pub const fn name(self) -> &'static str {
        ""
    }
}

/// When the check with this number (from 0) of the origin with this index is due after `start_ms`: every interval,
/// origins spread evenly over it.
pub fn due_ms(_check: &HealthCheck, _start_ms: u64, _index: usize, _count: usize, _number: u64) -> u64 {
    unimplemented!()
}
