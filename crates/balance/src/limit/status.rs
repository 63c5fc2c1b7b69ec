//! State of a limiter, for display.

use super::{ConcurrencyLimiter, LaneName, Places, Relaxed, SeqCst};
use flatout_overload::QueueReading;
use std::fmt;

/// Maximum number of paths that are named.
const PATHS_MAX: usize = 8;

/// State of the requests of some kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// Number of requests that count towards the limit: those that wait for a response head.
    pub asking: u32,
    /// The limit, if there is one.
    pub limit: Option<u32>,
    /// Number of queued requests.
    pub queued: u32,
}

/// State of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterStatus {
    /// Number of requests in progress, including those whose responses are streaming.
    pub under_way: u32,
    /// Maximum number of requests in progress.
    pub max: u32,
    /// Maximum number of queued requests.
    pub queue_max: u32,
    /// Kinds of requests that are usually answered soon.
    pub quick: LaneStatus,
    /// Number of requests of such kinds that have been waiting for a response head for so long that they no longer
    /// count.
    pub aged: u32,
    /// Slow kinds.
    pub slow: LaneStatus,
    /// Of the paths that are requested often, those with the most requests that wait for a response head, and the
    /// numbers of these requests, in descending order.
    pub paths: Vec<(String, u32)>,
}

impl LimiterStatus {
    /// Returns whether there is a limit because of overload.
    pub const fn is_limited(&self) -> bool {
        self.quick.limit.is_some() || self.slow.limit.is_some()
    }

    /// The number of requests that wait for a response head, except those of [`paths`](Self::paths).
    pub fn other_paths(&self) -> u32 {
        let asking = self.quick.asking.saturating_add(self.slow.asking).saturating_add(self.aged);
        self.paths.iter().fold(asking, |left, (_, count)| left.saturating_sub(*count))
    }

    /// The queue of all kinds of requests.
    pub fn queue(&self) -> QueueReading {
        let waiting = u64::from(self.quick.queued) + u64::from(self.slow.queued);
        QueueReading { waiting, waiting_max: self.queue_max.into() }
    }
}

impl ConcurrencyLimiter {
    /// Returns the current state. Not all of its numbers are of the same instant.
    pub fn status(&self) -> LimiterStatus {
        let places = Places(self.places.load(SeqCst));
        let lane = |name| LaneStatus {
            asking: places.asking(name),
            limit: self.lane(name).limit(),
            queued: self.lane(name).waiting(),
        };
        LimiterStatus {
            under_way: places.under_way(),
            max: self.settings.max,
            queue_max: self.settings.queue_max,
            quick: lane(LaneName::Quick),
            aged: u32::try_from(self.aged.load(Relaxed)).unwrap_or(0),
            slow: lane(LaneName::Slow),
            paths: self.kinds.most_frequent(PATHS_MAX),
        }
    }
}

impl fmt::Display for LaneStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting for a response head (", self.asking)?;
        match self.limit {
            Some(limit) => write!(f, "limit {limit}")?,
            None => f.write_str("no limit")?,
        }
        write!(f, "), {} queued", self.queued)
    }
}

impl fmt::Display for LimiterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} requests in progress, {}", self.under_way, self.max, self.quick)?;
        if self.aged > 0 {
            write!(f, ", {} waiting for more than a second", self.aged)?;
        }
        if self.slow.asking > 0 || self.slow.queued > 0 || self.slow.limit.is_some() {
            write!(f, "; of slow kinds: {}", self.slow)?;
        }
        match self.paths.first() {
            Some((path, count)) => write!(f, "; most of them for {path} ({count})"),
            None => Ok(()),
        }
    }
}
