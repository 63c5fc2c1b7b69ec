//! The normal distribution and Student's t-distribution.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, TAU};

/// Degrees of freedom above this are treated as this number: beyond it, quantiles differ from those of the normal
/// distribution by less than 0.1 %.
const FREEDOM_MAX: u32 = 2000;

/// Returns the probability of at most `x` in the standard normal distribution, to about 15 decimals (Marsaglia,
/// "Evaluating the Normal Distribution", 2004).
pub fn normal_probability(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 8.0 {
        return if x > 0.0 { 1.0 } else { 0.0 };
    }
    // Sum the series of Φ(x)/φ(x) about 0: x + x³/3 + x⁵/15 + …
    let (mut term, mut sum, mut divisor) = (x, x, 1.0);
    loop {
        divisor += 2.0;
        term *= x * x / divisor;
        let next = sum + term;
        if next.total_cmp(&sum).is_eq() {
            return 0.5 + sum * (-x * x / 2.0).exp() / TAU.sqrt();
        }
        sum = next;
    }
}

/// Returns the probability that Student's t with this many degrees of freedom (0 counts as 1) lies between `-t` and `t`
/// (Abramowitz and Stegun, 26.7.3 and 26.7.4).
pub fn student_within(t: f64, freedom: u32) -> f64 {
    let freedom = freedom.clamp(1, FREEDOM_MAX);
    let theta = if t.is_infinite() { FRAC_PI_2 } else { (t.abs() / f64::from(freedom).sqrt()).atan() };
    let (sin, cos) = theta.sin_cos();
    if freedom == 1 {
        return theta * FRAC_2_PI;
    }
    // The terms grow from 1, or from cos θ, by (k - 1)/k · cos² θ.
    let first = freedom % 2;
    let mut term = if first == 0 { 1.0 } else { cos };
    let mut sum = term;
    let mut k = 2 + first;
    while k < freedom {
        term *= f64::from(k - 1) / f64::from(k) * cos * cos;
        sum += term;
        k += 2;
    }
    if first == 0 { sin * sum } else { (theta + sin * sum) * FRAC_2_PI }
}

/// Returns the `t` for which Student's t lies between `-t` and `t` with probability `level` (0 to 1).
pub fn student_quantile(level: f64, freedom: u32) -> f64 {
    if level.is_nan() || level >= 1.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while student_within(high, freedom) < level && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if student_within(middle, freedom) < level { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::{normal_probability, student_quantile, student_within};

    #[test]
    fn the_normal_distribution_is_that_of_tables() {
        for (x, probability) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (-1.959_963_984_540_054, 0.025),
            (3.0, 0.998_650_101_968_370),
            (-5.0, 2.866_515_719e-7),
            (9.0, 1.0),
            (-9.0, 0.0),
        ] {
            assert!((normal_probability(x) - probability).abs() < 1e-14, "{x}");
        }
    }

    #[test]
    fn students_quantiles_are_those_of_tables() {
        for (level, freedom, t) in [
            (0.95, 1, 12.706_205),
            (0.95, 2, 4.302_653),
            (0.95, 3, 3.182_446),
            (0.95, 9, 2.262_157),
            (0.95, 10, 2.228_139),
            (0.99, 5, 4.032_143),
            (0.99, 30, 2.749_996),
            (0.95, 120, 1.979_930),
            (0.95, u32::MAX, 1.961_151),
        ] {
            assert!((student_quantile(level, freedom) - t).abs() < 2e-6, "{level} {freedom}");
        }
        assert!(student_quantile(1.0, 5).is_infinite());
        assert!(student_quantile(0.0, 5) < 1e-9);
        assert!((student_within(f64::INFINITY, 4) - 1.0).abs() < 1e-12);
    }
}
