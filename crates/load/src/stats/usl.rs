//! Universal Scalability Law: rate as a function of concurrency.
//!
//! X(N) = γ·N / (1 + α·(N-1) + β·N·(N-1)), where N is the number of connections or cores, γ is the rate at N = 1, α is
//! the share of work that must queue, and β is the cost of coordination, which makes the rate fall again beyond N* =
//! √((1-α)/β) (Gunther, *Guerrilla Capacity Planning*, 2007). N is the number in a closed loop without think time.
//!
//! The fit minimises the squares of ln X - ln X(N), because rates vary by percentages and not by a number of requests.
//! It takes Gauss-Newton steps from the linear fit of N/X. Confidence intervals come from the curvature at the minimum
//! and Student's distribution with n-3 degrees of freedom; the interval of the peak comes from the delta method on a
//! logarithm. They are only as good as the model: if the residuals have a pattern, the model does not fit this server.

use super::Interval;
use super::quantile::student_quantile;
use serde::{Deserialize, Serialize};

/// Minimum number of distinct values of N for a fit.
pub const POINTS_MIN: usize = 6;

/// Maximum number of Gauss-Newton steps. About five suffice from the linear fit.
const STEPS_MAX: usize = 200;

/// A fitted law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// γ, the rate at N = 1.
    pub gamma: Interval,
    /// α, contention. If it is below 0, the rate grows faster than N, because of caches or measurement errors.
    pub alpha: Interval,
    /// β, coherence: 0 or more.
    pub beta: Interval,
    /// N*, the N with the highest rate; `None` if the interval of β includes 0, so that no peak is shown.
    pub peak: Option<Interval>,
    /// The rate at N*, if known.
    pub peak_rate: Option<f64>,
    /// Standard deviation of the residuals, as a share of the rate.
    pub residual_share: f64,
    /// Share of the variance of ln X that the law explains; at most 1.
    pub explained: f64,
    /// Confidence level of the intervals, 0 to 1.
    pub level: f64,
}

/// The reason the law cannot be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum UslRefusal {
    /// There are too few distinct values of N. Contains their number, which is below [`POINTS_MIN`].
    #[error("{0} points are too few for a scalability law; measure {POINTS_MIN} or more")]
    TooFewPoints(usize),
    /// A rate or a value of N is 0, negative or not a number.
    #[error("a scalability law needs rates and connection counts above 0")]
    NotARate,
    /// The best β, which the variant contains, is below 0: the sweep bends upwards at its end, so it does not show a
    /// peak.
    #[error(
        "the rate neither falls nor levels off as the law predicts (β would be {0:.2e}); measure with more connections"
    )]
    NegativeBeta(f64),
    /// No minimum was found.
    #[error("no scalability law fits these points")]
    NoMinimum,
}

impl UslRefusal {
    /// Returns the stable name of the reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooFewPoints(_) => "too-few-points",
            Self::NotARate => "not-a-rate",
            Self::NegativeBeta(_) => "negative-beta",
            Self::NoMinimum => "no-minimum",
        }
    }
}

impl Usl {
    /// Fits the law to pairs of N and rate. Several pairs may have the same N.
    ///
    /// # Errors
    /// Returns the reason if the law cannot be fitted.
    pub fn fit(points: &[(f64, f64)], level: f64) -> Result<Self, UslRefusal> {
        if points.iter().any(|(n, rate)| !(n.is_finite() && rate.is_finite() && *n > 0.0 && *rate > 0.0)) {
            return Err(UslRefusal::NotARate);
        }
        let mut numbers: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        numbers.dedup();
        if numbers.len() < POINTS_MIN {
            return Err(UslRefusal::TooFewPoints(numbers.len()));
        }
        let start = linear_fit(points).ok_or(UslRefusal::NoMinimum)?;
        let (parameters, normal) = descend(points, start).ok_or(UslRefusal::NoMinimum)?;
        let [ln_gamma, alpha, beta] = parameters;
        if beta < 0.0 {
            return Err(UslRefusal::NegativeBeta(beta));
        }
        let freedom = points.len() - 3;
        let squares = squares_of(points, parameters).ok_or(UslRefusal::NoMinimum)?;
        let variance = squares / freedom as f64;
        let covariance = inverse(normal).ok_or(UslRefusal::NoMinimum)?.map(|row| row.map(|cell| cell * variance));
        let t = student_quantile(level, freedom as u32);
        let half = |index: usize| t * covariance[index][index].max(0.0).sqrt();
        let about = |value: f64, half: f64| Interval { estimate: value, low: value - half, high: value + half };
        let beta_interval = about(beta, half(2));
        let peak = (beta_interval.low > 0.0 && alpha < 1.0).then(|| {
            // ln N* = (ln(1 - α) - ln β) / 2
            let (by_alpha, by_beta) = (-0.5 / (1.0 - alpha), -0.5 / beta);
            let variance = by_alpha * by_alpha * covariance[1][1]
                + 2.0 * by_alpha * by_beta * covariance[1][2]
                + by_beta * by_beta * covariance[2][2];
            let ln_peak = 0.5 * ((1.0 - alpha) / beta).ln();
            about(ln_peak, t * variance.max(0.0).sqrt()).map(f64::exp)
        });
        let law = |n: f64| ln_gamma.exp() * n / (1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0));
        let mean = points.iter().map(|(_, rate)| rate.ln()).sum::<f64>() / points.len() as f64;
        let spread: f64 = points.iter().map(|(_, rate)| (rate.ln() - mean).powi(2)).sum();
        let (gamma, alpha) = (about(ln_gamma, half(0)).map(f64::exp), about(alpha, half(1)));
        if ![Some(gamma), Some(alpha), Some(beta_interval), peak].iter().flatten().all(Interval::is_finite) {
            return Err(UslRefusal::NoMinimum);
        }
        Ok(Self {
            gamma,
            alpha,
            beta: beta_interval,
            peak,
            peak_rate: peak.map(|peak| law(peak.estimate)),
            residual_share: variance.sqrt(),
            explained: if spread > 0.0 { 1.0 - squares / spread } else { 0.0 },
            level,
        })
    }

    /// Returns the rate at N according to the law.
    pub fn rate(&self, n: f64) -> f64 {
        let denominator = 1.0 + self.alpha.estimate * (n - 1.0) + self.beta.estimate * n * (n - 1.0);
        self.gamma.estimate * n / denominator
    }
}

/// The parameters ln γ, α and β.
type Parameters = [f64; 3];

type Matrix = [[f64; 3]; 3];

/// Returns the least-squares fit of N/X = (1 + α(N-1) + βN(N-1))/γ, weighted so that relative errors count.
fn linear_fit(points: &[(f64, f64)]) -> Option<Parameters> {
    let mut normal: Matrix = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for &(n, rate) in points {
        let weight = rate / n;
        let row = [1.0, n - 1.0, n * (n - 1.0)].map(|cell| cell * weight);
        add_row(&mut normal, &mut right, row, 1.0);
    }
    let [one, a, b] = solve(normal, right)?;
    (one > 0.0).then(|| [-one.ln(), a / one, b / one])
}

/// Descends to the minimum. Returns the minimum and the curvature matrix.
fn descend(points: &[(f64, f64)], start: Parameters) -> Option<(Parameters, Matrix)> {
    let mut at = start;
    // A negative denominator has no logarithm; if there is one at some point, start without coherence.
    let mut squares = squares_of(points, at).or_else(|| {
        at = [start[0], start[1].clamp(0.0, 1.0), 0.0];
        squares_of(points, at)
    })?;
    for _ in 0..STEPS_MAX {
        let (normal, right) = normal_equations(points, at);
        let step = solve(normal, right)?;
        let mut length = 1.0;
        let next = loop {
            let next = [at[0] + length * step[0], at[1] + length * step[1], at[2] + length * step[2]];
            match squares_of(points, next) {
                Some(next_squares) if next_squares <= squares => break Some((next, next_squares)),
                _ if length < 1e-9 => break None,
                _ => length /= 2.0,
            }
        };
        let Some((next, next_squares)) = next else { return Some((at, normal)) };
        let is_done = squares - next_squares <= 1e-14 * squares || squares < 1e-24;
        (at, squares) = (next, next_squares);
        if is_done {
            return Some((at, normal_equations(points, at).0));
        }
    }
    None
}

/// Returns the sum of squares of ln X - ln X(N); `None` if the law has no positive rate at some point.
fn squares_of(points: &[(f64, f64)], parameters: Parameters) -> Option<f64> {
    let mut sum = 0.0;
    for &(n, rate) in points {
        let denominator = denominator(n, parameters);
        if denominator <= 0.0 {
            return None;
        }
        sum += (rate.ln() - parameters[0] - n.ln() + denominator.ln()).powi(2);
    }
    sum.is_finite().then_some(sum)
}

fn denominator(n: f64, [_, alpha, beta]: Parameters) -> f64 {
    1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0)
}

fn normal_equations(points: &[(f64, f64)], at: Parameters) -> (Matrix, [f64; 3]) {
    let mut normal: Matrix = [[0.0; 3]; 3];
    let mut right = [0.0; 3];
    for &(n, rate) in points {
        let denominator = denominator(n, at);
        // Derivatives of ln X(N) with respect to ln γ, α and β.
        let row = [1.0, -(n - 1.0) / denominator, -n * (n - 1.0) / denominator];
        let residual = rate.ln() - at[0] - n.ln() + denominator.ln();
        add_row(&mut normal, &mut right, row, residual);
    }
    (normal, right)
}

fn add_row(normal: &mut Matrix, right: &mut [f64; 3], row: [f64; 3], value: f64) {
    for (i, one) in row.iter().enumerate() {
        right[i] += one * value;
        for (j, other) in row.iter().enumerate() {
            normal[i][j] += one * other;
        }
    }
}

fn solve(matrix: Matrix, right: [f64; 3]) -> Option<[f64; 3]> {
    let inverse = inverse(matrix)?;
    Some(inverse.map(|row| row.iter().zip(right).map(|(cell, value)| cell * value).sum()))
}

/// Returns the inverse of a symmetric matrix. The matrix is first scaled to a diagonal of 1, because β's column is
/// larger than γ's by N².
fn inverse(matrix: Matrix) -> Option<Matrix> {
    let scale: [f64; 3] = std::array::from_fn(|i| matrix[i][i].sqrt());
    if scale.iter().any(|scale| !(scale.is_finite() && *scale > 0.0)) {
        return None;
    }
    let m: Matrix = std::array::from_fn(|i| std::array::from_fn(|j| matrix[i][j] / scale[i] / scale[j]));
    let minor = |i: usize, j: usize| {
        let (r, c) = ([(i + 1) % 3, (i + 2) % 3], [(j + 1) % 3, (j + 2) % 3]);
        m[r[0]][c[0]] * m[r[1]][c[1]] - m[r[0]][c[1]] * m[r[1]][c[0]]
    };
    let determinant: f64 = (0..3).map(|j| m[0][j] * minor(0, j)).sum();
    if determinant.is_nan() || determinant.abs() < 1e-13 {
        return None;
    }
    Some(std::array::from_fn(|i| std::array::from_fn(|j| minor(j, i) / determinant / scale[i] / scale[j])))
}

#[cfg(test)]
mod tests {
    use super::{POINTS_MIN, Usl, UslRefusal};
    use crate::random::Random;

    const SWEEP: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

    fn law(n: f64, gamma: f64, alpha: f64, beta: f64) -> f64 {
        gamma * n / (1.0 + alpha * (n - 1.0) + beta * n * (n - 1.0))
    }

    #[test]
    fn exact_points_give_the_exact_law() {
        for (gamma, alpha, beta) in [(1000.0, 0.05, 1e-4), (7.5, 0.5, 1e-2), (2e5, 0.001, 1e-6), (300.0, 0.0, 1e-3)] {
            let points = SWEEP.map(|n| (n, law(n, gamma, alpha, beta)));
            let fit = Usl::fit(&points, 0.95).unwrap();
            assert!((fit.gamma.estimate / gamma - 1.0).abs() < 1e-6, "{fit:?}");
            assert!((fit.alpha.estimate - alpha).abs() < 1e-6, "{fit:?}");
            assert!((fit.beta.estimate / beta - 1.0).abs() < 1e-4, "{fit:?}");
            let peak: f64 = f64::sqrt((1.0 - alpha) / beta);
            assert!((fit.peak.unwrap().estimate / peak - 1.0).abs() < 1e-3, "{fit:?}");
            assert!((fit.rate(64.0) / law(64.0, gamma, alpha, beta) - 1.0).abs() < 1e-6);
            assert!(fit.explained > 0.999_999 && fit.residual_share < 1e-6);
        }
    }

    #[test]
    fn intervals_cover_the_truth_under_noise() {
        let (gamma, alpha, beta) = (1500.0, 0.03, 2e-4);
        let peak: f64 = f64::sqrt((1.0 - alpha) / beta);
        let (mut gammas, mut alphas, mut betas, mut peaks) = (0, 0, 0, 0);
        let trials = 1000;
        for trial in 0..trials {
            let mut random = Random::stream(5, 0, trial);
            let points = SWEEP.map(|n| (n, law(n, gamma, alpha, beta) * (0.03 * random.next_normal()).exp()));
            let fit = Usl::fit(&points, 0.95).unwrap();
            gammas += u32::from(fit.gamma.contains(gamma));
            alphas += u32::from(fit.alpha.contains(alpha));
            betas += u32::from(fit.beta.contains(beta));
            peaks += u32::from(fit.peak.unwrap().contains(peak));
        }
        for covered in [gammas, alphas, betas, peaks] {
            assert!((925..=975).contains(&covered), "{gammas} {alphas} {betas} {peaks} of {trials}");
        }
    }

    #[test]
    fn what_says_nothing_is_refused() {
        let points = |count: usize| SWEEP[..count].iter().map(|&n| (n, law(n, 10.0, 0.1, 1e-3))).collect::<Vec<_>>();
        assert_eq!(Usl::fit(&points(POINTS_MIN - 1), 0.95), Err(UslRefusal::TooFewPoints(5)));
        assert!(Usl::fit(&points(POINTS_MIN), 0.95).is_ok());
        // The same N, however often it occurs, is one point.
        assert_eq!(Usl::fit(&[(4.0, 10.0); 20], 0.95), Err(UslRefusal::TooFewPoints(1)));
        for bad in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)] {
            let mut points = points(8);
            points[3] = bad;
            assert_eq!(Usl::fit(&points, 0.95), Err(UslRefusal::NotARate));
        }
        // The rate bends upwards.
        let bent = SWEEP.map(|n| (n, law(n, 10.0, 0.2, -1e-4)));
        assert!(matches!(Usl::fit(&bent, 0.95), Err(UslRefusal::NegativeBeta(beta)) if beta < 0.0));
        assert_eq!(UslRefusal::NegativeBeta(-1.0).name(), "negative-beta");
    }

    #[test]
    fn a_peak_is_told_only_where_one_is_shown() {
        let mut random = Random::new(3);
        // With contention alone, the rate levels off: β is 0 within the noise, and no peak can be reported with
        // confidence.
        let mut told = 0;
        for _ in 0..200 {
            let points = SWEEP.map(|n| (n, law(n, 100.0, 0.1, 0.0) * (0.02 * random.next_normal()).exp()));
            told += u32::from(Usl::fit(&points, 0.95).is_ok_and(|fit| fit.peak.is_some()));
        }
        // One end of a 95 % interval: 2.5 % of the time.
        assert!(told <= 13, "{told} of 200");
    }

    #[test]
    fn hostile_points_do_no_harm() {
        let mut random = Random::new(9);
        let mut fitted = 0;
        for _ in 0..2000 {
            let points: Vec<_> = (0..8)
                .map(|_| {
                    let exponent = |random: &mut Random| 10_f64.powi(random.below(60) as i32 - 30);
                    (exponent(&mut random), exponent(&mut random) * random.next_exp())
                })
                .collect();
            if let Ok(fit) = Usl::fit(&points, 0.95) {
                fitted += 1;
                assert!([fit.gamma, fit.alpha, fit.beta].iter().all(crate::stats::Interval::is_finite), "{fit:?}");
            }
        }
        assert!(fitted > 0, "every fit was refused");
    }
}
