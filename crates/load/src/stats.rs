//! Statistics over several runs, with confidence.
//!
//! | file | contents |
//! |---|---|
//! | `quantile` | normal and Student's distributions |
//! | `mean` | confidence of a mean |
//! | `order` | order of runs of two subjects, and their blocks |
//! | `bootstrap` | confidence of a ratio, or a ratio of percentiles, from blocks of runs |
//! | `compare` | whether B differs from A |
//! | `responses` | whether the statuses and sizes of two sides' responses differ |
//! | `usl` | scalability with connections or cores, and its peak |
//! | `knee` | highest rate that meets a requirement |
//! | `overload` | goodput beyond the peak, and recovery |
//!
//! Nothing in this module generates load: measurements are arguments, and the next measurement to make is a return
//! value. All random choices come from a seed. The methods and their sources are described in docs/lab-method.md.

pub mod bootstrap;
pub mod compare;
pub mod knee;
pub mod mean;
pub mod order;
pub mod overload;
pub mod quantile;
pub mod responses;
pub mod usl;

use serde::{Deserialize, Serialize};

/// An estimate with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Point estimate between `low` and `high`.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Interval {
    /// Returns whether the value lies within the interval, including its ends.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns whether all values are finite.
    pub fn is_finite(&self) -> bool {
        self.estimate.is_finite() && self.low.is_finite() && self.high.is_finite()
    }

    /// Returns half the width of the interval as a share of the estimate; infinite if the estimate is 0.
    pub fn half_width_share(&self) -> f64 {
        if self.estimate == 0.0 { f64::INFINITY } else { (self.high - self.low) / 2.0 / self.estimate.abs() }
    }

    /// Applies a monotonic function to the estimate and both ends.
    #[must_use]
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (change(self.low), change(self.high));
        Self { estimate: change(self.estimate), low: one.min(other), high: one.max(other) }
    }
}

/// Default confidence level of all intervals.
pub const LEVEL_DEFAULT: f64 = 0.95;
