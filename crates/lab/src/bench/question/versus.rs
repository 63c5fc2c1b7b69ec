//! Which of two servers, or of two URLs, is faster: turns in blocks, the one beside itself first.

use crate::bench::{Ask, Bench, BenchError, BenchReport, Progress};
use flatout_load::plan::{Plan, Stop};
use flatout_load::report::StepReport;
use flatout_load::stats::Interval;
use flatout_load::stats::bootstrap::Bootstrap;
use flatout_load::stats::compare::{Comparison, Finding, Measure};
use flatout_load::stats::order::{Block, Order, Side};
use serde_json::json;

/// Blocks of each comparison: A with itself, and A with B.
const BLOCKS: usize = 6;

/// Shortest turn, in nanoseconds: a shorter one is mostly its own beginning.
const TURN_NS_MIN: u64 = 200_000_000;

/// Runs two asks in turns and compares them. The report is that of the first; what came of the comparison stands in its
/// findings.
pub fn versus(ask: Ask, other: Ask, progress: &mut dyn Progress) -> Result<BenchReport, BenchError> {
    let plan = ask.plans.first().cloned().ok_or(BenchError::NothingToAsk)?;
    let other_url = other.url.to_string();
    let turn = turn_of(&plan);
    let order = Order::Abba;
    let sides = order.sides(BLOCKS);
    let blocks = order.blocks(&sides);
    let (mut first, mut second) = (Bench::prepare(ask, None)?, Bench::prepare(other, None)?);
    // A takes the turns of both at first: what a machine makes of nothing must not be told of B.
    let mut same = Vec::new();
    for _ in &sides {
        if !first.is_whole() {
            break;
        }
        same.extend(first.step(&turn, false, progress).map(Turn::of));
    }
    let mut turns = Vec::new();
    for side in &sides {
        if !first.is_whole() || !second.is_whole() {
            break;
        }
        let bench = match side {
            Side::A => &mut first,
            Side::B => &mut second,
        };
        turns.extend(bench.step(&turn, false, progress).map(Turn::of));
    }
    let is_whole = turns.len() == sides.len() && same.len() == sides.len();
    // Where B never had a turn, A tells why.
    let other = second.finish().map_err(|error| first.miss(error)).ok();
    let mut report = first.finish()?;
    // B's levels stand behind A's: what is wrong with either is wrong with the comparison.
    if let Some(other) = other {
        report.interrupted |= other.interrupted;
        for mut step in other.run.steps {
            step.step = u16::try_from(report.run.steps.len()).unwrap_or(u16::MAX);
            report.run.steps.push(step);
        }
    }
    if !is_whole {
        return Ok(report);
    }
    let comparisons = compare(plan.seed, plan.is_open(), &blocks, &same, &turns);
    let sentence = comparisons
        .first()
        .map_or_else(|| "the turns say nothing: too few of them were answered".to_owned(), Comparison::sentence);
    let finding = json!({
        "a": report.run.url,
        "b": other_url,
        "blocks": BLOCKS,
        "turn_ns": if let Stop::After { duration_ns } = turn.stop { Some(duration_ns) } else { None },
        "sentence": sentence,
        "comparisons": comparisons.iter().map(|comparison| json!({
            "measure": comparison.measure.name,
            "sentence": comparison.sentence(),
            "is_shown": comparison.finding != Finding::NoDifference,
            "comparison": comparison,
        })).collect::<Vec<_>>(),
    });
    report.run.findings.insert("comparison".to_owned(), finding);
    Ok(report)
}

/// A part of the plan's length: all turns of one side together take about twice as long as was asked for.
fn turn_of(plan: &Plan) -> Plan {
    let stop = match plan.stop {
        Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => {
            Stop::After { duration_ns: (duration_ns / (2 * BLOCKS as u64)).max(TURN_NS_MIN) }
        }
        Stop::Count(count) => Stop::Count((count / (2 * BLOCKS as u64)).max(1)),
    };
    Plan { stop, ..plan.clone() }
}

/// What one turn came to.
#[derive(Clone, Copy, Debug)]
struct Turn {
    rate: f64,
    p50_ns: f64,
    p99_ns: f64,
    server_cpu_ns: Option<f64>,
}

impl Turn {
    fn of(step: &StepReport) -> Self {
        let at = |pick: fn(&flatout_load::report::Percentiles) -> u64| {
            step.response.as_ref().map_or(f64::NAN, |response| pick(response) as f64)
        };
        Self {
            rate: step.responses_per_s,
            p50_ns: at(|response| response.p50_ns),
            p99_ns: at(|response| response.p99_ns),
            server_cpu_ns: step.server.and_then(|server| server.cpu_ns_per_response),
        }
    }
}

fn compare(seed: u64, is_open: bool, blocks: &[Block], same: &[Turn], turns: &[Turn]) -> Vec<Comparison> {
    let bootstrap = Bootstrap::new(seed);
    let ratio = |turns: &[Turn], pick: &dyn Fn(&Turn) -> f64| -> Option<Interval> {
        let sum = |runs: &[usize]| runs.iter().map(|run| pick(&turns[*run])).sum::<f64>();
        let pairs: Vec<_> = blocks.iter().map(|block| (sum(&block.a), sum(&block.b))).collect();
        bootstrap.ratio(&pairs)
    };
    let mut comparisons = Vec::new();
    let mut add = |measure: Measure, pick: &dyn Fn(&Turn) -> f64| {
        if let Some(found) = ratio(turns, pick) {
            comparisons.push(Comparison::of(measure, found, bootstrap.level, ratio(same, pick)));
        }
    };
    // Where the clock decides the rate, it says nothing of the server.
    if !is_open {
        add(Measure::rate(), &|turn| turn.rate);
    }
    add(Measure::cost("p50 response time"), &|turn| turn.p50_ns);
    add(Measure::cost("p99 response time"), &|turn| turn.p99_ns);
    if turns.iter().chain(same).all(|turn| turn.server_cpu_ns.is_some()) {
        add(Measure::cost("CPU per request"), &|turn| turn.server_cpu_ns.unwrap_or(f64::NAN));
    }
    comparisons
}
