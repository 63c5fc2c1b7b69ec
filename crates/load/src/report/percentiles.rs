//! Summary of a histogram: mean, deviation and percentiles.

use crate::record::series::{heat_class, heat_floor_ns};
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

/// A range of times with the number of requests that took so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Shortest time of the range, in nanoseconds.
    pub from_ns: u64,
    /// End of the range, which it does not include, in nanoseconds.
    pub to_ns: u64,
    /// Number of requests.
    pub count: u64,
}

/// Number of classes of [`heat_class`] per bucket: half of a doubling.
const CLASSES_PER_BUCKET: u16 = 4;

/// Returns the requests of a histogram in ranges, each about 1.4 times as wide as the one before, from the range of the
/// shortest time to that of the longest.
pub fn buckets(histogram: &Histogram<u64>) -> Vec<Bucket> {
    let mut counts = std::collections::BTreeMap::new();
    for step in histogram.iter_recorded() {
        *counts.entry(heat_class(step.value_iterated_to()) / CLASSES_PER_BUCKET).or_insert(0) +=
            step.count_since_last_iteration();
    }
    let (Some((first, _)), Some((last, _))) = (counts.first_key_value(), counts.last_key_value()) else {
        return Vec::new();
    };
    let floor_ns = |bucket: u16| heat_floor_ns(bucket * CLASSES_PER_BUCKET);
    (*first..=*last)
        .map(|bucket| Bucket {
            from_ns: floor_ns(bucket),
            to_ns: floor_ns(bucket + 1),
            count: counts.get(&bucket).copied().unwrap_or(0),
        })
        .collect()
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
    use super::{Percentiles, buckets};
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

    #[test]
    fn buckets_are_contiguous_and_hold_every_request() {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, 10_000_000_000, 3).unwrap();
        assert_eq!(buckets(&histogram), []);
        for (value_ns, count) in [(1_000_000, 5), (1_100_000, 2), (9_000_000, 1)] {
            histogram.record_n(value_ns, count).unwrap();
        }
        let found = buckets(&histogram);
        assert_eq!(found.iter().map(|bucket| bucket.count).collect::<Vec<_>>(), [5, 2, 0, 0, 0, 0, 0, 1]);
        assert!(found.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        assert!(found[0].from_ns <= 1_000_000 && found[7].to_ns > 9_000_000, "{found:?}");
    }
}
