//! Confidence interval of a mean.
//!
//! Consecutive requests are correlated: a queue that is long now is still long a moment later. So the values are means
//! of batches or of whole runs, never single requests. This keeps the correlation out of the intervals.

use super::Interval;
use super::quantile::student_quantile;

/// Returns mean and unbiased variance; `None` without values.
pub fn mean_and_variance(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, if values.len() > 1 { squares / (count - 1.0) } else { 0.0 }))
}

/// Returns the mean of independent values with its confidence interval by Student's distribution: mean ± t·s/√n.
/// Returns `None` with fewer than two values.
pub fn mean_interval(values: &[f64], level: f64) -> Option<Interval> {
    let (mean, variance) = mean_and_variance(values).filter(|_| values.len() > 1)?;
    let half = student_quantile(level, values.len() as u32 - 1) * (variance / values.len() as f64).sqrt();
    Some(Interval { estimate: mean, low: mean - half, high: mean + half })
}

/// Returns the means of `batches` batches of adjacent values, as equal in size as possible. If there are fewer values,
/// returns the values themselves.
pub fn batch_means(values: &[f64], batches: usize) -> Vec<f64> {
    let batches = batches.min(values.len());
    (0..batches)
        .filter_map(|batch| {
            let batch = &values[batch * values.len() / batches..(batch + 1) * values.len() / batches];
            mean_and_variance(batch).map(|(mean, _)| mean)
        })
        .collect()
}

/// Returns the correlation of adjacent values, -1 to 1, which is near 0 if batches are long enough. Returns `None` with
/// fewer than three values, or if all values are equal.
pub fn correlation_with_next(values: &[f64]) -> Option<f64> {
    let (mean, variance) = mean_and_variance(values).filter(|(_, variance)| values.len() > 2 && *variance > 0.0)?;
    let products: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    Some(products / (variance * (values.len() as f64 - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::{batch_means, correlation_with_next, mean_interval};
    use crate::random::Random;

    #[test]
    fn means_of_small_samples_are_as_in_tables() {
        let interval = mean_interval(&[1.0, 2.0, 3.0, 4.0], 0.95).unwrap();
        // 3.182446 · 1.290994 / 2
        assert!(
            (interval.estimate - 2.5).abs() < 1e-12 && (interval.high - 2.5 - 2.054_260).abs() < 1e-5,
            "{interval:?}"
        );
        assert_eq!(mean_interval(&[1.0], 0.95), None);
        assert_eq!(mean_interval(&[], 0.95), None);
    }

    #[test]
    fn batches_take_all_values_and_lose_what_neighbours_share() {
        assert_eq!(batch_means(&[1.0, 3.0, 5.0, 7.0, 9.0], 2), [2.0, 7.0]);
        assert_eq!(batch_means(&[1.0, 2.0], 5), [1.0, 2.0]);
        let mut random = Random::new(2);
        let mut value = 0.0;
        let values: Vec<f64> = (0..20_000)
            .map(|_| {
                value = 0.95 * value + random.next_normal();
                value
            })
            .collect();
        assert!(correlation_with_next(&values).unwrap() > 0.9);
        assert!(correlation_with_next(&batch_means(&values, 40)).unwrap().abs() < 0.4);
        assert_eq!(correlation_with_next(&[1.0, 1.0, 1.0]), None);
    }

    #[test]
    fn intervals_cover_the_truth_as_often_as_they_say() {
        let mut random = Random::new(11);
        for count in [3, 5, 20] {
            let covered = (0..4000)
                .filter(|_| {
                    let values: Vec<f64> = (0..count).map(|_| 10.0 + random.next_normal()).collect();
                    mean_interval(&values, 0.95).unwrap().contains(10.0)
                })
                .count();
            // 0.95 ± four standard errors.
            assert!((3745..=3855).contains(&covered), "{covered} of 4000 with {count} values");
        }
    }
}
