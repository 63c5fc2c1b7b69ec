//! Summary of a histogram: mean, deviation and percentiles.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Summary of a histogram, in nanoseconds. A percentile is `None` if the request at its rank never got a response: such
/// a request is slower than every other. Mean, deviation and minimum are of the requests that have a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Number of requests that have a time, at least 1.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Population standard deviation (divided by n).
    pub deviation_ns: f64,
    /// Smallest value.
    pub min_ns: u64,
    /// The median: half of all values are no larger.
    pub p50_ns: Option<u64>,
    /// 75th percentile: 75 of 100 values are no larger.
    pub p75_ns: Option<u64>,
    /// 90th percentile: 90 of 100 values are no larger.
    pub p90_ns: Option<u64>,
    /// 95th percentile: 95 of 100 values are no larger.
    pub p95_ns: Option<u64>,
    /// 99th percentile: 99 of 100 values are no larger.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile: 999 of 1000 values are no larger.
    pub p99_9_ns: Option<u64>,
    /// 99.99th percentile: 9999 of 10000 values are no larger.
    pub p99_99_ns: Option<u64>,
    /// Largest value, to three significant digits.
    pub max_ns: Option<u64>,
}

impl Percentiles {
    /// Summarises a histogram, with `missing` requests that have no time; `None` if the histogram is empty.
    pub fn of(histogram: &Histogram<u64>, missing: u64) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let at = |share| quantile_ns(histogram, share, missing);
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
            max_ns: at(1.0),
        })
    }
}

/// Returns the quantile `share` (above 0, at most 1) of the times in a histogram and of `missing` requests that have no
/// time. Returns `None` if the request at that rank has none.
pub fn quantile_ns(histogram: &Histogram<u64>, share: f64, missing: u64) -> Option<u64> {
    if missing == 0 {
        return (!histogram.is_empty()).then(|| histogram.value_at_quantile(share));
    }
    let (known, all) = (histogram.len() as f64, histogram.len() as f64 + missing as f64);
    // Adjust the share so that it selects the same request among those that have a time.
    ((share * all).ceil() <= known).then(|| histogram.value_at_quantile((share * all / known).min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::Percentiles;
    use hdrhistogram::Histogram;

    #[test]
    fn requests_without_a_response_are_slower_than_all_others() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 10_000, 3).unwrap();
        (1..=95).for_each(|value| histogram.record(value).unwrap());
        let all = Percentiles::of(&histogram, 0).unwrap();
        assert_eq!((all.p50_ns, all.p99_ns, all.max_ns), (Some(48), Some(95), Some(95)));
        // Five of 100 are missing, so the 95th is the slowest with a time.
        let some = Percentiles::of(&histogram, 5).unwrap();
        assert_eq!((some.count, some.min_ns, some.mean_ns), (95, 1, 48.0));
        assert_eq!((some.p50_ns, some.p90_ns, some.p95_ns), (Some(50), Some(90), Some(95)));
        assert_eq!((some.p99_ns, some.max_ns), (None, None));
        assert_eq!(Percentiles::of(&histogram, 96).unwrap().p50_ns, None);
        histogram.reset();
        assert_eq!(Percentiles::of(&histogram, 5), None);
    }
}
