//! When an estimate is tight enough to stop.

/// Watches batch means and says when the 95 % confidence interval of their mean is narrow enough.
#[derive(Clone, Debug)]
pub struct TightWatch {
    share: f64,
    batches: Vec<f64>,
}

impl TightWatch {
    /// Tight enough when the half-width of the interval is at most this share of the mean.
    pub fn new(share: f64) -> Self {
        Self { share, batches: Vec::new() }
    }

    /// The mean of one more batch of equal length; true when the estimate is tight enough.
    pub fn push(&mut self, mean: f64) -> bool {
        self.batches.push(mean);
        false
    }

    /// Half-width of the interval as a share of the mean, once there are enough batches.
    pub fn width_share(&self) -> Option<f64> {
        let _ = self.share;
        None
    }
}
