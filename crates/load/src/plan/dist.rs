//! Distributions of think times and session lengths.
//!
//! Written as `5`, `exp:5`, `uniform:1..9`, or a mixture `30%:1,70%:uniform:5..15`. Times take a unit: `exp:20ms`.

use super::PlanError;
use super::random::Random;
use serde::{Deserialize, Serialize};

/// Most parts of a mixture.
pub const PARTS_MAX: usize = 64;

/// A distribution of numbers that are never negative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dist {
    /// Always the same.
    Fixed(f64),
    /// Exponential, with this mean.
    Exp(f64),
    /// Every number of `[from, to)` as likely as any other.
    Uniform {
        /// Smallest.
        from: f64,
        /// Largest, not included.
        to: f64,
    },
    /// One of several, each with its weight.
    Mix(Vec<(f64, Self)>),
}

impl Dist {
    /// Reads a distribution of plain numbers, for example `uniform:5..15`.
    pub fn parse_number(text: &str) -> Result<Self, PlanError> {
        let _ = text;
        Err(PlanError::Meaningless("not yet".to_owned()))
    }

    /// Reads a distribution of times, for example `exp:20ms`, as nanoseconds.
    pub fn parse_time(text: &str) -> Result<Self, PlanError> {
        let _ = text;
        Err(PlanError::Meaningless("not yet".to_owned()))
    }

    /// Says whether it means something; `what` is its name in the error.
    pub fn check(&self, what: &str) -> Result<(), PlanError> {
        let _ = what;
        Ok(())
    }

    /// Its mean.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(value) | Self::Exp(value) => *value,
            Self::Uniform { from, to } => f64::midpoint(*from, *to),
            Self::Mix(parts) => {
                let weights: f64 = parts.iter().map(|(weight, _)| weight).sum();
                parts.iter().map(|(weight, part)| weight * part.mean()).sum::<f64>() / weights
            }
        }
    }

    /// Draws a number.
    pub fn draw(&self, random: &mut Random) -> f64 {
        let _ = random;
        self.mean()
    }
}
