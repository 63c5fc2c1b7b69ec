//! Figures of two servers, pair by pair.
//!
//! In each repetition servers take turns, so that drift of the machine affects both of a pair: their ratio is more
//! precise than that of two medians, which may be from different times.

use crate::document::Cell;
use flatout_lab::spread::Spread;
use flatout_load::stats::Interval;
use flatout_load::stats::bootstrap::Bootstrap;

/// The bootstrap draws the same resamples each time a report is written.
pub(crate) const SEED: u64 = 1;

/// Values of one measure in both cells, repetition by repetition: those that both have.
pub(crate) fn pairs(one: &Cell, other: &Cell, measure: &str) -> Vec<(f64, f64)> {
    let (one, other) = (by_repetition(one, measure), by_repetition(other, measure));
    let of = |(repetition, value): &(u32, f64)| {
        other.iter().find(|(also, _)| also == repetition).map(|(_, theirs)| (*value, *theirs))
    };
    one.iter().filter_map(of).collect()
}

/// The median of the pairs' ratios and what it may be: the 95 % confidence interval, or with fewer than
/// [`BLOCKS_MIN`](flatout_load::stats::bootstrap::BLOCKS_MIN) pairs their least and greatest ratio. `None` where fewer
/// than two repetitions, or fewer than half of them, have both.
pub(crate) fn ratio(one: &Cell, other: &Cell, measure: &str) -> Option<Interval> {
    let pairs = pairs(one, other, measure);
    let ratios: Spread = pairs.iter().map(|(ours, theirs)| ours / theirs).collect();
    let (known, repetitions) = (ratios.readings().len(), one.runs.len().max(other.runs.len()));
    if known < 2 || known * 2 < repetitions {
        return None;
    }
    let theirs_first: Vec<(f64, f64)> = pairs.iter().map(|(ours, theirs)| (*theirs, *ours)).collect();
    let estimate = ratios.median();
    Some(match Bootstrap::new(SEED).ratio(&theirs_first) {
        // The bootstrap's own estimate is the ratio of the sums, which single slow turns move more.
        Some(by_sums) => Interval { estimate, low: by_sums.low.min(estimate), high: by_sums.high.max(estimate) },
        None => Interval { estimate, low: ratios.min(), high: ratios.max() },
    })
}

fn by_repetition(cell: &Cell, measure: &str) -> Vec<(u32, f64)> {
    let Some(figure) = cell.figure(measure) else { return Vec::new() };
    let mut repetitions = figure.repetitions.clone();
    // A result without them tells which run a value is of where every run has one.
    if repetitions.is_empty() && figure.values.len() == cell.runs.len() {
        repetitions = cell.runs.iter().map(|run| run.repetition).collect();
    }
    repetitions.into_iter().zip(figure.values.iter().copied()).collect()
}
