//! Distributions of think times and session lengths.
//!
//! Syntax: `5`, `exp:5`, `uniform:1..9` (or `1..9`), or a mixture `30%:1,70%:5..15`. Times need a unit: `exp:20ms`.

use super::PlanError;
use super::quantity::{parse_number, parse_time_ns};
use crate::random::Random;
use serde::{Deserialize, Serialize};

/// Maximum number of parts in a mixture.
pub const PARTS_MAX: usize = 64;

/// A distribution of non-negative numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dist {
    /// A constant value.
    Fixed(f64),
    /// An exponential distribution with this mean.
    Exp(f64),
    /// A uniform distribution over `[from, to)`.
    Uniform {
        /// Lower bound, included.
        from: f64,
        /// Upper bound, excluded.
        to: f64,
    },
    /// A mixture of weighted parts, which are not mixtures themselves.
    Mix(Vec<(f64, Self)>),
}

impl Dist {
    /// The constant 0.
    pub const ZERO: Self = Self::Fixed(0.0);

    /// Parses a distribution of plain numbers, for example `uniform:5..15`.
    pub fn parse_number(text: &str) -> Result<Self, PlanError> {
        Self::parse(text, &parse_number).map_err(PlanError::Meaningless)
    }

    /// Parses a distribution of times, for example `exp:20ms`, in nanoseconds.
    pub fn parse_time(text: &str) -> Result<Self, PlanError> {
        Self::parse(text, &parse_time_ns).map_err(PlanError::Meaningless)
    }

    fn parse(text: &str, read: &dyn Fn(&str) -> Result<f64, String>) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > PARTS_MAX {
            return Err(format!("a mixture may have at most {PARTS_MAX} parts"));
        }
        if parts.len() == 1 && !text.contains('%') {
            return Self::parse_simple(text, read);
        }
        let part = |part: &&str| {
            let Some((weight, rest)) = part.split_once(':') else {
                return Err(format!("{part:?} is not part of a mixture; write it as 30%:1"));
            };
            let weight = weight.trim();
            let Some(weight) = weight.strip_suffix('%') else {
                return Err(format!("the weight {weight:?} of a mixture's part needs a percent sign"));
            };
            Ok((parse_number(weight)?, Self::parse_simple(rest, read)?))
        };
        let parts = parts.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let sum: f64 = parts.iter().map(|(weight, _)| weight).sum();
        // Tolerate rounded weights, such as three times 33.3 %.
        if (sum - 100.0).abs() > 0.5 {
            return Err(format!("the weights of a mixture must add up to 100 %, not {sum} %"));
        }
        Ok(Self::Mix(parts))
    }

    fn parse_simple(text: &str, read: &dyn Fn(&str) -> Result<f64, String>) -> Result<Self, String> {
        let text = text.trim();
        if let Some(mean) = text.strip_prefix("exp:") {
            return read(mean).map(Self::Exp);
        }
        let range = text.strip_prefix("uniform:");
        if let Some((from, to)) = range.unwrap_or(text).split_once("..") {
            let to_value = read(to)?;
            // The unit may be given only once: 5..15ms.
            let unit = to.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.' || letter == ' ');
            let from_value = read(from).or_else(|error| read(&format!("{from}{unit}")).map_err(|_| error))?;
            return if from_value <= to_value {
                Ok(Self::Uniform { from: from_value, to: to_value })
            } else {
                Err(format!("{text:?} must have its lower end first"))
            };
        }
        match range {
            Some(_) => Err(format!("{text:?} needs two ends: uniform:1..9")),
            None => read(text.strip_prefix("fixed:").unwrap_or(text)).map(Self::Fixed),
        }
    }

    /// Checks that the distribution is valid; `what` names it in the error. A parsed distribution is always valid.
    pub fn check(&self, what: &str) -> Result<(), PlanError> {
        let is_fine = |value: f64| value.is_finite() && value >= 0.0;
        let fine = match self {
            Self::Fixed(value) | Self::Exp(value) => is_fine(*value),
            Self::Uniform { from, to } => is_fine(*from) && is_fine(*to) && from <= to,
            Self::Mix(parts) => {
                let is_part = |(weight, part): &(f64, Self)| {
                    is_fine(*weight) && !matches!(part, Self::Mix(_)) && part.check(what).is_ok()
                };
                (1..=PARTS_MAX).contains(&parts.len())
                    && parts.iter().all(is_part)
                    && is_fine(Self::weights(parts))
                    && Self::weights(parts) > 0.0
            }
        };
        if fine { Ok(()) } else { Err(PlanError::Meaningless(format!("{what} is not a distribution: {self:?}"))) }
    }

    fn weights(parts: &[(f64, Self)]) -> f64 {
        parts.iter().map(|(weight, _)| weight).sum()
    }

    /// Returns the expected value of a draw.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(value) | Self::Exp(value) => *value,
            Self::Uniform { from, to } => f64::midpoint(*from, *to),
            Self::Mix(parts) => {
                parts.iter().map(|(weight, part)| weight * part.mean()).sum::<f64>() / Self::weights(parts)
            }
        }
    }

    /// Returns the mean of [`Dist::draw_count`], which draws integers of at least 1.
    pub fn mean_count(&self) -> f64 {
        match self {
            Self::Fixed(value) => value.round().max(1.0),
            // P(X ≥ k - 1/2) is exp(-(k - 1/2)/mean) for each k from 1; values below 1/2 count as 1.
            Self::Exp(mean) if *mean > 0.0 => {
                let half = (-0.5 / mean).exp();
                half / (1.0 - (-1.0 / mean).exp()) + (1.0 - half)
            }
            Self::Exp(_) => 1.0,
            Self::Uniform { from, to } => {
                let from = from.ceil();
                let count = (to.floor() - from + 1.0).max(1.0);
                let mean = from + (count - 1.0) / 2.0;
                // Zero counts as 1.
                if from <= 0.0 { mean + 1.0 / count } else { mean }
            }
            Self::Mix(parts) => {
                parts.iter().map(|(weight, part)| weight * part.mean_count()).sum::<f64>() / Self::weights(parts)
            }
        }
    }

    /// Returns whether every draw is zero.
    pub fn is_zero(&self) -> bool {
        matches!(self, Self::Fixed(value) if *value <= 0.0)
    }

    /// Draws a number.
    pub fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Exp(mean) => mean * random.next_exp(),
            Self::Uniform { from, to } => from + (to - from) * random.next_f64(),
            Self::Mix(parts) => {
                let mut left = random.next_f64() * Self::weights(parts);
                let chosen = parts.iter().find(|(weight, _)| {
                    left -= weight;
                    left < 0.0
                });
                // Because of rounding, the number may lie beyond the last part.
                chosen.or(parts.last()).map_or(0.0, |(_, part)| part.draw(random))
            }
        }
    }

    /// Draws an integer of at least 1, for session lengths. A uniform `5..15` yields 5 to 15 inclusive with equal
    /// probability.
    pub fn draw_count(&self, random: &mut Random) -> u32 {
        let value = match self {
            Self::Uniform { from, to } => {
                let (from, to) = (from.ceil(), to.floor());
                from + ((to - from + 1.0).max(1.0) * random.next_f64()).floor()
            }
            Self::Mix(parts) => {
                let mut left = random.next_f64() * Self::weights(parts);
                let chosen = parts.iter().find(|(weight, _)| {
                    left -= weight;
                    left < 0.0
                });
                return chosen.or(parts.last()).map_or(1, |(_, part)| match part {
                    Self::Mix(_) => 1, // rejected by `check`
                    part => part.draw_count(random),
                });
            }
            other => other.draw(random).round(),
        };
        value.clamp(1.0, f64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests;
