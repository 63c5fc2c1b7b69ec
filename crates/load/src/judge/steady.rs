//! When a run has become steady: MSER-5 and a search for changes of level.

use serde::{Deserialize, Serialize};

/// What a series of batch means says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steady {
    /// Too few batches to tell.
    TooShort,
    /// Steady from this batch on.
    From(usize),
    /// It never becomes steady.
    Never,
}

/// Judges a whole series of batch means (of service times, of rates): each batch of equal length in time.
pub fn judge(batches: &[f64]) -> Steady {
    let _ = batches;
    Steady::TooShort
}

/// Watches a warm-up as it goes: batches of a tenth of a second or so are pushed, and it says when the run is warm.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    batches: Vec<f64>,
}

/// Most batches a watch keeps; older ones are merged in pairs.
pub const BATCHES_MAX: usize = 1_024;

impl Watch {
    /// A watch that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mean of one more batch; true when the run is steady now.
    pub fn push(&mut self, mean: f64) -> bool {
        self.batches.push(mean);
        false
    }
}
