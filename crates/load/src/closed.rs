//! What a closed-loop run should do, and each thread's share of it.
//!
//! A [`Plan`] is the whole run; a [`Share`] is what one thread is given before it starts; a [`ThreadPlan`] is that share
//! while it is being used up. Threads share nothing: a run of N requests is split into exact shares beforehand, so no
//! counter is touched by two cores.
//!
//! Stopping never cuts an answer short. [`Next::Stop`] means that nothing new is sent; what is under way is awaited, so the
//! counts here and in the server's log agree to the last request.

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// No request is begun later than this long after the start.
    After {
        /// Length of the run, in nanoseconds, at least 1.
        duration_ns: u64,
    },
    /// Exactly this many requests are begun, at least 1.
    Requests(u64),
}

/// How long a connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// For as many requests as the server allows.
    KeepAlive,
    /// For one request, which says `Connection: close`.
    PerRequest,
}

/// A closed-loop run: every connection sends its next request when the last one is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Connections open at once, 1 to [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// Client threads wished for, at least 1; no more are used than there are connections.
    pub threads: u32,
    /// When the run ends.
    pub stop: Stop,
    /// How long each connection is used.
    pub connection_use: ConnectionUse,
}

/// Most connections a plan may ask for. One source address has about 28,000 ports to one target, and loopback has many
/// source addresses; this bound only keeps a slip of the finger from eating all memory.
pub const CONNECTIONS_MAX: u32 = 1_000_000;

/// Why a plan cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Zero connections, or more than [`CONNECTIONS_MAX`].
    Connections(u32),
    /// Zero threads.
    NoThreads,
    /// A run of no requests or no time.
    NoWork,
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connections(asked) => {
                write!(formatter, "{asked} connections asked for; give 1 to {CONNECTIONS_MAX}")
            }
            Self::NoThreads => write!(formatter, "a run needs at least one thread"),
            Self::NoWork => write!(formatter, "a run needs at least one request, or some time"),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Says whether the plan can be run.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.connections == 0 || self.connections > CONNECTIONS_MAX {
            return Err(PlanError::Connections(self.connections));
        }
        if self.threads == 0 {
            return Err(PlanError::NoThreads);
        }
        match self.stop {
            Stop::Requests(0) | Stop::After { duration_ns: 0 } => Err(PlanError::NoWork),
            Stop::Requests(_) | Stop::After { .. } => Ok(()),
        }
    }

    /// Connections that will really be used: a run of three requests opens three at most.
    pub fn connections_used(&self) -> u32 {
        match self.stop {
            Stop::Requests(requests) => u64::from(self.connections).min(requests) as u32,
            Stop::After { .. } => self.connections,
        }
    }

    /// One share a thread. Connections and requests add up to the plan's own numbers exactly, whatever the remainders.
    pub fn shares(&self) -> Vec<Share> {
        let connections = self.connections_used();
        let threads = self.threads.min(connections);
        (0..threads)
            .map(|thread| {
                let first = portion(u64::from(connections), thread, threads);
                let end = portion(u64::from(connections), thread + 1, threads);
                let stop = match self.stop {
                    Stop::After { duration_ns } => Stop::After { duration_ns },
                    // In proportion to the thread's connections, so that none of them idles while others work on.
                    Stop::Requests(requests) => Stop::Requests(
                        portion(requests, end as u32, connections) - portion(requests, first as u32, connections),
                    ),
                };
                Share { connections: (end - first) as u32, stop }
            })
            .collect()
    }
}

/// `part/whole` of `total`, rounded down. Differences of neighbouring portions add up to `total` exactly.
fn portion(total: u64, part: u32, whole: u32) -> u64 {
    // u128: total can be near u64::MAX and part near u32::MAX.
    (u128::from(total) * u128::from(part) / u128::from(whole.max(1))) as u64
}

/// What one thread is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Connections this thread keeps, at least 1.
    pub connections: u32,
    /// When this thread stops.
    pub stop: Stop,
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send one request; it has been counted as begun.
    Send,
    /// Send nothing more, ever.
    Stop,
}

/// What a connection does after it could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Try again after a pause.
    After {
        /// Length of the pause, in nanoseconds.
        pause_ns: u64,
    },
    /// Never try again: nothing has ever answered this thread, or nothing has for longer than its patience.
    GiveUp,
}

/// First pause after a failed connect. A guess: long enough that a dead server is not a busy loop, short enough that a
/// restarted one is noticed at once. It doubles up to [`RETRY_PAUSE_NS_MAX`].
pub const RETRY_PAUSE_NS_MIN: u64 = 10_000_000;

/// Longest pause between attempts to connect.
pub const RETRY_PAUSE_NS_MAX: u64 = 1_000_000_000;

/// A share while it is being used up, by all connections of one thread.
#[derive(Clone, Debug)]
pub struct ThreadPlan {
    deadline_ns: Option<u64>,
    requests_left: u64,
    stopped: bool,
    has_connected: bool,
    patience_ns: u64,
    /// Since when every attempt to connect has failed.
    failing_since_ns: Option<u64>,
}

impl ThreadPlan {
    /// Starts a share at `now_ns`. A run of requests ends before its last one when no connection could be made for
    /// `patience_ns`; a run for a time ends with its time, and a server that comes back meanwhile is found again.
    pub fn begin(share: Share, now_ns: u64, patience_ns: u64) -> Self {
        let (deadline_ns, requests_left) = match share.stop {
            Stop::After { duration_ns } => (Some(now_ns.saturating_add(duration_ns)), u64::MAX),
            Stop::Requests(requests) => (None, requests),
        };
        Self { deadline_ns, requests_left, stopped: false, has_connected: false, patience_ns, failing_since_ns: None }
    }

    /// Decides for a connection that is free to send. [`Next::Send`] uses up one request.
    pub fn decide_next(&mut self, now_ns: u64) -> Next {
        let late = self.deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
        if self.stopped || late || self.requests_left == 0 {
            return Next::Stop;
        }
        self.requests_left -= 1;
        Next::Send
    }

    /// Whether a connection that was just lost is still needed at `now_ns`.
    pub fn wants_more(&self, now_ns: u64) -> bool {
        !self.stopped && self.requests_left > 0 && self.deadline_ns.is_none_or(|deadline_ns| now_ns < deadline_ns)
    }

    /// Notes that some connection of this thread was made.
    pub fn handle_connected(&mut self) {
        self.has_connected = true;
        self.failing_since_ns = None;
    }

    /// Decides after `failures_in_a_row` (1 and up) failed attempts of one connection. The pause never outlasts the run.
    pub fn decide_retry(&mut self, now_ns: u64, failures_in_a_row: u32) -> Retry {
        let failing_since_ns = *self.failing_since_ns.get_or_insert(now_ns);
        let give_up_ns = failing_since_ns.saturating_add(self.patience_ns);
        if !self.has_connected || (self.deadline_ns.is_none() && now_ns >= give_up_ns) {
            return Retry::GiveUp;
        }
        let doublings = failures_in_a_row.saturating_sub(1).min(16);
        let mut pause_ns = (RETRY_PAUSE_NS_MIN << doublings).min(RETRY_PAUSE_NS_MAX);
        let end_ns = self.deadline_ns.unwrap_or(give_up_ns);
        pause_ns = pause_ns.min(end_ns.saturating_sub(now_ns));
        Retry::After { pause_ns }
    }

    /// Ends the run early: from now on every decision is [`Next::Stop`].
    pub fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests;
