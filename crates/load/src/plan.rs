//! Plan of a run, as data.
//!
//! A [`Plan`] is one load level: arrival of visits, their content, use of connections, warm-up and end. A
//! [`sweep::Sweep`] is a list of levels. Every random choice depends only on the plan's seed and the number of the
//! visit, so a plan gives the same arrivals on any number of threads and agents.
//!
//! The unit of work is a *visit*: one request, the calls of one connection, or a session. In a closed loop each
//! connection makes one visit after another; in an open loop visits arrive by the clock, whether or not the server
//! keeps up.

pub mod arrivals;
pub mod dist;
pub mod lines;
pub mod quantity;
pub mod sweep;

pub use arrivals::{ArrivalKind, Arrivals, Level};
pub use dist::Dist;
pub use lines::{ReplayLine, ReplayLines};
pub use sweep::Sweep;

use serde::{Deserialize, Serialize};

/// Maximum connections of a plan. One source address has about 28,000 ports per target, and loopback has many source
/// addresses; this bound only protects memory from a typing error.
pub const CONNECTIONS_MAX: u32 = 1_000_000;

/// Maximum requests in one pipelined burst.
pub const BURST_MAX: u32 = 1_000;

/// Maximum threads of all agents together.
pub const THREADS_MAX: u32 = 65_536;

/// Timing of visits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loop {
    /// Every connection begins its next visit after the previous one ends, plus think time.
    Closed,
    /// Visits arrive by the clock. If no connection is free, a visit waits, and the wait is part of the response time.
    Open(Arrivals),
}

/// Content of one visit, and use of its connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visit {
    /// One burst of requests on any idle connection, or a new one. Connections persist.
    Request,
    /// A new connection for `calls` consecutive bursts, closed afterwards.
    Connection {
        /// Bursts per connection, at least 1.
        calls: u32,
    },
    /// A separate connection for a random number of bursts with think times in between, closed afterwards. In a closed
    /// loop a think time precedes the next visit too.
    Session {
        /// Bursts per session, rounded to an integer of at least 1.
        length: Dist,
    },
}

/// End of a run. Responses in progress are always awaited; only new starts stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// No visit is scheduled later than this after measuring began.
    After {
        /// Length of the measured span in nanoseconds, at least 1.
        duration_ns: u64,
    },
    /// Begin exactly this many bursts (closed loop) or visits (open loop) after measuring began, at least 1.
    Count(u64),
    /// Stop once the estimate is tight enough ([`crate::judge::tight`]); the driver then calls
    /// [`crate::schedule::Schedule::stop`]. At the latest after `duration_ns_max`.
    Tight {
        /// Half-width of the 95 % confidence interval of the mean response time, as a share of the mean, above 0,
        /// below 1.
        share: f64,
        /// Maximum length of the measured span in nanoseconds.
        duration_ns_max: u64,
    },
}

/// Start of measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUp {
    /// Immediately.
    None,
    /// After a fixed time.
    For {
        /// Length of the warm-up in nanoseconds.
        duration_ns: u64,
    },
    /// Once the service time is steady ([`crate::judge::steady`]); the driver then calls
    /// [`crate::schedule::Schedule::begin_measuring`]. At the latest after `duration_ns_max`; the run is then invalid
    /// with `no-steady-state`.
    Steady {
        /// Maximum length of the warm-up in nanoseconds.
        duration_ns_max: u64,
    },
}

/// One load level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Timing of visits.
    #[serde(rename = "loop")]
    pub kind: Loop,
    /// Content of a visit.
    pub visit: Visit,
    /// Requests pipelined in one burst, 1 to [`BURST_MAX`]; 1 waits for each response.
    pub burst: u32,
    /// Think time in nanoseconds between a response and the next burst of the visit, and in a closed loop also between
    /// visits.
    pub think_ns: Dist,
    /// Maximum connections open at once over all threads, 1 to [`CONNECTIONS_MAX`]. A closed loop uses all of them.
    pub connections: u32,
    /// Start of measuring.
    pub warm_up: WarmUp,
    /// End of the run.
    pub stop: Stop,
    /// Open loop: maximum arrivals that wait for a connection, over all threads. Beyond it the oldest are dropped and
    /// counted, and the run is invalid.
    pub backlog_max: u64,
    /// Open loop: how long after the end waiting arrivals may still begin, in nanoseconds; the rest are dropped and
    /// counted.
    pub drain_ns: u64,
    /// Closed loop: how long connecting may fail before a run by count is abandoned, in nanoseconds.
    #[serde(rename = "patience_ns")]
    pub timeout_ns: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// Unit of arrivals, for comparing rates of arrivals with rates of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivalUnit {
    /// Its plural; `requests` if each is one request.
    pub name: &'static str,
    /// Mean requests per arrival; at least 1.
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

/// Default of [`Plan::backlog_max`]: a guess, one minute at about 17,000 arrivals per second. Waiting arrivals use no
/// memory.
pub const BACKLOG_MAX_DEFAULT: u64 = 1_000_000;

/// Default of [`Plan::drain_ns`] and [`Plan::timeout_ns`]: the default request timeout of the command line.
pub const TIMEOUT_NS_DEFAULT: u64 = 5_000_000_000;

impl Default for Plan {
    /// A closed loop of 64 persistent connections for ten seconds.
    fn default() -> Self {
        Self {
            kind: Loop::Closed,
            visit: Visit::Request,
            burst: 1,
            think_ns: Dist::Fixed(0.0),
            connections: 64,
            warm_up: WarmUp::None,
            stop: Stop::After { duration_ns: 10_000_000_000 },
            backlog_max: BACKLOG_MAX_DEFAULT,
            drain_ns: TIMEOUT_NS_DEFAULT,
            timeout_ns: TIMEOUT_NS_DEFAULT,
            seed: 1,
        }
    }
}

/// Error of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// Zero connections, or more than [`CONNECTIONS_MAX`].
    Connections(u32),
    /// Zero threads, or more than [`THREADS_MAX`].
    Threads(u32),
    /// No requests or no time.
    NoWork,
    /// A burst of zero requests, or more than [`BURST_MAX`].
    Burst(u32),
    /// A connection without calls.
    NoCalls,
    /// A share for a tight estimate that is not above 0 and below 1.
    Tight(f64),
    /// Invalid arrivals or distribution, in words.
    Meaningless(String),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connections(asked) => {
                write!(formatter, "{asked} connections are not possible; give 1 to {CONNECTIONS_MAX}")
            }
            Self::Threads(asked) => write!(formatter, "{asked} threads are not possible; give 1 to {THREADS_MAX}"),
            Self::NoWork => write!(formatter, "a run needs at least one request, or some time"),
            Self::Burst(asked) => {
                write!(formatter, "bursts of {asked} requests are not possible; give 1 to {BURST_MAX}")
            }
            Self::NoCalls => write!(formatter, "a connection needs at least one call"),
            Self::Tight(share) => {
                write!(
                    formatter,
                    "a precision of {} % is not possible; give more than 0 and less than 100",
                    100.0 * share
                )
            }
            Self::Meaningless(what) => formatter.write_str(what),
        }
    }
}

impl std::error::Error for PlanError {}

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

    /// Checks that a replay requests each line once, when it is due, without repetition or delay.
    fn check_replay(&self) -> Result<(), PlanError> {
        let asks_once = matches!(self.visit, Visit::Request | Visit::Connection { calls: 1 });
        if asks_once && self.burst == 1 && self.think_ns.is_zero() {
            return Ok(());
        }
        Err(PlanError::Meaningless(
            "a replay asks for each line of its log once, when the log says: bursts, several calls of a connection, \
             sessions of a drawn length and think times have no place in it"
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

    /// Connections that will be used: a closed run of three requests opens at most three.
    pub fn connections_used(&self) -> u32 {
        match self.stop {
            Stop::Count(count) => u64::from(self.connections).min(count) as u32,
            Stop::After { .. } | Stop::Tight { .. } => self.connections,
        }
    }

    /// Maximum planned requests per second, if the clock determines the rate; bursts and sessions count by their
    /// means.
    pub fn offered_per_s(&self) -> Option<f64> {
        Some(self.visits_per_s()? * self.arrival().requests)
    }

    /// Unit of arrivals: a rate of arrivals times its requests is a rate of requests.
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

    /// Plural noun for its visits.
    pub const fn visits(&self) -> &'static str {
        match &self.visit {
            Visit::Request if self.burst > 1 => "bursts",
            Visit::Request => "requests",
            Visit::Connection { .. } => "connections",
            Visit::Session { .. } => "sessions",
        }
    }

    /// Number after which it ends, with its plural noun: visits of an open loop, requests of a closed one. `None` if
    /// it does not end by count.
    pub const fn counted(&self) -> Option<(u64, &'static str)> {
        match (self.stop, &self.kind) {
            (Stop::Count(visits), Loop::Open(_)) => Some((visits, self.visits())),
            (Stop::Count(bursts), Loop::Closed) => Some((bursts.saturating_mul(self.burst as u64), "requests")),
            (Stop::After { .. } | Stop::Tight { .. }, _) => None,
        }
    }

    /// Mean rate of visits over the planned duration: a run may end before its last rate level begins.
    pub fn visits_per_s(&self) -> Option<f64> {
        let Loop::Open(arrivals) = &self.kind else { return None };
        Some(match self.stop {
            Stop::After { duration_ns } => arrivals.rate_mean_until(duration_ns),
            Stop::Count(_) | Stop::Tight { .. } => arrivals.rate_mean(),
        })
    }

    /// Shares for the threads of this process, which is agent `agent` (from 0) of `agents`. Over all agents and
    /// threads, connections and counts add up exactly to the plan's numbers. There are never more shares than
    /// connections.
    pub fn shares(&self, threads: u32, agent: u32, agents: u32) -> Vec<Share> {
        let connections = self.connections_used();
        let agents = agents.max(1);
        let shares = u64::from(threads.max(1)).saturating_mul(u64::from(agents)).min(u64::from(connections)) as u32;
        // Shares are assigned round robin, so that no agent is idle while another has two.
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

/// `part/whole` of `total`, rounded down. Differences of adjacent portions add up to `total` exactly.
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
    /// Global index of this share's first connection.
    pub first_connection: u32,
    /// Connections of this share, at least 1.
    pub connections: u32,
}

#[cfg(test)]
mod tests;
