//! Means of equally long batches, in bounded memory: at the limit, each pair of adjacent batches is merged into one.

/// Number of batch means at which adjacent ones are merged.
const BATCHES_MAX: usize = 1_024;

/// Batch means in chronological order.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    means: Vec<f64>,
    /// Number of pushed batches that each element of `means` covers.
    width: u32,
    pending: f64,
    pending_count: u32,
}

impl Batches {
    pub(super) const fn new() -> Self {
        Self { means: Vec::new(), width: 1, pending: 0.0, pending_count: 0 }
    }

    /// Adds the mean of one more batch. Skips NaN and infinite values.
    pub(super) fn push(&mut self, mean: f64) {
        if !mean.is_finite() {
            return;
        }
        self.pending += mean;
        self.pending_count += 1;
        if self.pending_count < self.width {
            return;
        }
        self.means.push(self.pending / f64::from(self.pending_count));
        (self.pending, self.pending_count) = (0.0, 0);
        if self.means.len() == BATCHES_MAX {
            self.means = self.means.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
            self.width = self.width.saturating_mul(2);
        }
    }

    pub(super) fn means(&self) -> &[f64] {
        &self.means
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCHES_MAX, Batches};

    #[test]
    fn memory_is_bounded_and_the_mean_is_kept() {
        let mut batches = Batches::new();
        (0..100_000_u32).for_each(|index| batches.push(f64::from(index)));
        batches.push(f64::NAN);
        assert!(batches.means().len() < BATCHES_MAX && batches.means().len() > BATCHES_MAX / 2 - 1);
        assert!(batches.means().windows(2).all(|pair| (pair[1] - pair[0] - f64::from(batches.width)).abs() < 1e-9));
    }
}
