//! Paired comparison of two servers.
//!
//! Servers take turns within each repetition, so drift of the machine affects both figures of a pair. The median of the
//! pairs' ratios is therefore more precise than the ratio of two medians, which may come from different times.

use crate::document::{Cell, StepEntry};
use crate::measure::Measure;
use flatout_lab::spread::Spread;
use flatout_load::stats::Interval;
use flatout_load::stats::bootstrap::Bootstrap;
use flatout_load::stats::compare::failed_differently;
use flatout_load::stats::responses::{answered_differently, sized_differently};

/// The seed of the bootstrap. It is constant, so that a report always has the same intervals.
pub(crate) const SEED: u64 = 1;

/// Returns why two cells are not compared by a measure: their requests failed in different shares, or two servers
/// responded with different statuses.
pub(crate) fn incomparable(one: &Cell, other: &Cell, measure: &str) -> Option<String> {
    let measure = Measure::parse(measure);
    let failed = || failed_differently((&one.server, failed_share(one)?), (&other.server, failed_share(other)?));
    let depends_on = |of: fn(Measure) -> bool| measure.is_none_or(of);
    let failed = depends_on(Measure::depends_on_failures).then(failed).flatten();
    failed.or_else(|| depends_on(Measure::depends_on_statuses).then(|| answered_otherwise(one, other)).flatten())
}

/// Returns why two servers are not compared by most measures, if the statuses of their responses differ.
fn answered_otherwise(one: &Cell, other: &Cell) -> Option<String> {
    // Two steps with the same server may request different things.
    if one.server == other.server {
        return None;
    }
    answered_differently((&one.server, &one.responses()), (&other.server, &other.responses()))
}

/// Returns a sentence for each server whose responses have other statuses than those of a reference server with the
/// same values, so that they are not compared, or whose responses are of other sizes.
pub(crate) fn other_responses(step: &StepEntry, references: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in step.cells.iter().filter(|cell| references.contains(&cell.server)) {
        let others = step.cells.iter().filter(|cell| cell.server != one.server && cell.values == one.values);
        // Each pair of reference servers is listed once.
        for other in others.filter(|other| !references.contains(&other.server) || one.server < other.server) {
            let line = match answered_otherwise(one, other) {
                Some(why) => Some(format!("{} and {} are not compared, because {why}", one.server, other.server)),
                None => sized_differently((&one.server, &one.responses()), (&other.server, &other.responses())),
            };
            let values: Vec<String> = one.values.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let place = if values.is_empty() { String::new() } else { format!("{}: ", values.join(", ")) };
            lines.extend(line.map(|line| format!("{place}{line}")));
        }
    }
    lines
}

/// Returns the mean share of failed requests over all repetitions, 0 to 1, if it is known.
pub(crate) fn failed_share(cell: &Cell) -> Option<f64> {
    let values = &cell.figure(Measure::ErrorShare.name())?.values;
    Some(values.iter().sum::<f64>() / values.len().max(1) as f64)
}

/// Returns the values of one measure in both cells, for each repetition in which both cells have a value; none if the
/// cells are [`incomparable`].
pub(crate) fn pairs(one: &Cell, other: &Cell, measure: &str) -> Vec<(f64, f64)> {
    if incomparable(one, other, measure).is_some() {
        return Vec::new();
    }
    let (one, other) = (by_repetition(one, measure), by_repetition(other, measure));
    let of = |(repetition, value): &(u32, f64)| {
        other.iter().find(|(also, _)| also == repetition).map(|(_, theirs)| (*value, *theirs))
    };
    one.iter().filter_map(of).collect()
}

/// Returns the median of the pairs' ratios with its 95 % confidence interval. With fewer than
/// [`BLOCKS_MIN`](flatout_load::stats::bootstrap::BLOCKS_MIN) pairs, the interval is the range of the ratios. Returns
/// `None` if both servers have figures in fewer than two repetitions, or in fewer than half of the repetitions.
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
        // Do not use the bootstrap's estimate: it is the ratio of the sums, on which a single slow turn has more
        // influence.
        Some(by_sums) => Interval { estimate, low: by_sums.low.min(estimate), high: by_sums.high.max(estimate) },
        None => Interval { estimate, low: ratios.min(), high: ratios.max() },
    })
}

fn by_repetition(cell: &Cell, measure: &str) -> Vec<(u32, f64)> {
    let Some(figure) = cell.figure(measure) else { return Vec::new() };
    let mut repetitions = figure.repetitions.clone();
    // Results of earlier versions do not contain the repetitions. They are known if every run has a value.
    if repetitions.is_empty() && figure.values.len() == cell.runs.len() {
        repetitions = cell.runs.iter().map(|run| run.repetition).collect();
    }
    repetitions.into_iter().zip(figure.values.iter().copied()).collect()
}
