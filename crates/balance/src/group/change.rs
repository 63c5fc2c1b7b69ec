//! Health reports from requests and checks, and their effects.

flatout_reason::reasons! {
    /// Change in an origin's availability, for logs and counters.
    pub enum Change { name, text, }
    ChecksPassed, "origin_checks_passed", "Enough consecutive checks succeeded: the origin is healthy again.";
    ChecksFailed, "origin_checks_failed", "Too many consecutive checks failed: the origin is unhealthy.";
    Paused, "origin_paused", "Too many consecutive requests failed: the origin gets no requests for a while.";
    TrialPassed, "origin_trial_passed", "The trial request after the pause succeeded: the origin is healthy again.";
    TrialFailed, "origin_trial_failed", "The trial request after the pause failed: the origin is paused again.";
}

/// Outcome of a request as far as it concerns the origin's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It responded, with any status.
    Answered,
    /// It failed: no connection, no complete head in time, a protocol error, or a truncated response.
    Failed,
    /// Unknown: the client disconnected, or the request was never sent.
    Abandoned,
}

/// State of an origin, for metrics and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginStatus {
    /// Available with its full share.
    Well,
    /// Recently recovered, with this many thousandths of its share.
    Starting(u16),
    /// Unavailable after failed requests up to this time, in milliseconds.
    PausedUntil(u64),
    /// The pause is over, and one trial request is in progress.
    Trial,
    /// Health checks fail.
    Down,
}

impl OriginStatus {
    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Starting(_) => "starting",
            Self::PausedUntil(_) => "paused",
            Self::Trial => "trial",
            Self::Down => "down",
        }
    }
}
