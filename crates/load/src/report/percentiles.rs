//! Summary of a histogram: mean, deviation and percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Summary of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of values, at least 1.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Population standard deviation (divided by n).
    pub deviation_ns: f64,
    /// Smallest value.
    pub min_ns: u64,
    /// The median: half of all values are no larger.
    pub p50_ns: u64,
    /// 75th percentile: 75 of 100 values are no larger.
    pub p75_ns: u64,
    /// 90th percentile: 90 of 100 values are no larger.
    pub p90_ns: u64,
    /// 95th percentile: 95 of 100 values are no larger.
    pub p95_ns: u64,
    /// 99th percentile: 99 of 100 values are no larger.
    pub p99_ns: u64,
    /// 99.9th percentile: 999 of 1000 values are no larger.
    pub p99_9_ns: u64,
    /// 99.99th percentile: 9999 of 10000 values are no larger.
    pub p99_99_ns: u64,
    /// Largest value, to three significant digits.
    pub max_ns: u64,
}

impl Percentiles {
    /// Summarises a histogram; `None` if it is empty.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let at = |quantile| histogram.value_at_quantile(quantile);
        Some(Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            deviation_ns: histogram.stdev(),
            min_ns: histogram.min(),
            p50_ns: at(0.5),
            p75_ns: at(0.75),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            p99_99_ns: at(0.9999),
            max_ns: histogram.max(),
        })
    }
}
