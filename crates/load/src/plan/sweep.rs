//! Sweeps: `100..1100:100`, `1..512:x2`, or a single number.

use super::PlanError;
use serde::{Deserialize, Serialize};

/// Most levels of a sweep.
pub const LEVELS_MAX: usize = 1_000;

/// How a sweep goes from one level to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stride {
    /// By adding.
    Add(f64),
    /// By multiplying.
    Times(f64),
}

/// Levels from one number to another, both included where the stride meets them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// First level.
    pub from: f64,
    /// No level is above this.
    pub to: f64,
    /// From one level to the next.
    pub stride: Stride,
}

impl Sweep {
    /// A single level.
    pub const fn single(value: f64) -> Self {
        Self { from: value, to: value, stride: Stride::Add(1.0) }
    }

    /// Reads `N`, `A..B:STEP` or `A..B:xK`.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let _ = text;
        Err(PlanError::Meaningless("not yet".to_owned()))
    }

    /// Its levels in order, at least one, at most [`LEVELS_MAX`].
    pub fn levels(&self) -> Vec<f64> {
        vec![self.from]
    }

    /// Whether it is a single level.
    pub fn is_single(&self) -> bool {
        self.levels().len() == 1
    }
}
