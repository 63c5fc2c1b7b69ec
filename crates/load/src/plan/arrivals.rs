//! Arrivals of an open loop: rate levels, and how regular the arrivals are.
//!
//! A point process with a mean gap of 1 is stretched by the rate, so a change of rate or a ramp changes only the gaps.
//! Arrival `n` occurs when the integral of the rate reaches the n-th point of that process.

use super::PlanError;
use super::lines::{ReplayLine, ReplayLines};
use super::quantity::{parse_number, parse_time_ns};
use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum visits per second in a plan.
pub const RATE_PER_S_MAX: f64 = 10e6;

/// Maximum number of rate levels in a plan.
pub const LEVELS_MAX: usize = 1_000;

/// ID of the random stream for arrivals.
const PURPOSE_ARRIVALS: u64 = 1;

/// The regularity of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// All gaps are equal.
    Fixed,
    /// Gaps are exponentially distributed: a Poisson process, as with many independent visitors.
    Exp,
    /// Gaps are uniformly distributed over (1 ± `spread`) times the mean gap.
    Uniform {
        /// Half-width of the distribution as a share of the mean gap, 0 to 1.
        spread: f64,
    },
}

impl ArrivalKind {
    /// Parses `fixed`, `exp`, `uniform` (spread 1) or `uniform:SPREAD`.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        match text {
            "fixed" => Ok(Self::Fixed),
            "exp" => Ok(Self::Exp),
            "uniform" => Ok(Self::Uniform { spread: 1.0 }),
            _ => match text.strip_prefix("uniform:").map(parse_number) {
                Some(Ok(spread)) if spread <= 1.0 => Ok(Self::Uniform { spread }),
                Some(_) => Err(PlanError::Meaningless(format!("{text:?}: the spread must be a number from 0 to 1"))),
                None => Err(PlanError::Meaningless(format!(
                    "{text:?} is not a kind of arrivals; use fixed, exp, uniform[:SPREAD] or steps:RATE@TIME,..."
                ))),
            },
        }
    }
}

/// A period in which the rate changes linearly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Visits per second at the start of the level.
    pub from_per_s: f64,
    /// Visits per second at the end of the level.
    pub to_per_s: f64,
    /// Length of the level in nanoseconds.
    pub duration_ns: u64,
}

/// Arrivals of an open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    /// The regularity of the arrivals.
    pub kind: ArrivalKind,
    /// The rate over time. There is at least one level; the final rate of the last level continues.
    pub levels: Vec<Level>,
    /// Lines of a replay, if any. They then determine the arrivals, and levels and kind are only displayed. The lines
    /// are not serialised with the plan, because a replay names its log.
    #[serde(skip)]
    pub replay: Option<Arc<ReplayLines>>,
}

impl Arrivals {
    /// Creates arrivals at a constant rate, in visits per second.
    pub fn constant(kind: ArrivalKind, rate_per_s: f64) -> Self {
        let level = Level { from_per_s: rate_per_s, to_per_s: rate_per_s, duration_ns: 1_000_000_000 };
        Self { kind, levels: vec![level], replay: None }
    }

    /// Creates arrivals from the lines of a log.
    pub fn replay(lines: Arc<ReplayLines>) -> Self {
        let rate_per_s = (lines.len() as f64 * 1e9 / lines.last_ns().max(1) as f64).min(RATE_PER_S_MAX);
        Self { replay: Some(lines), ..Self::constant(ArrivalKind::Fixed, rate_per_s) }
    }

    /// Parses a kind of arrivals at `rate_per_s`: `fixed`, `exp` or `uniform[:SPREAD]`. Also parses levels:
    /// `steps:100@10s,100..500@1m`, optionally after a kind other than `fixed`: `exp:steps:100@10s,200@10s`.
    pub fn parse(text: &str, rate_per_s: Option<f64>) -> Result<Self, PlanError> {
        let meaningless = |what: String| PlanError::Meaningless(what);
        let arrivals = if let Some((kind, steps)) = text.split_once("steps:") {
            let kind = kind.strip_suffix(':').unwrap_or(kind);
            let kind = if kind.is_empty() { ArrivalKind::Fixed } else { ArrivalKind::parse(kind)? };
            if rate_per_s.is_some() {
                return Err(meaningless(format!("{text:?} contains its own rates; remove the other rate")));
            }
            let levels = steps.split(',').map(parse_level).collect::<Result<_, _>>().map_err(meaningless)?;
            Self { kind, levels, replay: None }
        } else {
            let kind = ArrivalKind::parse(text)?;
            let rate_per_s = rate_per_s.ok_or_else(|| meaningless(format!("{text:?} arrivals need a rate")))?;
            Self::constant(kind, rate_per_s)
        };
        arrivals.check()?;
        Ok(arrivals)
    }

    /// Checks that the arrivals are valid.
    pub fn check(&self) -> Result<(), PlanError> {
        let meaningless = |what: String| Err(PlanError::Meaningless(what));
        if let Some(lines) = &self.replay {
            return lines.check().or_else(meaningless);
        }
        if let ArrivalKind::Uniform { spread } = self.kind
            && !(0.0..=1.0).contains(&spread)
        {
            return meaningless(format!("a spread of {spread} is not possible; use 0 to 1"));
        }
        if self.levels.is_empty() || self.levels.len() > LEVELS_MAX {
            return meaningless(format!("the plan has {} rate levels; use 1 to {LEVELS_MAX}", self.levels.len()));
        }
        for level in &self.levels {
            for rate in [level.from_per_s, level.to_per_s] {
                if !(0.0..=RATE_PER_S_MAX).contains(&rate) {
                    return meaningless(format!("a rate of {rate}/s is not possible; use 0 to {RATE_PER_S_MAX}"));
                }
            }
            if level.duration_ns == 0 {
                return meaningless("a rate level has a duration of 0".to_owned());
            }
        }
        if self.levels.iter().all(|level| level.from_per_s + level.to_per_s <= 0.0) {
            return meaningless("a rate of 0/s never sends anything".to_owned());
        }
        Ok(())
    }

    /// Returns the mean rate over all levels, in visits per second.
    pub fn rate_mean(&self) -> f64 {
        let duration_ns: f64 = self.levels.iter().map(|level| level.duration_ns as f64).sum();
        let visits: f64 = self.levels.iter().map(Level::visits).sum();
        if duration_ns > 0.0 { visits * 1e9 / duration_ns } else { 0.0 }
    }

    /// Returns the mean rate over the first `duration_ns`, in visits per second.
    pub fn rate_mean_until(&self, duration_ns: u64) -> f64 {
        let visits = match &self.replay {
            Some(lines) => lines.due_before(duration_ns) as f64,
            None => self.visits_until(duration_ns),
        };
        visits * 1e9 / duration_ns.max(1) as f64
    }

    /// Returns the expected number of visits before `duration_ns`.
    fn visits_until(&self, duration_ns: u64) -> f64 {
        let (mut left_ns, mut visits) = (duration_ns, 0.0);
        for level in &self.levels {
            let used_ns = left_ns.min(level.duration_ns);
            let at_end = level.from_per_s
                + (level.to_per_s - level.from_per_s) * used_ns as f64 / level.duration_ns.max(1) as f64;
            visits += f64::midpoint(level.from_per_s, at_end) * used_ns as f64 / 1e9;
            left_ns -= used_ns;
        }
        visits + self.levels.last().map_or(0.0, |level| level.to_per_s) * left_ns as f64 / 1e9
    }

    /// Returns these arrivals after a time in which the rate rises evenly from 0 to the first of these. A replay has no
    /// rates, so it remains as it is.
    #[must_use]
    pub fn after_ramp(&self, ramp_ns: u64) -> Self {
        let mut arrivals = self.clone();
        if let Some(first) = self.levels.first().filter(|_| ramp_ns > 0 && self.replay.is_none()) {
            let ramp = Level { from_per_s: 0.0, to_per_s: first.from_per_s, duration_ns: ramp_ns };
            arrivals.levels.insert(0, ramp);
        }
        arrivals
    }

    /// Returns an iterator over the arrival times.
    pub fn times(&self, seed: u64) -> Times {
        Times {
            arrivals: Arc::new(self.clone()),
            random: Random::stream(seed, PURPOSE_ARRIVALS, 0),
            index: 0,
            point: 0.0,
            level: 0,
            level_point: 0.0,
            level_ns: 0,
        }
    }
}

impl Level {
    /// Returns the expected number of visits in this level.
    fn visits(&self) -> f64 {
        f64::midpoint(self.from_per_s, self.to_per_s) * self.duration_ns as f64 / 1e9
    }

    /// Returns the time in nanoseconds from the level's start at which the integral of its rate reaches `visits`.
    fn reached_ns(&self, visits: f64) -> f64 {
        let slope = (self.to_per_s - self.from_per_s) / (self.duration_ns as f64 / 1e9);
        // Use the form of the root of a·t + s·t²/2 = v that is accurate for a small slope.
        let root = (self.from_per_s * self.from_per_s + 2.0 * slope * visits).max(0.0).sqrt();
        let seconds = if visits <= 0.0 { 0.0 } else { 2.0 * visits / (self.from_per_s + root) };
        seconds * 1e9
    }
}

fn parse_level(text: &str) -> Result<Level, String> {
    let Some((rate, time)) = text.split_once('@') else {
        return Err(format!("{text:?} is not a level; write it as RATE@TIME or FROM..TO@TIME"));
    };
    let (from, to) = rate.split_once("..").unwrap_or((rate, rate));
    let duration_ns = parse_time_ns(time)? as u64;
    Ok(Level { from_per_s: parse_number(from)?, to_per_s: parse_number(to)?, duration_ns })
}

/// Iterator over arrival times in order, in nanoseconds from the start. It ends only if a replay ends, the rate stays 0
/// or time overflows. `next` does not allocate. A clone continues from the same position.
#[derive(Clone, Debug)]
pub struct Times {
    arrivals: Arc<Arrivals>,
    random: Random,
    /// Number of the next arrival.
    index: u64,
    /// The next point of the process with mean gap 1.
    point: f64,
    level: usize,
    /// Integral of the rate at the level's start.
    level_point: f64,
    /// Start of the level, in nanoseconds from the start.
    level_ns: u64,
}

impl Times {
    /// Returns the number of the next arrival.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns the next line of a replay; `None` if the arrivals are not a replay or its lines have all been used.
    pub fn line(&self) -> Option<ReplayLine> {
        self.arrivals.replay.as_ref()?.get(self.index)
    }

    /// Skips this many arrivals.
    pub fn leave_out(&mut self, count: u64) {
        if self.arrivals.replay.is_some() || self.arrivals.kind == ArrivalKind::Fixed {
            self.index = self.index.saturating_add(count);
        } else {
            (0..count).for_each(|_| self.advance_point());
        }
    }

    /// Advances to the next point of the process.
    fn advance_point(&mut self) {
        match self.arrivals.kind {
            // The time is calculated from the index, not accumulated, so that precision does not degrade.
            ArrivalKind::Fixed => {}
            ArrivalKind::Exp => self.point += self.random.next_exp(),
            ArrivalKind::Uniform { spread } => self.point += 1.0 + spread * (2.0 * self.random.next_f64() - 1.0),
        }
        self.index += 1;
    }

    /// Returns the time at which the integral of the rate reaches `point`, which must not decrease between calls.
    fn time_of(&mut self, point: f64) -> Option<u64> {
        loop {
            let level = self.arrivals.levels.get(self.level).copied().or_else(|| {
                let last = self.arrivals.levels.last()?;
                Some(Level { from_per_s: last.to_per_s, to_per_s: last.to_per_s, duration_ns: u64::MAX })
            })?;
            let visits = level.visits();
            let is_last = self.level >= self.arrivals.levels.len();
            if is_last && visits <= 0.0 {
                return None;
            }
            if is_last || point - self.level_point < visits {
                let reached_ns = level.reached_ns(point - self.level_point).round();
                let time_ns = self.level_ns as f64 + reached_ns;
                return (time_ns < u64::MAX as f64).then(|| self.level_ns.saturating_add(reached_ns as u64));
            }
            self.level_point += visits;
            self.level_ns = self.level_ns.saturating_add(level.duration_ns);
            self.level += 1;
        }
    }
}

impl Iterator for Times {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if let Some(lines) = &self.arrivals.replay {
            let line = lines.get(self.index)?;
            self.index += 1;
            return Some(line.at_ns);
        }
        // In a Poisson process, a gap precedes the first arrival; regular processes start with an arrival.
        let point = match self.arrivals.kind {
            ArrivalKind::Fixed => self.index as f64,
            ArrivalKind::Exp => {
                self.advance_point();
                self.point
            }
            ArrivalKind::Uniform { .. } => self.point,
        };
        let time_ns = self.time_of(point)?;
        if self.arrivals.kind != ArrivalKind::Exp {
            self.advance_point();
        }
        Some(time_ns)
    }
}

#[cfg(test)]
mod tests;
