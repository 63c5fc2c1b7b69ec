//! Plan of a run, as data.
//!
//! A [`Plan`] is one load level: how visits arrive, what they contain, how they use connections, the warm-up and the
//! end. A [`sweep::Sweep`] is a list of levels. Every random choice depends only on the plan's seed and the number of
//! the visit, so a plan gives the same arrivals on any number of threads and agents.
//!
//! The unit of work is a *visit*: one request, the calls of one connection, or a session. In a closed loop each
//! connection makes one visit after another; in an open loop visits arrive by the clock, whether or not the server
//! keeps up.

pub mod arrivals;
pub mod dist;
pub mod lines;
pub mod quantity;
pub mod statuses;
pub mod sweep;

pub use arrivals::{ArrivalKind, Arrivals, Level};
pub use dist::Dist;
pub use lines::{ReplayLine, ReplayLines};
pub use statuses::ExpectedStatuses;
pub use sweep::Sweep;

use serde::{Deserialize, Serialize};

/// Maximum number of connections in a plan. One source address has about 28,000 ports per target, and loopback has many
/// source addresses; this bound only protects memory from a typing error.
pub const CONNECTIONS_MAX: u32 = 1_000_000;

/// Maximum number of requests in one pipelined burst.
pub const BURST_MAX: u32 = 1_000;

/// Maximum number of threads of all agents together.
pub const THREADS_MAX: u32 = 65_536;

/// The timing of visits: closed or open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// Each connection starts its next visit when the previous one has finished, plus think time.
    Closed,
    /// Visits arrive by the clock. If no connection is free, a visit waits, and its wait is part of the response time.
    Open(Arrivals),
}

/// The content of one visit, and how it uses connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visit {
    /// One burst of requests on any idle connection, or on a new one. Connections are persistent.
    Request,
    /// A new connection for `calls` consecutive bursts, which is then closed.
    Connection {
        /// Bursts per connection, at least 1.
        calls: u32,
    },
    /// A separate connection for a random number of bursts with think times in between, which is then closed. In a
    /// closed loop, a think time also precedes the next visit.
    Session {
        /// Number of bursts per session, rounded to an integer of at least 1.
        length: Dist,
    },
}

/// The end of a run. Responses in progress are always awaited; only new starts stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// Stop after a fixed time: no visit is scheduled later than this after measuring began.
    After {
        /// Length of the measured span in nanoseconds, at least 1.
        duration_ns: u64,
    },
    /// Stop after exactly this many bursts (closed loop) or visits (open loop) since measuring began, at least 1.
    Count(u64),
    /// Stop when the estimate is precise enough ([`crate::judge::tight`]); the driver then calls
    /// [`crate::schedule::Schedule::stop`]. At the latest after `duration_ns_max`.
    Tight {
        /// Half-width of the 95 % confidence interval of the mean response time, as a share of the mean: above 0, below
        /// 1.
        share: f64,
        /// Maximum length of the measured span in nanoseconds.
        duration_ns_max: u64,
    },
}

/// The start of measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUp {
    /// Start immediately.
    None,
    /// Start after a fixed time.
    For {
        /// Length of the warm-up in nanoseconds.
        duration_ns: u64,
    },
    /// Wait until the service time is steady ([`crate::judge::steady`]); the driver then calls
    /// [`crate::schedule::Schedule::begin_measuring`]. At the latest after `duration_ns_max`; the run is then invalid
    /// with `no-steady-state`.
    Steady {
        /// Maximum length of the warm-up in nanoseconds.
        duration_ns_max: u64,
    },
}

/// The source of the cookies that requests have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CookieUse {
    /// Each client stores the cookies that responses set, and sends them with its later requests.
    Stored,
    /// Every request has the same Cookie field, which the user specified.
    Specified,
    /// The cookies that responses set are not sent, as in results of earlier versions.
    #[default]
    Off,
}

flatout_reason::defaults! {
    /// One load level. The default is a closed loop of 64 persistent connections for ten seconds.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Plan {
        /// The timing of visits: closed or open loop.
        #[serde(rename = "loop")]
        pub kind: Loop = Loop::Closed,
        /// The content of each visit.
        pub visit: Visit = Visit::Request,
        /// Requests pipelined in one burst, 1 to [`BURST_MAX`]; 1 waits for each response.
        pub burst: u32 = 1,
        /// Think time in nanoseconds between a response and the next burst of the visit, and in a closed loop also
        /// between visits.
        pub think_ns: Dist = Dist::Fixed(0.0),
        /// Maximum number of connections open at once over all threads, 1 to [`CONNECTIONS_MAX`]. A closed loop uses
        /// all of them.
        pub connections: u32 = 64,
        /// The statuses of successful responses.
        #[serde(default)]
        pub expected: ExpectedStatuses = ExpectedStatuses::default(),
        /// True if `expected` has the statuses of the first level of an overload test, because the user named none.
        #[serde(default)]
        pub expects_as_first: bool = false,
        /// The source of the cookies that requests have.
        #[serde(default)]
        pub cookies: CookieUse = CookieUse::Stored,
        /// Time in nanoseconds in which the load rises evenly from nothing: a closed loop opens its connections one after
        /// another, an open loop raises its rate. The warm-up begins after it, and nothing is measured before that.
        #[serde(default)]
        pub ramp_ns: u64 = 0,
        /// The start of measuring.
        pub warm_up: WarmUp = WarmUp::None,
        /// The end of the run.
        pub stop: Stop = Stop::After { duration_ns: 10_000_000_000 },
        /// Open loop: maximum number of arrivals that wait for a connection, over all threads. If there are more, the
        /// oldest are dropped and counted, and the run is invalid.
        pub backlog_max: u64 = BACKLOG_MAX_DEFAULT,
        /// Open loop: how long after the end of the run waiting arrivals may still start, in nanoseconds. The remaining
        /// arrivals are dropped and counted.
        pub drain_ns: u64 = TIMEOUT_NS_DEFAULT,
        /// Closed loop: how long connecting may fail before a run by count is given up, in nanoseconds.
        #[serde(rename = "patience_ns")]
        pub timeout_ns: u64 = TIMEOUT_NS_DEFAULT,
        /// Seed of all random choices.
        pub seed: u64 = 1,
    }
}

/// The unit of arrivals, for comparing rates of arrivals with rates of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalUnit {
    /// Plural name of the unit; `requests` if each arrival is one request.
    pub name: &'static str,
    /// Mean number of requests per arrival, at least 1.
    pub requests: f64,
}

impl std::fmt::Display for ArrivalUnit {
    /// Writes the unit of a rate: `requests/s`, `connections/s of 4 requests`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/s", self.name)?;
        if self.requests > 1.0 {
            // At most two decimals, without trailing zeros.
            write!(formatter, " of {} requests", (100.0 * self.requests).round() / 100.0)?;
        }
        Ok(())
    }
}

/// Default of [`Plan::backlog_max`]. A guess: one minute at about 17,000 arrivals per second. Waiting arrivals use no
/// memory.
pub const BACKLOG_MAX_DEFAULT: u64 = 1_000_000;

/// Default of [`Plan::drain_ns`] and [`Plan::timeout_ns`], equal to the command line's default request timeout.
pub const TIMEOUT_NS_DEFAULT: u64 = 5_000_000_000;

/// The reason a plan cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Zero connections, or more than [`CONNECTIONS_MAX`].
    #[error("{0} connections are not possible; use 1 to {CONNECTIONS_MAX}")]
    Connections(u32),
    /// Zero threads, or more than [`THREADS_MAX`].
    #[error("{0} threads are not possible; use 1 to {THREADS_MAX}")]
    Threads(u32),
    /// The plan has no requests or no duration.
    #[error("a run needs at least one request, or a duration above 0")]
    NoWork,
    /// A burst of zero requests, or more than [`BURST_MAX`].
    #[error("bursts of {0} requests are not possible; use 1 to {BURST_MAX}")]
    Burst(u32),
    /// A connection makes no calls.
    #[error("a connection needs at least one call")]
    NoCalls,
    /// The precision of an estimate is not above 0 and below 1.
    #[error("a precision of {} % is not possible; use more than 0 and less than 100", 100.0 * .0)]
    Tight(f64),
    /// The arrivals or a distribution are invalid. Contains the reason in words.
    #[error("{0}")]
    Meaningless(String),
}

impl Plan {
    /// Checks whether the plan can be run.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.connections == 0 || self.connections > CONNECTIONS_MAX {
            return Err(PlanError::Connections(self.connections));
        }
        if self.burst == 0 || self.burst > BURST_MAX {
            return Err(PlanError::Burst(self.burst));
        }
        match self.stop {
            Stop::Count(0) | Stop::After { duration_ns: 0 } | Stop::Tight { duration_ns_max: 0, .. } => {
                return Err(PlanError::NoWork);
            }
            Stop::Tight { share, .. } if !(share > 0.0 && share < 1.0) => return Err(PlanError::Tight(share)),
            Stop::Count(_) | Stop::After { .. } | Stop::Tight { .. } => {}
        }
        match &self.visit {
            Visit::Connection { calls: 0 } => return Err(PlanError::NoCalls),
            Visit::Session { length } => length.check("the session length")?,
            Visit::Request | Visit::Connection { .. } => {}
        }
        self.think_ns.check("the think time")?;
        match &self.kind {
            Loop::Open(arrivals) => {
                arrivals.check()?;
                if self.is_replay() { self.check_replay() } else { Ok(()) }
            }
            Loop::Closed => Ok(()),
        }
    }

    /// Checks that a replay requests each line exactly once, when it is due, without repetition or delay.
    fn check_replay(&self) -> Result<(), PlanError> {
        let asks_once = matches!(self.visit, Visit::Request | Visit::Connection { calls: 1 });
        if asks_once && self.burst == 1 && self.think_ns.is_zero() {
            return Ok(());
        }
        Err(PlanError::Meaningless(
            "a replay sends each request in its log once, at its logged time: bursts, calls per connection, session lengths and think times do not apply"
                .to_owned(),
        ))
    }

    /// Returns whether visits arrive by the clock.
    pub fn is_open(&self) -> bool {
        matches!(self.kind, Loop::Open(_))
    }

    /// Returns whether visits are the lines of a log.
    pub fn is_replay(&self) -> bool {
        matches!(&self.kind, Loop::Open(arrivals) if arrivals.replay.is_some())
    }

    /// Returns the time from the start until measuring begins, in nanoseconds; `None` if the warm-up lasts until the service
    /// time is steady.
    pub fn unmeasured_ns(&self) -> Option<u64> {
        match self.warm_up {
            WarmUp::None => Some(self.ramp_ns),
            WarmUp::For { duration_ns } => Some(self.ramp_ns.saturating_add(duration_ns)),
            WarmUp::Steady { .. } => None,
        }
    }

    /// Returns the maximum time from the start until measuring begins, in nanoseconds.
    pub fn unmeasured_ns_max(&self) -> u64 {
        match self.warm_up {
            WarmUp::None => self.ramp_ns,
            WarmUp::For { duration_ns } | WarmUp::Steady { duration_ns_max: duration_ns } => {
                self.ramp_ns.saturating_add(duration_ns)
            }
        }
    }

    /// Returns the number of connections that will be used: a closed run of three requests opens at most three.
    pub fn connections_used(&self) -> u32 {
        match self.stop {
            Stop::Count(count) => u64::from(self.connections).min(count) as u32,
            Stop::After { .. } | Stop::Tight { .. } => self.connections,
        }
    }

    /// Returns the mean number of planned requests per second, if the clock determines the rate. Bursts and sessions
    /// count with their mean number of requests.
    pub fn offered_per_s(&self) -> Option<f64> {
        Some(self.visits_per_s()? * self.arrival().requests)
    }

    /// Returns the unit of arrivals. A rate of arrivals times the requests per arrival is a rate of requests.
    pub fn arrival(&self) -> ArrivalUnit {
        let bursts = match &self.visit {
            Visit::Request => 1.0,
            Visit::Connection { calls } => f64::from(*calls),
            Visit::Session { length } => length.mean_count(),
        };
        let requests = bursts * f64::from(self.burst);
        ArrivalUnit { name: if requests > 1.0 { self.visits() } else { "requests" }, requests }
    }

    /// Returns whether the rate changes over time: it has steps, or follows a log.
    pub fn changes(&self) -> bool {
        let Loop::Open(arrivals) = &self.kind else { return false };
        let mut rates = arrivals.levels.iter().flat_map(|level| [level.from_per_s, level.to_per_s]);
        let first = rates.next();
        arrivals.replay.is_some() || rates.any(|rate| first.is_some_and(|first| rate.total_cmp(&first).is_ne()))
    }

    /// Returns a plural noun for the plan's visits.
    pub const fn visits(&self) -> &'static str {
        match &self.visit {
            Visit::Request if self.burst > 1 => "bursts",
            Visit::Request => "requests",
            Visit::Connection { .. } => "connections",
            Visit::Session { .. } => "sessions",
        }
    }

    /// Returns the number after which the run ends, with its plural noun: visits in an open loop, requests in a closed
    /// loop. Returns `None` if the run does not end by count.
    pub const fn counted(&self) -> Option<(u64, &'static str)> {
        match (self.stop, &self.kind) {
            (Stop::Count(visits), Loop::Open(_)) => Some((visits, self.visits())),
            (Stop::Count(bursts), Loop::Closed) => Some((bursts.saturating_mul(self.burst as u64), "requests")),
            (Stop::After { .. } | Stop::Tight { .. }, _) => None,
        }
    }

    /// Returns the mean rate of visits over the planned duration. A run may end before its last rate level begins.
    pub fn visits_per_s(&self) -> Option<f64> {
        let Loop::Open(arrivals) = &self.kind else { return None };
        Some(match self.stop {
            Stop::After { duration_ns } => arrivals.rate_mean_until(duration_ns),
            Stop::Count(_) | Stop::Tight { .. } => arrivals.rate_mean(),
        })
    }

    /// Returns the shares for the threads of this process, which is agent `agent` (from 0) of `agents`. Over all agents
    /// and threads, connections and counts add up exactly to the plan's numbers. There are never more shares than
    /// connections.
    pub fn shares(&self, threads: u32, agent: u32, agents: u32) -> Vec<Share> {
        let connections = self.connections_used();
        let agents = agents.max(1);
        let shares = u64::from(threads.max(1)).saturating_mul(u64::from(agents)).min(u64::from(connections)) as u32;
        // Assign shares round robin, so that no agent is idle while another has two.
        (agent..shares)
            .step_by(agents as usize)
            .map(|index| {
                let first = portion(u64::from(connections), index, shares);
                let end = portion(u64::from(connections), index + 1, shares);
                Share { index, shares, first_connection: first as u32, connections: (end - first) as u32 }
            })
            .collect()
    }
}

/// Returns `part/whole` of `total`, rounded down. The differences between adjacent portions add up to exactly `total`.
pub(crate) fn portion(total: u64, part: u32, whole: u32) -> u64 {
    // u128: `total` may be near `u64::MAX` and `part` near `u32::MAX`.
    (u128::from(total) * u128::from(part) / u128::from(whole.max(1))) as u64
}

/// One thread's share of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Index of this share, from 0.
    pub index: u32,
    /// Total number of shares.
    pub shares: u32,
    /// Index of this share's first connection among the connections of all shares.
    pub first_connection: u32,
    /// Number of connections of this share, at least 1.
    pub connections: u32,
}

#[cfg(test)]
mod tests;
