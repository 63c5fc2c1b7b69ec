//! Detection of steady state: MSER-5, and a search for level changes.
//!
//! MSER-5 (White, Cobb and Spratt, 2000) truncates the beginning so that the standard error of the remaining mean is
//! minimal, in batches of five. It always retains something, so the rest must also pass a search for a level change: a
//! stepwise warm-up, a leak or a slow drift all cause one. If no rest passes, there is no steady state, which is a
//! result and not a failure of the method (Barrett et al., OOPSLA 2017).

use super::batches::Batches;
use serde::{Deserialize, Serialize};

/// Minimum batches for a judgement. A guess: with fewer, a slow warm-up is indistinguishable from chance.
pub const BATCHES_MIN: usize = 30;

/// Batches per group of MSER-5.
const GROUP: usize = 5;

/// Minimum level change, as a share of the mean: smaller variation is steady enough for any use.
const CHANGE_SHARE_MIN: f64 = 0.05;

/// Minimum level change in standard errors. As the largest of many candidates is tested, 2 would be too small: at 4,
/// about one in a hundred steady series of a hundred batches is rejected.
const CHANGE_ERRORS_MIN: f64 = 4.0;

/// Minimum distance of a level change from either end, in batches.
const EDGE: usize = 4;

/// Judgement of a series of batch means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steady {
    /// Too few batches.
    TooShort,
    /// Steady from this batch on, which is in the first half.
    From(usize),
    /// Not steady: the second half still changes.
    Never,
}

/// Judges a complete series of means (service times or rates) of equally long batches.
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

/// The truncation point that minimises the variance of the rest divided by its length. It lies in the first half: the
/// rest must be the larger part, and a few batches may be similar by chance.
fn mser5(batches: &[f64]) -> usize {
    let groups: Vec<f64> = batches.chunks_exact(GROUP).map(|group| group.iter().sum::<f64>() / GROUP as f64).collect();
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    // Backwards, so that each candidate adds one group.
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

/// The largest level change, if there is one: index of the first batch of the new level.
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
        // The difference in standard errors, except for the factor of the batches' standard deviation.
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

/// Standard deviation of batches about the two levels, or about a line if that fits better, so that the slope of a
/// drift does not mask it. Scaled up by autocorrelation: batches of a queue wander without a level change.
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

/// Sum of squared differences, and of products of adjacent ones.
fn scatter(count: usize, difference: impl Fn(usize) -> f64) -> (f64, f64) {
    let squares = (0..count).map(|at| difference(at).powi(2)).sum();
    (squares, (1..count).map(|at| difference(at) * difference(at - 1)).sum())
}

/// Online detection of the end of warm-up from batch means, each of about a tenth of a second.
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
    /// An empty watch.
    pub const fn new() -> Self {
        Self { batches: Batches::new() }
    }

    /// Adds the mean of one more batch; returns true if the run is steady now.
    pub fn push(&mut self, mean: f64) -> bool {
        self.batches.push(mean);
        matches!(self.outcome(), Steady::From(_))
    }

    /// Judgement of the batches so far.
    pub fn outcome(&self) -> Steady {
        judge(self.batches.means())
    }
}

#[cfg(test)]
mod tests;
