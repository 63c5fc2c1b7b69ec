//! The expected response times, as formulas.

/// A distribution that consists of parts, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    parts: Vec<(f64, DistributionPart)>,
}

/// A share of the service times, all from the same range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DistributionPart {
    /// One value.
    At(f64),
    /// All values between two, equally likely.
    Between(f64, f64),
}

impl Mix {
    /// Parts with their shares, which add up to 1. Parts are in the order of their values, and overlap at most at their
    /// ends.
    pub fn of(parts: &[(f64, DistributionPart)]) -> Self {
        Self { parts: parts.to_vec() }
    }

    /// Response times of a stalling server that receives requests uniformly over its period (see
    /// [`crate::Model::Stall`]), where a service is shorter than the time between stalls. A request that arrives during
    /// a stall waits for the rest of it; one that arrives less than a service time before a stall waits for all of it.
    pub fn stall(service_ns: u64, period_ns: u64, stall_ns: u64) -> Self {
        let (service, period, stall) = (service_ns as f64, period_ns as f64, stall_ns as f64);
        Self::of(&[
            ((period - stall - service) / period, DistributionPart::At(service)),
            (stall / period, DistributionPart::Between(service, service + stall)),
            (service / period, DistributionPart::At(service + stall)),
        ])
    }

    /// The value that a share `q` of all does not exceed.
    pub fn quantile(&self, q: f64) -> f64 {
        let mut left = q;
        for &(share, part) in &self.parts {
            // Shares of a tenth do not add up to one in floating point; a hair must not decide.
            if left <= share + 1e-9 {
                return match part {
                    DistributionPart::At(value) => value,
                    DistributionPart::Between(low, high) => low + (high - low) * (left / share).clamp(0.0, 1.0),
                };
            }
            left -= share;
        }
        match self.parts.last() {
            Some((_, DistributionPart::At(value) | DistributionPart::Between(_, value))) => *value,
            None => f64::NAN,
        }
    }
}

/// The share of waits of at most `wait` in an M/D/1 queue with a service time of 1 and `load` arrivals per unit of time
/// on average (Erlang, 1909): (1-ρ)·Σ (ρ(k-w))ᵏ/k!·e^(-ρ(k-w)), for k from 0 to the whole part of w.
pub fn md1_wait_share(load: f64, wait: f64) -> f64 {
    let mut sum = 0.0;
    let mut k = 0.0;
    while k <= wait {
        let x = load * (k - wait);
        // |x|ᵏ/k! by logarithms: both are too large alone. The signs take turns.
        let factors: f64 = (1..=k as u32).map(|i| (x.abs() / f64::from(i)).ln()).sum();
        let sign = if (k as u32).is_multiple_of(2) { 1.0 } else { -1.0 };
        sum += if k == 0.0 { (-x).exp() } else { sign * (factors - x).exp() };
        k += 1.0;
    }
    (1.0 - load) * sum
}

/// The response time that a share `q` of requests to an M/D/1 queue does not exceed, in nanoseconds.
pub fn md1_quantile(load: f64, service_ns: u64, q: f64) -> f64 {
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if md1_wait_share(load, middle) < q { low = middle } else { high = middle }
    }
    (1.0 + high) * service_ns as f64
}

#[cfg(test)]
mod tests {
    use super::{DistributionPart, Mix, md1_quantile, md1_wait_share};

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 1e-9 * expected.abs().max(1.0)
    }

    #[test]
    fn quantiles_of_mixtures() {
        let mix = Mix::of(&[
            (0.5, DistributionPart::At(1.0)),
            (0.4, DistributionPart::Between(1.0, 5.0)),
            (0.1, DistributionPart::At(7.0)),
        ]);
        for (q, value) in [(0.0, 1.0), (0.5, 1.0), (0.6, 2.0), (0.9, 5.0), (0.91, 7.0), (1.0, 7.0)] {
            assert!(near(mix.quantile(q), value), "{q}: {}", mix.quantile(q));
        }
        // Two seconds of work, one of stall: a third of all waits, and of those each part of a second as many.
        let stall = Mix::stall(1_000_000, 3_000_000_000, 1_000_000_000);
        assert!(near(stall.quantile(0.5), 1e6));
        assert!((stall.quantile(0.9) / 0.702e9 - 1.0).abs() < 1e-3, "{}", stall.quantile(0.9));
        assert!(near(stall.quantile(1.0), 1.001e9));
    }

    #[test]
    fn erlangs_queue_is_that_of_his_tables() {
        // Nobody waits with the share of time in which nobody is served; the mean wait is ρ/(2(1-ρ)).
        for load in [0.2, 0.5, 0.7] {
            assert!(near(md1_wait_share(load, 0.0), 1.0 - load));
            let step = 0.001;
            let mean: f64 = (0..20_000).map(|i| (1.0 - md1_wait_share(load, f64::from(i) * step)) * step).sum();
            assert!((mean / (load / (2.0 * (1.0 - load))) - 1.0).abs() < 2e-3, "{load}: {mean}");
        }
        assert!(near(md1_quantile(0.5, 1_000_000, 0.3), 1e6));
    }
}
