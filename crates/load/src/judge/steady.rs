//! When a run has become steady: MSER-5, and a search for changes of level.
//!
//! MSER-5 (White, Cobb and Spratt, 2000) cuts off the beginning that makes the mean of the rest least certain, in batches
//! of five. It always finds something to keep, so what is kept must also stand up to a search for a change of level: a
//! warm-up that ends in steps, a leak, a slow drift all leave one. Where nothing stands up, there is no steady state, which
//! is an outcome and not a failure of the method (Barrett et al., OOPSLA 2017).

use super::batches::Batches;
use serde::{Deserialize, Serialize};

/// Fewest batches that can be judged. A guess: in fewer, a slow warm-up cannot be told from chance.
pub const BATCHES_MIN: usize = 30;

/// Batches in one of MSER-5's.
const GROUP: usize = 5;

/// Smallest change of level, as a share of the mean, that is one: what varies less than this is steady enough for any use.
const CHANGE_SHARE_MIN: f64 = 0.05;

/// Smallest change in units of its standard error. The largest of many candidates is judged, so two would be too few: at
/// 4, a steady series of a hundred batches is taken for a changing one about once in a hundred.
const CHANGE_ERRORS_MIN: f64 = 4.0;

/// A change is looked for no nearer to the ends than this many batches.
const EDGE: usize = 4;

/// What a series of batch means says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steady {
    /// Too few batches to tell.
    TooShort,
    /// Steady from this batch on, which lies in the first half.
    From(usize),
    /// Not steady: its second half still changes.
    Never,
}

/// Judges a whole series of batch means (of service times, of rates): each batch of equal length in time.
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

/// The batch from which on the mean of the rest is most certain: its variance over its number is least. It lies in the first
/// half: what is left must be the larger part, and few batches are alike by chance.
fn mser5(batches: &[f64]) -> usize {
    let groups: Vec<f64> = batches.chunks_exact(GROUP).map(|group| group.iter().sum::<f64>() / GROUP as f64).collect();
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    // From the end, so that each candidate adds one group.
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

/// Where the level changes most, if it changes: the first batch of the new level.
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
        // The difference in units of its standard error, but for the batches' own deviation.
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

/// Standard deviation of batches about the two levels, or about a line where that is nearer, so that a drift does not hide
/// behind its own slope. Larger where neighbours are alike: a queue's batches wander without having changed.
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

/// Sum of squares of differences, and of the products of neighbours.
fn scatter(count: usize, difference: impl Fn(usize) -> f64) -> (f64, f64) {
    let squares = (0..count).map(|at| difference(at).powi(2)).sum();
    (squares, (1..count).map(|at| difference(at) * difference(at - 1)).sum())
}

/// Watches a warm-up as it goes: means of batches of a tenth of a second or so are pushed, and it says when the run is
/// warm.
#[derive(Clone, Debug)]
pub struct Watch {
    batches: Batches,
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch {
    /// A watch that has seen nothing.
    pub const fn new() -> Self {
        Self { batches: Batches::new() }
    }

    /// The mean of one more batch; true when the run is steady now.
    pub fn push(&mut self, mean: f64) -> bool {
        self.batches.push(mean);
        matches!(self.outcome(), Steady::From(_))
    }

    /// What the batches so far say.
    pub fn outcome(&self) -> Steady {
        judge(self.batches.means())
    }
}

#[cfg(test)]
mod tests;
