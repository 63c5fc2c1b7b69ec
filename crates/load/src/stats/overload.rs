//! Goodput beyond the peak, and recovery from overload.
//!
//! Goodput is the rate of correct responses in time. A good server's goodput stays level beyond its peak. The goodput
//! of a server that works a little on every request, or works on abandoned requests, collapses.

use serde::{Deserialize, Serialize};

/// The results at one load level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Requests offered per second.
    pub offered_per_s: f64,
    /// Correct responses in time per second.
    pub goodput_per_s: f64,
    /// Share of requests that failed, 0 to 1.
    pub error_share: f64,
    /// 99th percentile of the response time in nanoseconds, if there were responses.
    pub p99_ns: Option<u64>,
}

/// Analysis of several load levels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overload {
    /// The level with the highest goodput.
    pub peak: Level,
    /// The level with the lowest goodput among those with a higher offered load than the peak; `None` if there are
    /// none.
    pub worst: Option<Level>,
    /// Goodput of `worst` as a share of the peak's.
    pub kept_share: Option<f64>,
    /// Offered load of the first level whose goodput was below [`KEEPING_UP_SHARE`] of the offered load.
    pub overloaded_from_per_s: Option<f64>,
}

/// Smallest share of the offered requests that must get good responses for the server to keep up.
pub const KEEPING_UP_SHARE: f64 = 0.99;

impl Overload {
    /// Analyses levels, which may be in any order; `None` without levels.
    pub fn of(levels: &[Level]) -> Option<Self> {
        let by_goodput = |one: &&Level, other: &&Level| one.goodput_per_s.total_cmp(&other.goodput_per_s);
        let peak = *levels.iter().max_by(by_goodput)?;
        let beyond = levels.iter().filter(|level| level.offered_per_s > peak.offered_per_s);
        let worst = beyond.min_by(by_goodput).copied();
        let kept_share =
            worst.filter(|_| peak.goodput_per_s > 0.0).map(|worst| worst.goodput_per_s / peak.goodput_per_s);
        let overloaded_from_per_s = levels
            .iter()
            .filter(|level| level.goodput_per_s < KEEPING_UP_SHARE * level.offered_per_s)
            .map(|level| level.offered_per_s)
            .min_by(f64::total_cmp);
        Some(Self { peak, worst, kept_share, overloaded_from_per_s })
    }

    /// Returns the result as a sentence.
    pub fn sentence(&self) -> String {
        if self.peak.goodput_per_s <= 0.0 {
            return "no request succeeded in time at any load".to_owned();
        }
        let peak = format!(
            "goodput peaks at {:.0}/s, with {:.0} requests/s offered",
            self.peak.goodput_per_s, self.peak.offered_per_s
        );
        match (self.worst, self.kept_share) {
            (Some(worst), Some(share)) => format!(
                "{peak}; beyond it, goodput falls to {:.0} % of that, at {:.0} requests/s offered",
                100.0 * share,
                worst.offered_per_s
            ),
            _ => format!("{peak}; no higher load was offered"),
        }
    }
}

/// One second of a run, after the load was reduced.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Start of this second, in nanoseconds after the load was reduced to what the server can handle.
    pub after_ns: u64,
    /// Number of requests offered in this second.
    pub offered: u64,
    /// Number of correct responses in time to these requests.
    pub good: u64,
}

/// The recovery of a server from overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// The server kept up from this time on, in nanoseconds after the load was reduced.
    After(u64),
    /// The server did not recover within the observed time, in nanoseconds.
    NotWithin(u64),
}

/// Number of consecutive good seconds required for recovery.
pub const GOOD_SECONDS: usize = 3;

/// Finds the first of [`GOOD_SECONDS`] consecutive seconds in which at least [`KEEPING_UP_SHARE`] of the offered
/// requests had good responses. Skips seconds without requests. Returns `None` if `seconds` is empty.
pub fn recovery(seconds: &[Second]) -> Option<Recovery> {
    let last = seconds.last()?;
    let mut row: Option<(u64, usize)> = None;
    for second in seconds.iter().filter(|second| second.offered > 0) {
        if second.good as f64 >= KEEPING_UP_SHARE * second.offered as f64 {
            let (since_ns, length) = row.map_or((second.after_ns, 1), |(since_ns, length)| (since_ns, length + 1));
            row = Some((since_ns, length));
            if length >= GOOD_SECONDS {
                return Some(Recovery::After(since_ns));
            }
        } else {
            row = None;
        }
    }
    Some(Recovery::NotWithin(last.after_ns.saturating_add(1_000_000_000)))
}

#[cfg(test)]
mod tests {
    use super::{Level, Overload, Recovery, Second, recovery};

    fn level(offered_per_s: f64, goodput_per_s: f64) -> Level {
        Level { offered_per_s, goodput_per_s, error_share: 0.0, p99_ns: None }
    }

    #[test]
    fn a_collapse_is_told_from_a_level_end() {
        // The curve of TarantulaWEB: it kept up to 300 connections/s and fell beyond.
        let levels = [level(100.0, 100.0), level(300.0, 300.0), level(500.0, 210.0), level(1100.0, 60.0)];
        let overload = Overload::of(&levels).unwrap();
        assert_eq!(
            (overload.peak.offered_per_s, overload.worst, overload.kept_share),
            (300.0, Some(levels[3]), Some(0.2))
        );
        assert_eq!(overload.overloaded_from_per_s, Some(500.0));
        assert_eq!(
            overload.sentence(),
            "goodput peaks at 300/s, with 300 requests/s offered; beyond it, goodput falls to 20 % of that, at 1100 requests/s offered"
        );
        let level_end = Overload::of(&[level(2000.0, 990.0), level(500.0, 500.0), level(1000.0, 1000.0)]).unwrap();
        assert_eq!(level_end.kept_share, Some(0.99));
        let unfinished = Overload::of(&[level(1.0, 1.0), level(2.0, 2.0)]).unwrap();
        assert_eq!((unfinished.worst, unfinished.kept_share, unfinished.overloaded_from_per_s), (None, None, None));
        assert!(unfinished.sentence().ends_with("no higher load was offered"));
        assert_eq!(Overload::of(&[]), None);
    }

    #[test]
    fn recovery_is_when_it_lasts() {
        let seconds = |goods: &[u64]| -> Vec<Second> {
            (0..)
                .zip(goods)
                .map(|(at, good)| Second { after_ns: at * 1_000_000_000, offered: 100, good: *good })
                .collect()
        };
        assert_eq!(recovery(&seconds(&[100, 100, 100])), Some(Recovery::After(0)));
        assert_eq!(recovery(&seconds(&[10, 99, 100, 50, 99, 100, 100, 100])), Some(Recovery::After(4_000_000_000)));
        assert_eq!(recovery(&seconds(&[10, 99, 98, 99, 100])), Some(Recovery::NotWithin(5_000_000_000)));
        assert_eq!(recovery(&[]), None);
        // A second without requests is skipped.
        let mut gap = seconds(&[100, 0, 100, 100]);
        gap[1].offered = 0;
        assert_eq!(recovery(&gap), Some(Recovery::After(0)));
    }
}
