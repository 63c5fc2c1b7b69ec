//! Repeated readings of one quantity, and how much they vary.

use serde::Serialize;

/// Readings of one quantity from interleaved repetitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    readings: Vec<f64>,
}

impl Spread {
    /// Adds a reading. Ignores NaN, which means that nothing was measured, and infinite values.
    pub fn add(&mut self, reading: f64) {
        if reading.is_finite() {
            self.readings.push(reading);
        }
    }

    /// Returns all readings, in order.
    pub fn readings(&self) -> &[f64] {
        &self.readings
    }

    /// Returns the median (for an even number of readings, the mean of the middle two); 0 without readings.
    pub fn median(&self) -> f64 {
        let mut sorted = self.readings.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => 0.0,
            count if count % 2 == 1 => sorted[count / 2],
            count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
        }
    }

    /// Returns the smallest reading; 0 without readings.
    pub fn min(&self) -> f64 {
        self.readings.iter().copied().reduce(f64::min).unwrap_or(0.0)
    }

    /// Returns the largest reading; 0 without readings.
    pub fn max(&self) -> f64 {
        self.readings.iter().copied().reduce(f64::max).unwrap_or(0.0)
    }
}

impl FromIterator<f64> for Spread {
    fn from_iter<I: IntoIterator<Item = f64>>(readings: I) -> Self {
        let mut spread = Self::default();
        readings.into_iter().for_each(|reading| spread.add(reading));
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    fn middle(readings: &[f64]) -> (f64, f64, f64) {
        let spread: Spread = readings.iter().copied().collect();
        (spread.min(), spread.median(), spread.max())
    }

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        assert_eq!(middle(&[3.0, 1.0, 2.0]), (1.0, 2.0, 3.0));
        assert_eq!(middle(&[4.0, 1.0, 3.0, 2.0]), (1.0, 2.5, 4.0));
        assert_eq!(middle(&[5.0]), (5.0, 5.0, 5.0));
        assert_eq!(middle(&[]), (0.0, 0.0, 0.0));
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        assert_eq!(middle(&[f64::NAN, 2.0, f64::INFINITY]), (2.0, 2.0, 2.0));
    }
}
