//! What requests and checks tell of an origin, and what becomes of it.

flatout_reason::reasons! {
    /// Why an origin is in or out now, when that has just changed: for the log and the counters.
    pub enum Change { name, text, }
    ChecksPassed, "origin_checks_passed", "Checks succeeded so often in a row that the origin is in again.";
    ChecksFailed, "origin_checks_failed", "Checks failed so often in a row that the origin is out.";
    Paused, "origin_paused", "Requests failed so often in a row that the origin is left out for a while.";
    TrialPassed, "origin_trial_passed", "A request was tried after the pause and answered: the origin is in again.";
    TrialFailed, "origin_trial_failed", "A request was tried after the pause and failed: the origin is left out for another.";
}

/// How a request that an origin was given ended, as far as the origin's health is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It answered, whatever the status.
    Answered,
    /// It did not: no connection, no whole head in time, an answer that breaks the protocol or breaks off.
    Failed,
    /// It tells nothing: the client went away, or the request was never sent.
    Abandoned,
}

/// What is known of an origin, for metrics and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It gets its share.
    Well,
    /// It has just come back and gets so many thousandths of its share.
    Starting(u16),
    /// Requests failed; it is left out up to this time, in milliseconds.
    PausedUntil(u64),
    /// Its pause is over, and one request tries it.
    Trial,
    /// Its health checks fail.
    Down,
}

impl Standing {
    /// The stable name.
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
