//! Detection of a sufficiently precise estimate.

use super::batches::Batches;
use crate::stats::mean::{batch_means, correlation_with_next, mean_interval};

/// Minimum number of batches before an estimate can be precise enough.
pub const BATCHES_MIN: usize = 40;

/// Number of groups into which batches are merged before the interval is calculated. As the run goes on, the groups
/// grow longer and less correlated.
const GROUPS: usize = 20;

/// Largest permitted autocorrelation of adjacent groups. Above it, the groups are too short for a valid interval.
const CORRELATION_MAX: f64 = 0.4;

/// Confidence level of the interval.
const LEVEL: f64 = 0.95;

/// Detects when the 95 % confidence interval of the mean of batch means is narrow enough.
#[derive(Clone, Debug)]
pub struct TightWatch {
    share: f64,
    batches: Batches,
    tight_in_a_row: u32,
}

/// Number of consecutive tests that must find the interval narrow: when a test is repeated, it also succeeds by chance.
const TIMES_IN_A_ROW: u32 = 3;

impl TightWatch {
    /// Creates a detector of an interval whose half-width is at most this share of the mean.
    pub const fn new(share: f64) -> Self {
        Self { share, batches: Batches::new(), tight_in_a_row: 0 }
    }

    /// Adds the mean of one more batch, which must be as long as the others. Returns true if the estimate is precise
    /// enough.
    pub fn push(&mut self, mean: f64) -> bool {
        self.batches.push(mean);
        let is_tight = self.width_share().is_some_and(|width| width <= self.share);
        self.tight_in_a_row = if is_tight { self.tight_in_a_row + 1 } else { 0 };
        self.tight_in_a_row >= TIMES_IN_A_ROW
    }

    /// Returns the half-width of the interval as a share of the mean; `None` until there are enough uncorrelated
    /// batches.
    pub fn width_share(&self) -> Option<f64> {
        if self.batches.means().len() < BATCHES_MIN {
            return None;
        }
        let groups = batch_means(self.batches.means(), GROUPS);
        if correlation_with_next(&groups).is_some_and(|correlation| correlation > CORRELATION_MAX) {
            return None;
        }
        mean_interval(&groups, LEVEL).map(|interval| interval.half_width_share())
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCHES_MIN, TightWatch};
    use crate::random::Random;

    #[test]
    fn the_wider_the_batches_scatter_the_longer_it_takes() {
        let needed = |deviation: f64| {
            let (mut watch, mut random) = (TightWatch::new(0.02), Random::new(5));
            (1..100_000).find(|_| watch.push(100.0 + deviation * random.next_normal())).unwrap()
        };
        // Half-width 2.09 s/√n: 2 % of 100 at a deviation of 10 takes about 110.
        assert!((BATCHES_MIN..BATCHES_MIN + 10).contains(&needed(1.0)), "{}", needed(1.0));
        assert!((60..250).contains(&needed(10.0)), "{}", needed(10.0));
        assert!((500..4_000).contains(&needed(40.0)), "{}", needed(40.0));
    }

    #[test]
    fn what_drifts_is_never_tight() {
        let mut watch = TightWatch::new(0.05);
        assert!(!(0..5_000).any(|index| watch.push(100.0 + f64::from(index))));
    }

    #[test]
    fn nought_is_never_tight() {
        let mut watch = TightWatch::new(0.05);
        assert!(!(0..1_000).any(|_| watch.push(0.0)));
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut held = 0;
        for seed in 0..400 {
            let (mut watch, mut random, mut sum, mut count) = (TightWatch::new(0.1), Random::new(seed), 0.0, 0.0);
            loop {
                let mean = 100.0 * random.next_exp();
                (sum, count) = (sum + mean, count + 1.0);
                if watch.push(mean) {
                    break;
                }
            }
            held += u32::from((sum / count - 100.0_f64).abs() <= 10.0);
        }
        assert!(held >= 360, "{held} of 400");
    }
}
