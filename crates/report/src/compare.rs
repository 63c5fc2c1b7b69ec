//! Comparison of two results: the differences, and the confidence in them.
//!
//! With five or more pairs of runs, each pair is a block, and the interval covers the variation between runs. With
//! fewer pairs, blocks are segments of the runs. Segments show how steady the runs were, but not how much one run
//! differs from the next, and the comparison says so. `flatout bench --compare` measures what this comparison cannot
//! determine.

use super::html::whole_points;
use super::plan_words;
use super::series::times;
use flatout_load::judge::Figure;
use flatout_load::record::{Counts, Point};
use flatout_load::report::{RunReport, StepReport, visible};
use flatout_load::stats::bootstrap::{BLOCKS_MIN, Bootstrap};
use flatout_load::stats::compare::{Comparison, Measure, NotCompared, failed_differently};
use flatout_load::stats::responses::{Responses, answered_differently, sized_differently};
use flatout_units::show;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Number of segments of a run: enough for an interval, each long enough to be nearly independent of the next.
const STRETCHES: usize = 20;

/// The kind of blocks for the bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Pairs of runs.
    Runs,
    /// Segments of the runs.
    Stretches,
    /// There were too few pairs, and too few segments, for an interval.
    TooFew,
}

/// The comparison of A and B at one load level.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The offered load.
    pub load: String,
    /// Comparisons of rate, response time and cost, as far as they could be compared.
    pub comparisons: Vec<Comparison>,
    /// Measured rate and mean response time of A and of B, for levels without a comparison.
    pub raw: String,
    /// Measures that were not compared because a run's figure is invalid, with the reason.
    pub left_out: Vec<String>,
    /// A sentence on the sizes of the responses, if they differ and measures were compared.
    pub sizes: Option<String>,
}

/// The comparison of A and B.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The kind of blocks for the bootstrap.
    pub blocks: Blocks,
    /// Number of pairs of runs.
    pub pairs: usize,
    /// The levels that both A and B have.
    pub levels: Vec<Level>,
    /// Runs with an invalid figure, and the reasons.
    pub invalid: Vec<String>,
    /// Differences between A and B besides the subject.
    pub unlike: Vec<String>,
}

/// Compares A's runs with B's, pair by pair and step by step.
pub fn compare(pairs: &[(RunReport, RunReport)], seed: u64) -> Compared {
    let mut compared = Compared {
        blocks: if pairs.len() >= BLOCKS_MIN { Blocks::Runs } else { Blocks::Stretches },
        pairs: pairs.len(),
        levels: Vec::new(),
        invalid: Vec::new(),
        unlike: Vec::new(),
    };
    for (a, b) in pairs {
        for (side, report) in [("A", a), ("B", b)] {
            let reasons = report.steps.iter().flat_map(|step| &step.invalid);
            compared.invalid.extend(
                reasons
                    .map(|invalid| format!("{side} ({}): {}: {}", report.label, invalid.reason.name(), invalid.text)),
            );
        }
        for difference in unlike(a, b) {
            if !compared.unlike.contains(&difference) {
                compared.unlike.push(difference);
            }
        }
    }
    for (index, other) in alike(pairs) {
        let steps: Vec<(&StepReport, &StepReport)> =
            pairs.iter().filter_map(|(a, b)| Some((a.steps.get(index)?, b.steps.get(other)?))).collect();
        let Some((first, _)) = steps.first() else { continue };
        let bootstrap = Bootstrap::new(seed);
        let mut comparisons = match compared.blocks {
            Blocks::Runs => by_runs(&steps, &bootstrap),
            _ => by_stretches(&steps, &bootstrap),
        };
        // In an open loop, the clock determines the rate, which says nothing about the server.
        if first.plan.is_open() {
            comparisons.retain(|comparison| comparison.measure != Measure::rate());
        }
        let mut left_out = Vec::new();
        if let Some(why) = incomparable(pairs, &steps) {
            for comparison in comparisons.drain(..) {
                left_out.push(NotCompared::because(&comparison.measure.name, why.clone()).sentence());
            }
            if left_out.is_empty() {
                left_out.push(NotCompared::because("every measure", why).sentence());
            }
        } else if compared.blocks == Blocks::Runs && steps.iter().any(|(a, b)| times(a)[0].2 > 0 || times(b)[0].2 > 0) {
            let why = "requests without a response have no time".to_owned();
            left_out.extend(PERCENTILES.map(|(name, _)| NotCompared::because(name, why.clone()).sentence()));
        }
        comparisons.retain(|comparison| {
            let figure = figure_of(&comparison.measure.name);
            let (a, b) = (steps.iter().map(|(a, _)| a.verdict(figure)), steps.iter().map(|(_, b)| b.verdict(figure)));
            let found = NotCompared::of(&comparison.measure.name, a, b);
            let is_sound = found.is_none();
            left_out.extend(found.map(|found| found.sentence()));
            is_sound
        });
        let raw = raw_figures(&steps);
        let (a, b) = responses_of(&steps);
        let sizes = sized_differently(("A", &a), ("B", &b)).filter(|_| !comparisons.is_empty());
        compared.levels.push(Level { load: super::verdict::load(first), comparisons, raw, left_out, sizes });
    }
    if compared.levels.iter().all(|level| level.comparisons.is_empty() && level.left_out.is_empty()) {
        compared.blocks = Blocks::TooFew;
    }
    compared
}

/// Returns the levels of A and of B that offer the same load in all pairs. Others cannot be compared.
fn alike(pairs: &[(RunReport, RunReport)]) -> Vec<(usize, usize)> {
    let Some((a, b)) = pairs.first() else { return Vec::new() };
    let load = |step: &StepReport| (step.plan.is_open(), super::verdict::load(step));
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (index, step) in a.steps.iter().enumerate() {
        let is_free = |other: &usize| found.iter().all(|(_, taken)| taken != other);
        let is_same = |other: &usize| {
            pairs.iter().all(|(a, b)| {
                let (one, two) = (a.steps.get(index), b.steps.get(*other));
                one.zip(two).is_some_and(|(one, two)| load(one) == load(step) && load(two) == load(step))
            })
        };
        let other = (0..b.steps.len()).filter(is_free).find(is_same);
        found.extend(other.map(|other| (index, other)));
    }
    found
}

/// Returns why the figures of these steps cannot be compared: their requests failed in different shares, got responses
/// with other statuses, or failed in results of a version that counted failed responses in rates and times.
fn incomparable(pairs: &[(RunReport, RunReport)], steps: &[(&StepReport, &StepReport)]) -> Option<String> {
    let a = Counts::error_share_of(steps.iter().map(|(a, _)| &a.record.counts));
    let b = Counts::error_share_of(steps.iter().map(|(_, b)| &b.record.counts));
    let is_of_all = pairs.iter().any(|(a, b)| a.has_all_responses() || b.has_all_responses());
    let (ours, theirs) = responses_of(steps);
    let differently = failed_differently(("A", a), ("B", b));
    differently.or_else(|| answered_differently(("A", &ours), ("B", &theirs))).or_else(|| {
        (is_of_all && a.max(b) > 0.0).then(|| {
            "requests failed, and an earlier version of flatout counted failed responses in rates and times".to_owned()
        })
    })
}

/// Returns the responses of A's steps and of B's.
fn responses_of(steps: &[(&StepReport, &StepReport)]) -> (Responses, Responses) {
    let of = |step: &StepReport| Responses::of(&step.record, &step.plan);
    let add = |(a, b): (Responses, Responses), (one, other): &(&StepReport, &StepReport)| {
        (a.and(&of(one)), b.and(&of(other)))
    };
    steps.iter().fold((Responses::default(), Responses::default()), add)
}

/// Returns the rate and mean response time of both sides, for each pair.
fn raw_figures(steps: &[(&StepReport, &StepReport)]) -> String {
    let of = |step: &StepReport| {
        let mean = step.record.sums.response_ns.mean().map_or_else(|| "-".to_owned(), show::duration);
        format!("{} requests/s, mean response time {mean}", show::figure(step.responses_per_s))
    };
    let pairs: Vec<String> = steps.iter().map(|(a, b)| format!("A: {}; B: {}", of(a), of(b))).collect();
    pairs.join("; ")
}

/// Returns the figure that must be valid for a measure to be compared.
fn figure_of(measure: &str) -> Figure {
    match measure {
        "rate" => Figure::Rate,
        "server CPU per response" => Figure::ServerCpu,
        "p99 response time" => Figure::Tail,
        _ => Figure::Median,
    }
}

/// Compares the figures of whole runs, with one block per pair. Percentiles come from the runs' histograms.
fn by_runs(steps: &[(&StepReport, &StepReport)], bootstrap: &Bootstrap) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    let mut add = |measure: Measure, figures: &dyn Fn(&StepReport) -> Option<f64>| {
        let pairs: Option<Vec<(f64, f64)>> = steps.iter().map(|(a, b)| Some((figures(a)?, figures(b)?))).collect();
        let ratio = pairs.and_then(|pairs| bootstrap.ratio(&pairs));
        comparisons.extend(ratio.map(|ratio| Comparison::of(measure, ratio, bootstrap.level, None)));
    };
    add(Measure::rate(), &|step| Some(step.responses_per_s));
    add(Measure::cost("mean response time"), &|step| step.record.sums.response_ns.mean());
    add(Measure::cost("server CPU per response"), &|step| step.server?.cpu_ns_per_response);
    // The bootstrap ranks only times, and requests without a response have none.
    if steps.iter().any(|(a, b)| times(a)[0].2 > 0 || times(b)[0].2 > 0) {
        return comparisons;
    }
    for (name, quantile) in PERCENTILES {
        let histogram = |step: &StepReport| step.record.response.histogram().into_owned();
        let unpacked: Vec<_> = steps.iter().map(|(a, b)| (histogram(a), histogram(b))).collect();
        let pairs: Vec<(&Histogram<u64>, &Histogram<u64>)> = unpacked.iter().map(|(a, b)| (a, b)).collect();
        let ratio = bootstrap.quantile_ratio(&pairs, quantile);
        comparisons.extend(ratio.map(|ratio| Comparison::of(Measure::cost(name), ratio, bootstrap.level, None)));
    }
    comparisons
}

/// The percentiles of whole runs that are compared.
const PERCENTILES: [(&str, f64); 2] = [("p50 response time", 0.5), ("p99 response time", 0.99)];

/// Totals of the successful responses in a segment of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stretch {
    seconds: f64,
    responses: f64,
    response_sum_ns: f64,
}

/// Compares segments of the runs. Adjacent segments of A form the A/A baseline.
fn by_stretches(steps: &[(&StepReport, &StepReport)], bootstrap: &Bootstrap) -> Vec<Comparison> {
    let cut = |step: &StepReport, parts: usize| stretches(&measured(step), step.record.series.step_s, parts);
    let parts = steps.iter().map(|(a, b)| measured(a).len().min(measured(b).len())).min().unwrap_or(0);
    let parts = parts.min(STRETCHES);
    let a: Vec<Stretch> = steps.iter().flat_map(|(a, _)| cut(a, parts)).collect();
    let b: Vec<Stretch> = steps.iter().flat_map(|(_, b)| cut(b, parts)).collect();
    // Every second segment of A is compared with the next.
    let adjacent: Vec<(Stretch, Stretch)> = a.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let blocks: Vec<(Stretch, Stretch)> = a.iter().copied().zip(b.iter().copied()).collect();
    let rate = |stretch: &Stretch| (stretch.responses, stretch.seconds);
    let time = |stretch: &Stretch| (stretch.response_sum_ns, stretch.responses);
    let mut comparisons = Vec::new();
    for (measure, figure) in [
        (Measure::rate(), rate as fn(&Stretch) -> (f64, f64)),
        (Measure::cost("mean response time"), time as fn(&Stretch) -> (f64, f64)),
    ] {
        let Some(ratio) = mean_ratio(bootstrap, &blocks, figure) else { continue };
        let same = mean_ratio(bootstrap, &adjacent, figure);
        comparisons.push(Comparison::of(measure, ratio, bootstrap.level, same));
    }
    comparisons
}

/// Returns the ratio of B's mean to A's. Each mean is a sum divided by a sum, over the drawn blocks.
fn mean_ratio(
    bootstrap: &Bootstrap,
    blocks: &[(Stretch, Stretch)],
    figure: fn(&Stretch) -> (f64, f64),
) -> Option<flatout_load::stats::Interval> {
    bootstrap.interval(blocks.len(), |drawn| {
        let mut sums = [0.0; 4];
        for (times, (a, b)) in drawn.iter().zip(blocks) {
            let times = f64::from(*times);
            let ((a_sum, a_count), (b_sum, b_count)) = (figure(a), figure(b));
            for (sum, value) in sums.iter_mut().zip([a_sum, a_count, b_sum, b_count]) {
                *sum += times * value;
            }
        }
        let [a_sum, a_count, b_sum, b_count] = sums;
        (b_sum / b_count) / (a_sum / a_count)
    })
}

/// Returns the complete points of a step after its warm-up.
fn measured(step: &StepReport) -> Vec<Point> {
    let series = &step.record.series;
    let length_ns = series.step_s * 1_000_000_000;
    let warm = step.record.measured_from_ns.saturating_sub(series.start_ns).div_ceil(length_ns.max(1));
    whole_points(step).into_iter().skip(warm as usize).collect()
}

fn stretches(points: &[Point], step_s: u64, parts: usize) -> Vec<Stretch> {
    let of = |part: &[Point]| Stretch {
        seconds: (part.len() as u64 * step_s) as f64,
        responses: part.iter().map(Point::successes).sum::<u64>() as f64,
        response_sum_ns: part.iter().map(|point| point.response_sum_ns).sum::<u64>() as f64,
    };
    (0..parts).map(|part| of(&points[part * points.len() / parts..(part + 1) * points.len() / parts])).collect()
}

/// Returns the differences between two runs besides the subject.
fn unlike(a: &RunReport, b: &RunReport) -> Vec<String> {
    let mut differences = Vec::new();
    let mut check = |what: &str, a: String, b: String| {
        if a != b {
            differences.push(format!("{what}: {a} and {b}"));
        }
    };
    check("protocol", a.protocol.clone(), b.protocol.clone());
    check("workload", a.workload.clone(), b.workload.clone());
    check("threads", a.threads.to_string(), b.threads.to_string());
    check("agents", a.agents.to_string(), b.agents.to_string());
    check("flatout", a.flatout_version.clone(), b.flatout_version.clone());
    check("processor", a.machine.cpu_model.clone(), b.machine.cpu_model.clone());
    check("cores", a.machine.cores.to_string(), b.machine.cores.to_string());
    check("kernel", a.machine.kernel.clone(), b.machine.kernel.clone());
    check("steps", a.steps.len().to_string(), b.steps.len().to_string());
    let addresses = |report: &RunReport| report.address.split(", ").count().to_string();
    check("addresses of the server", addresses(a), addresses(b));
    for (one, other) in a.steps.iter().zip(&b.steps) {
        check("plan", plan_words::of(&one.plan), plan_words::of(&other.plan));
        if one.tally.slots_unusable > 0 || other.tally.slots_unusable > 0 {
            check("streams in use", one.slots_used().to_string(), other.slots_used().to_string());
        }
    }
    differences
}

impl Compared {
    /// Returns whether nothing was compared, because no figure is valid in both results or there is too little data.
    pub fn is_worthless(&self) -> bool {
        self.levels.iter().all(|level| level.comparisons.is_empty())
    }

    /// Formats the comparison as text for people.
    pub fn print(&self, names: (&str, &str)) -> String {
        let (a, b) = (visible(names.0), visible(names.1));
        let mut lines = vec![format!("A is {a}"), format!("B is {b}"), String::new()];
        let (shown, rest): (Vec<_>, Vec<_>) =
            self.levels.iter().partition(|level| !level.comparisons.is_empty() || !level.left_out.is_empty());
        for level in shown {
            lines.push(format!("At {}:", level.load));
            lines.extend(level.comparisons.iter().map(|comparison| format!("  {}", comparison.sentence())));
            lines.extend(level.sizes.iter().chain(&level.left_out).map(|line| format!("  {line}")));
            let is_unfair = level.comparisons.iter().any(Comparison::is_unfair);
            if is_unfair {
                lines.push("  A differs from itself over time: the machine or the run was not steady".to_owned());
            }
        }
        for level in rest {
            lines.push(format!("At {}: too little data for a comparison", level.load));
            lines.push(format!("  {}", level.raw));
        }
        lines.push(String::new());
        lines.push(match self.blocks {
            Blocks::Runs => format!("Compared {} pairs of runs.", self.pairs),
            Blocks::Stretches => {
                "Compared only segments of these runs: the intervals do not cover differences between runs. Use five pairs of runs, or `flatout bench --compare`.".to_owned()
            }
            Blocks::TooFew if self.levels.is_empty() => "Nothing could be compared: the runs have no load in common.".to_owned(),
            Blocks::TooFew => format!("Nothing could be compared: the runs have fewer than {BLOCKS_MIN} whole seconds in common."),
        });
        lines.extend(
            self.unlike.iter().map(|difference| format!("note: the runs differ in more than the server: {difference}")),
        );
        lines.extend(self.invalid.iter().map(|reason| format!("not every figure is valid: {reason}")));
        lines.join("\n") + "\n"
    }

    /// Returns the comparison as JSON.
    pub fn value(&self, names: (&str, &str)) -> Value {
        json!({
            "schema": "flatout-compare",
            "schema_version": 1,
            "a": names.0,
            "b": names.1,
            "blocks": match self.blocks { Blocks::Runs => "runs", Blocks::Stretches => "stretches", Blocks::TooFew => "too-few" },
            "pairs": self.pairs,
            "levels": self.levels.iter().map(|level| json!({
                "load": level.load,
                "left_out": level.left_out,
                "sizes": level.sizes,
                "comparisons": level.comparisons.iter().map(|comparison| json!({
                    "measure": comparison.measure.name,
                    "ratio": comparison.ratio,
                    "level": comparison.level,
                    "same": comparison.same,
                    "finding": comparison.finding,
                    "sentence": comparison.sentence(),
                })).collect::<Vec<_>>(),
            })).collect::<Vec<_>>(),
            "unlike": self.unlike,
            "invalid": self.invalid,
        })
    }
}

#[cfg(test)]
mod tests;
