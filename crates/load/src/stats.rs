//! What several runs say together, and how far it can be believed.
//!
//! | file | the question it answers |
//! |---|---|
//! | `quantile` | what the normal and Student's distributions say |
//! | `mean` | how well a mean is known |
//! | `order` | in what order two subjects take turns, and which runs belong together |
//! | `bootstrap` | how well a ratio, or a ratio of percentiles, is known from blocks of runs |
//! | `compare` | whether B differs from A, in a sentence |
//! | `usl` | how a rate grows with connections or cores, where its peak lies |
//! | `knee` | at what rate a requirement is met for the last time |
//! | `overload` | what becomes of good answers beyond the peak, and how soon they are back |
//!
//! Nothing here runs a load: what was measured is an argument, and what is to be measured next is a value. All that is
//! left to chance comes from a seed. The methods and their sources are in docs/lab-method.md.

pub mod bootstrap;
pub mod compare;
pub mod knee;
pub mod mean;
pub mod order;
pub mod overload;
pub mod quantile;
pub mod usl;

use serde::{Deserialize, Serialize};

/// An estimate and the interval that covers the truth with the confidence that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the value lies within, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether it is made of numbers that can be written down.
    pub fn is_finite(&self) -> bool {
        self.estimate.is_finite() && self.low.is_finite() && self.high.is_finite()
    }

    /// Half of its width as a share of the estimate; infinite when that is 0.
    pub fn half_width_share(&self) -> f64 {
        if self.estimate == 0.0 { f64::INFINITY } else { (self.high - self.low) / 2.0 / self.estimate.abs() }
    }

    /// The same with each end and the estimate changed by a function that grows, or falls, throughout.
    #[must_use]
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (change(self.low), change(self.high));
        Self { estimate: change(self.estimate), low: one.min(other), high: one.max(other) }
    }
}

/// The confidence of all intervals unless another is asked for.
pub const LEVEL_DEFAULT: f64 = 0.95;
