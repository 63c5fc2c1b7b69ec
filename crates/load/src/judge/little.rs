//! Little's law: requests in flight are the rate of answers times the mean time each takes.

use serde::{Deserialize, Serialize};

/// Largest difference that clocks and the run's edges explain, as a share.
pub const DIFFERENCE_SHARE_MAX: f64 = 0.02;

/// Both sides of the law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Little {
    /// Mean number of requests in flight, integrated over time.
    pub in_flight: f64,
    /// Requests ended a second times their mean service time.
    pub rate_times_service: f64,
}

impl Little {
    /// Both sides from a finished record and the length of its measured part.
    pub fn of(recorder: &crate::record::Recorder, elapsed_ns: u64) -> Option<Self> {
        let _ = (recorder, elapsed_ns);
        None
    }

    /// Their difference as a share of the larger one.
    pub fn difference_share(&self) -> f64 {
        let larger = self.in_flight.max(self.rate_times_service);
        if larger > 0.0 { (self.in_flight - self.rate_times_service).abs() / larger } else { 0.0 }
    }
}
