//! Exact count, sum, sum of squares, minimum and maximum of integers, also after merging.

use serde::{Deserialize, Serialize};

/// Sums over a set of integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    /// Number of values.
    pub count: u64,
    /// Sum of the values. Saturates, which takes 584 years in nanoseconds.
    pub sum: u64,
    /// Sum of the squares of the values. Saturates, which takes 2^64 values of one second in nanoseconds. In JSON it is
    /// a string of digits, because it exceeds the range in which JSON readers are exact.
    #[serde(with = "digits")]
    pub sum_squares: u128,
    /// Smallest value; 0 without values.
    pub min: u64,
    /// Largest value; 0 without values.
    pub max: u64,
}

impl Moments {
    /// Adds a value.
    pub fn record(&mut self, value: u64) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.sum_squares = self.sum_squares.saturating_add(u128::from(value) * u128::from(value));
    }

    /// Adds another set of values.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
    }

    /// Returns the mean; `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// Returns the population standard deviation (divided by n), as in WebStone; `None` without values.
    pub fn deviation_population(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.squares_about_mean() / self.count as f64).sqrt())
    }

    /// Returns the sample standard deviation (divided by n - 1), as in httperf; 0 for one value, `None` without values.
    pub fn deviation_sample(&self) -> Option<f64> {
        (self.count > 0).then(|| (self.squares_about_mean() / (self.count - 1).max(1) as f64).sqrt())
    }

    fn squares_about_mean(&self) -> f64 {
        // Compute n·Σx² - (Σx)² in integers if it fits: floating point loses the difference of two close numbers.
        let (count, sum) = (u128::from(self.count), u128::from(self.sum));
        if let (Some(left), Some(right)) = (self.sum_squares.checked_mul(count), sum.checked_mul(sum)) {
            return left.saturating_sub(right) as f64 / self.count as f64;
        }
        let mean = self.sum as f64 / self.count as f64;
        (self.sum_squares as f64 - mean * self.sum as f64).max(0.0)
    }
}

/// Serialises 128-bit integers as strings of digits.
mod digits {
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // the signature is serde's
    pub(super) fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom("not a whole number in a string"))
    }
}

#[cfg(test)]
mod tests {
    use super::Moments;

    fn of(values: &[u64]) -> Moments {
        let mut moments = Moments::default();
        for value in values {
            moments.record(*value);
        }
        moments
    }

    #[test]
    fn both_standard_deviations_follow_their_definitions() {
        let moments = of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((moments.mean(), moments.min, moments.max), (Some(5.0), 2, 9));
        assert_eq!(moments.deviation_population(), Some(2.0));
        assert!((moments.deviation_sample().unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((of(&[]).mean(), of(&[]).deviation_sample()), (None, None));
        assert_eq!((of(&[7]).deviation_population(), of(&[7]).deviation_sample()), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn a_small_spread_about_a_large_mean_is_not_lost() {
        let far = 1_700_000_000_000_000_000;
        let moments = of(&[far, far + 2, far + 4]);
        assert!((moments.deviation_population().unwrap() - (8.0_f64 / 3.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn merging_is_adding() {
        let mut merged = of(&[5, 1]);
        merged.merge(&of(&[]));
        merged.merge(&of(&[9, 0]));
        assert_eq!(merged, of(&[5, 1, 9, 0]));
        let mut empty = of(&[]);
        empty.merge(&of(&[3]));
        assert_eq!(empty, of(&[3]));
        let text = serde_json::to_string(&of(&[u64::MAX, u64::MAX])).unwrap();
        assert_eq!(serde_json::from_str::<Moments>(&text).unwrap(), of(&[u64::MAX, u64::MAX]));
    }
}
