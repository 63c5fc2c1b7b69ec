//! Outcomes of requests, origin states, and changes in availability.

flatout_reason::reasons! {
    /// Change in an origin's availability or in its concurrency limit, for logs and metrics.
    pub enum Change { name, text, }
    ChecksPassed, "origin_checks_passed", "Enough consecutive checks succeeded.";
    ChecksFailed, "origin_checks_failed", "Too many consecutive checks failed.";
    Paused, "origin_paused", "Too many consecutive requests failed.";
    TrialPassed, "origin_trial_passed", "The trial request after the pause succeeded.";
    TrialFailed, "origin_trial_failed", "The trial request after the pause failed.";
    Renewed, "origin_renewed", "A reload has changed its `proxy`, and all origins there are available until they fail.";
    Removed, "origin_removed", "A reload has removed the origin, or its handler.";
    LimitBegan, "origin_limit_began", "The origin is overloaded: it times out, or requests take longer the more of them are in progress.";
    LimitEnded, "origin_limit_ended", "The origin is not overloaded, has not been for a while, or a reload has changed its handler.";
}

impl Change {
    /// Returns a description of the effect on the origin's requests. `others` says whether the groups that the change
    /// concerns have other origins.
    pub const fn effect(self, others: OtherOrigins) -> &'static str {
        match (self, others) {
            (Self::LimitBegan, _) => {
                "gets a limited number of requests at once; others wait, or get 503 if that takes too long"
            }
            (Self::Removed, _) => "gets no more requests",
            (Self::LimitEnded, _) => "gets all requests at once again",
            (Self::ChecksPassed | Self::TrialPassed | Self::Renewed, OtherOrigins::Everywhere) => "is back in rotation",
            (Self::ChecksPassed | Self::TrialPassed, _) => "is healthy again",
            (Self::Renewed, _) => "is no longer considered unhealthy",
            (Self::ChecksFailed | Self::Paused | Self::TrialFailed, OtherOrigins::Everywhere) => "is out of rotation",
            // `Group::choose` selects an origin in spite of its pause if there is no other.
            (Self::Paused | Self::TrialFailed, OtherOrigins::Nowhere) => {
                "is failing, but still gets all requests: there is no other"
            }
            (Self::Paused | Self::TrialFailed, OtherOrigins::Somewhere) => {
                "is failing: it is out of rotation where there are other origins, and gets all requests where there are none"
            }
            (Self::ChecksFailed, OtherOrigins::Nowhere) => {
                "is unhealthy, and gets no requests until its checks pass: there is no other"
            }
            (Self::ChecksFailed, OtherOrigins::Somewhere) => "is unhealthy, and gets no requests until its checks pass",
        }
    }
}

/// Where there are other origins, among the groups that a change of an origin concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherOrigins {
    /// The origin is the only one of each group.
    Nowhere,
    /// It is the only one of some groups, and one of several in others.
    Somewhere,
    /// Each group has another origin.
    Everywhere,
}

impl OtherOrigins {
    /// Returns those for a single group, in which the origin is the only one if `is_only` is true.
    pub const fn of_group(is_only: bool) -> Self {
        if is_only { Self::Nowhere } else { Self::Everywhere }
    }

    /// Returns those for the groups of both `self` and `other`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Somewhere }
    }
}

/// Outcome of a request, for the origin's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The origin responded, with any status.
    Answered,
    /// The origin failed: no connection, no complete head in time, a protocol error, or a truncated response.
    Failed,
    /// The outcome is unknown, because the client disconnected or the request was never sent.
    Abandoned,
}

/// State of an origin, for metrics and `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginStatus {
    /// Available, with its full share of requests.
    Well,
    /// Available, in slow start with this share of requests, in thousandths.
    Starting(u16),
    /// Paused after failed requests until this time, in milliseconds of the monotonic clock.
    PausedUntil(u64),
    /// The pause is over, and a trial request is due or in progress.
    Trial,
    /// Down, because health checks fail.
    Down,
}

impl OriginStatus {
    /// Returns the stable name.
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
