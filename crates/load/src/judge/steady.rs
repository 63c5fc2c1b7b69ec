//! Detection of steady state: MSER-5, and a search for level changes.
//!
//! MSER-5 (White, Cobb and Spratt, 2000) groups the batches in fives and truncates the beginning so that the standard
//! error of the remaining mean is minimal. It always retains something, so the remainder must also pass a search for a
//! level change, which a stepwise warm-up, a leak or a slow drift would cause. If no remainder passes, there is no
//! steady state. That is a finding about the server, not a failure of the method (Barrett et al., OOPSLA 2017).

use super::batches::Batches;
use serde::{Deserialize, Serialize};

/// Minimum number of batches for a judgement. A guess: with fewer, a slow warm-up looks the same as chance.
pub const BATCHES_MIN: usize = 30;

/// Number of batches per group in MSER-5.
const GROUP: usize = 5;

/// Smallest level change that counts, as a share of the mean; smaller variation is steady enough for any use.
const CHANGE_SHARE_MIN: f64 = 0.05;

/// Smallest level change that counts, in standard errors. The largest of many candidates is tested, so 2 would be too
/// small; at 4, about one in a hundred steady series of a hundred batches is rejected.
const CHANGE_ERRORS_MIN: f64 = 4.0;

/// Minimum distance of a level change from either end, in batches.
const EDGE: usize = 4;

/// The judgement of a series of batch means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steady {
    /// There are too few batches to judge.
    TooShort,
    /// The series is steady from the batch with this index, which is in the first half.
    From(usize),
    /// The series is not steady: its second half still changes.
    Never,
}

/// Judges a complete series of means of equally long batches. The means may be service times or rates.
pub fn judge(batches: &[f64]) -> Steady {
    if batches.len() < BATCHES_MIN {
        return Steady::TooShort;
    }
    let latest = batches.len() / 2;
    let mut from = mser5(batches);
    while from <= latest {
        match change_of_level(&batches[from..]) {
            None => return Steady::From(from),
            Some(index) => from += index,
        }
    }
    Steady::Never
}

/// Returns the truncation point that minimises the variance of the remainder divided by its length. The point lies in
/// the first half, because the remainder must be the larger part, and a few batches may be similar by chance.
fn mser5(batches: &[f64]) -> usize {
    let groups: Vec<f64> = batches.chunks_exact(GROUP).map(|group| group.iter().sum::<f64>() / GROUP as f64).collect();
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    // Iterate backwards, so that each candidate adds one group.
    for (index, group) in groups.iter().enumerate().rev() {
        sum += group;
        squares += group * group;
        let count = (groups.len() - index) as f64;
        let spread = (squares - sum * sum / count).max(0.0) / (count * count);
        if index * GROUP <= batches.len() / 2 && spread <= best.0 {
            best = (spread, index);
        }
    }
    best.1 * GROUP
}

/// Returns the index at which the largest level change starts, or `None` if no change is significant.
fn change_of_level(batches: &[f64]) -> Option<usize> {
    let count = batches.len();
    if count < 2 * EDGE + 2 {
        return None;
    }
    let mean = batches.iter().sum::<f64>() / count as f64;
    let total: f64 = batches.iter().sum();
    let mut before = 0.0;
    let mut best: Option<(f64, usize)> = None;
    for index in 1..count {
        before += batches[index - 1];
        if index < EDGE || index > count - EDGE {
            continue;
        }
        let (left, right) = (before / index as f64, (total - before) / (count - index) as f64);
        // This is the difference in standard errors, except for the factor of the batches' standard deviation.
        let weight = (index as f64 * (count - index) as f64 / count as f64).sqrt();
        let size = (left - right).abs() * weight;
        if best.is_none_or(|(known, _)| size > known) {
            best = Some((size, index));
        }
    }
    let (size, index) = best?;
    let level = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (left, right) = (level(&batches[..index]), level(&batches[index..]));
    let deviation = deviation_within(batches, index, left, right);
    let is_large = (left - right).abs() > CHANGE_SHARE_MIN * mean.abs();
    (is_large && size > CHANGE_ERRORS_MIN * deviation).then_some(index)
}

/// Returns the standard deviation of batches about the two levels, or about a straight line if that fits better, so
/// that the slope of a drift does not hide the drift. The result is scaled up by autocorrelation, because batches of a
/// queue wander even without a level change.
fn deviation_within(batches: &[f64], index: usize, left: f64, right: f64) -> f64 {
    let count = batches.len() as f64;
    let (middle, mean) = ((count - 1.0) / 2.0, batches.iter().sum::<f64>() / count);
    let products = batches.iter().enumerate().map(|(at, batch)| (at as f64 - middle) * (batch - mean)).sum::<f64>();
    let slope = products * 12.0 / (count * (count * count - 1.0));
    let about_levels = |at: usize| batches[at] - if at < index { left } else { right };
    let about_line = |at: usize| batches[at] - mean - slope * (at as f64 - middle);
    let levels = scatter(batches.len(), about_levels);
    let line = scatter(batches.len(), about_line);
    let (squares, products) = if line.0 < levels.0 { line } else { levels };
    if squares <= 0.0 {
        return 0.0;
    }
    let alike = (products / squares).clamp(0.0, 0.8);
    (squares / count).sqrt() * ((1.0 + alike) / (1.0 - alike)).sqrt()
}

/// Returns the sum of squared differences, and the sum of products of adjacent differences.
fn scatter(count: usize, difference: impl Fn(usize) -> f64) -> (f64, f64) {
    let squares = (0..count).map(|at| difference(at).powi(2)).sum();
    (squares, (1..count).map(|at| difference(at) * difference(at - 1)).sum())
}

/// Online detector of the end of warm-up, from batch means. Each batch lasts about a tenth of a second.
#[derive(Clone, Debug)]
pub struct WarmupDetector {
    batches: Batches,
}

impl Default for WarmupDetector {
    fn default() -> Self {
        Self::new()
    }
}

impl WarmupDetector {
    /// Creates a detector without batches.
    pub const fn new() -> Self {
        Self { batches: Batches::new() }
    }

    /// Adds the mean of one more batch. Returns true if the run is steady now.
    pub fn push(&mut self, mean: f64) -> bool {
        self.batches.push(mean);
        matches!(self.outcome(), Steady::From(_))
    }

    /// Returns the judgement of the batches so far.
    pub fn outcome(&self) -> Steady {
        judge(self.batches.means())
    }
}

#[cfg(test)]
mod tests;
