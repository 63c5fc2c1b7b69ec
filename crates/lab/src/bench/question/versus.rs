//! Comparison of two servers or URLs in interleaved blocks, after an A/A baseline.

use crate::bench::{Bench, BenchError, BenchReport, BenchSpec, ProgressReceiver};
use flatout_load::judge::{Figure, FigureVerdict, InvalidReason};
use flatout_load::plan::{Plan, Stop};
use flatout_load::record::Counts;
use flatout_load::report::StepReport;
use flatout_load::stats::Interval;
use flatout_load::stats::bootstrap::Bootstrap;
use flatout_load::stats::compare::{Comparison, Finding, Measure, NotCompared, failed_differently};
use flatout_load::stats::order::{RunBlock, RunOrder, Side};
use flatout_load::stats::responses::{Responses, answered_differently, sized_differently};
use serde_json::json;

/// Number of blocks in each of the two comparisons, A/A and A/B.
const BLOCKS: usize = 6;

/// Shortest turn, in nanoseconds. A shorter turn would mostly consist of its start.
const TURN_NS_MIN: u64 = 200_000_000;

/// Runs two specifications in turns and compares them. Returns the report of the first, with the comparison in its
/// findings.
pub fn versus(
    ask: BenchSpec,
    other: BenchSpec,
    progress: &mut dyn ProgressReceiver,
) -> Result<BenchReport, BenchError> {
    let plan = ask.plans.first().cloned().ok_or(BenchError::NothingToAsk)?;
    let other_url = other.url.to_string();
    let turn = turn_of(&plan);
    let order = RunOrder::Abba;
    let sides = order.sides(BLOCKS);
    let blocks = order.blocks(&sides);
    let (mut first, mut second) = (Bench::prepare(ask, None)?, Bench::prepare(other, None)?);
    // A takes the turns of both sides first, because the machine's own variation must not be attributed to B.
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
    // If B never had a turn, the reason is added to A's report.
    let other = second.finish().map_err(|error| first.miss(error)).ok();
    let mut report = first.finish()?;
    // B's levels are appended to A's: a problem of either concerns the comparison.
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
    let Compared { comparisons, not_compared, sizes } = compare(plan.seed, plan.is_open(), &blocks, &same, &turns);
    let sentence = match (comparisons.first(), not_compared.is_empty()) {
        (Some(first), _) => first.sentence(),
        (None, true) => "no comparison is possible: too few intervals had responses".to_owned(),
        (None, false) => match not_compared.iter().find_map(|left_out| left_out.because.as_deref()) {
            Some(why) => format!("nothing is compared, because {why}"),
            None => "nothing is compared: no figure is valid for both A and B".to_owned(),
        },
    };
    if let (true, Some(step)) = (comparisons.is_empty(), report.run.steps.first_mut()) {
        step.add_missing(format!("the comparison: {sentence}"));
    }
    let finding = json!({
        "a": report.run.url,
        "b": other_url,
        "blocks": BLOCKS,
        "turn_ns": if let Stop::After { duration_ns } = turn.stop { Some(duration_ns) } else { None },
        "sentence": sentence,
        "sizes": sizes,
        "comparisons": comparisons.iter().map(|comparison| json!({
            "measure": comparison.measure.name,
            "sentence": comparison.sentence(),
            "is_shown": comparison.finding != Finding::NoDifference,
            "comparison": comparison,
        })).collect::<Vec<_>>(),
        "not_compared": not_compared.iter().map(|left_out| json!({
            "measure": left_out.measure,
            "a": left_out.a,
            "b": left_out.b,
            "sentence": left_out.sentence(),
        })).collect::<Vec<_>>(),
    });
    report.run.findings.insert("comparison".to_owned(), finding);
    Ok(report)
}

/// Returns the plan of one turn. All turns of one side together take about twice the requested time.
fn turn_of(plan: &Plan) -> Plan {
    let stop = match plan.stop {
        Stop::After { duration_ns } | Stop::Tight { duration_ns_max: duration_ns, .. } => {
            Stop::After { duration_ns: (duration_ns / (2 * BLOCKS as u64)).max(TURN_NS_MIN) }
        }
        Stop::Count(count) => Stop::Count((count / (2 * BLOCKS as u64)).max(1)),
    };
    Plan { stop, ..plan.clone() }
}

/// The result of one turn.
#[derive(Clone, Debug)]
struct Turn {
    rate: f64,
    p50_ns: f64,
    p99_ns: f64,
    server_cpu_ns: Option<f64>,
    counts: Counts,
    responses: Responses,
    /// Number of requests that can be in progress at once: connections, or streams that the server permits.
    slots: u32,
    verdicts: Vec<FigureVerdict>,
}

impl Turn {
    fn of(step: &StepReport) -> Self {
        let at = |pick: fn(&flatout_load::report::Percentiles) -> Option<u64>| {
            step.response.as_ref().and_then(pick).map_or(f64::NAN, |value_ns| value_ns as f64)
        };
        Self {
            rate: step.responses_per_s,
            p50_ns: at(|response| response.p50_ns),
            p99_ns: at(|response| response.p99_ns),
            server_cpu_ns: step.server.and_then(|server| server.cpu_ns_per_response),
            counts: step.record.counts,
            responses: Responses::of(&step.record, &step.plan),
            slots: step.slots_used(),
            verdicts: step.figures.clone(),
        }
    }

    fn verdict(&self, figure: Figure) -> FigureVerdict {
        let found = self.verdicts.iter().find(|verdict| verdict.figure == figure);
        found.cloned().unwrap_or_else(|| FigureVerdict::sound(figure))
    }
}

/// The results of all turns: the comparable figures, and the figures that are invalid for a side.
#[expect(clippy::struct_field_names, reason = "figures that are compared, and those that are not")]
struct Compared {
    comparisons: Vec<Comparison>,
    not_compared: Vec<NotCompared>,
    /// A sentence on the sizes of the responses, if they differ.
    sizes: Option<String>,
}

fn compare(seed: u64, is_open: bool, blocks: &[RunBlock], same: &[Turn], turns: &[Turn]) -> Compared {
    let bootstrap = Bootstrap::new(seed);
    let ratio = |turns: &[Turn], pick: &dyn Fn(&Turn) -> f64| -> Option<Interval> {
        let sum = |runs: &[usize]| runs.iter().map(|run| pick(&turns[*run])).sum::<f64>();
        let pairs: Vec<_> = blocks.iter().map(|block| (sum(&block.a), sum(&block.b))).collect();
        bootstrap.ratio(&pairs)
    };
    let mut compared = Compared { comparisons: Vec::new(), not_compared: Vec::new(), sizes: None };
    let of_a = || same.iter().chain(blocks.iter().flat_map(|block| &block.a).map(|run| &turns[*run]));
    let of_b = || blocks.iter().flat_map(|block| &block.b).map(|run| &turns[*run]);
    let failed_a = Counts::error_share_of(of_a().map(|turn| &turn.counts));
    let failed_b = Counts::error_share_of(of_b().map(|turn| &turn.counts));
    let [a, b] = [of_a().collect::<Vec<_>>(), of_b().collect()]
        .map(|turns| turns.iter().fold(Responses::default(), |sum, turn| sum.and(&turn.responses)));
    let differently = failed_differently(("A", failed_a), ("B", failed_b));
    let differently = differently.or_else(|| answered_differently(("A", &a), ("B", &b))).or_else(|| {
        // In an open loop, the clock determines the load.
        let first = of_a().next()?.slots;
        let other = of_a().chain(of_b()).find(|turn| turn.slots != first).filter(|_| !is_open)?.slots;
        Some(format!(
            "the servers permit different numbers of streams: {first} were used in one turn and {other} in another"
        ))
    });
    let mut add = |measure: Measure, figure: Figure, pick: &dyn Fn(&Turn) -> f64| {
        // Turns are short, and interference affects both sides alike; the A/A baseline shows how much.
        let verdict = |turn: &Turn| match turn.verdict(figure) {
            found if found.reasons == [InvalidReason::CpuContentionUnknown] => FigureVerdict::sound(figure),
            found => found,
        };
        let why = differently.clone().or_else(|| {
            // All turns of the baseline belong to A.
            let has_none = of_a().chain(of_b()).any(|turn| pick(turn).is_nan());
            has_none.then(|| "in at least one turn, too few requests got a successful response".to_owned())
        });
        let left_out = match why {
            Some(why) => Some(NotCompared::because(&measure.name, why)),
            None => NotCompared::of(&measure.name, of_a().map(verdict), of_b().map(verdict)),
        };
        match left_out {
            Some(left_out) => compared.not_compared.push(left_out),
            None => compared.comparisons.extend(
                ratio(turns, pick).map(|found| Comparison::of(measure, found, bootstrap.level, ratio(same, pick))),
            ),
        }
    };
    // In an open loop, the rate is given, and says nothing about the server.
    if !is_open {
        add(Measure::rate(), Figure::Rate, &|turn| turn.rate);
    }
    add(Measure::cost("p50 response time"), Figure::Median, &|turn| turn.p50_ns);
    add(Measure::cost("p99 response time"), Figure::Tail, &|turn| turn.p99_ns);
    if turns.iter().chain(same).all(|turn| turn.server_cpu_ns.is_some()) {
        add(Measure::cost("CPU per request"), Figure::ServerCpu, &|turn| turn.server_cpu_ns.unwrap_or(f64::NAN));
    }
    compared.sizes = sized_differently(("A", &a), ("B", &b)).filter(|_| !compared.comparisons.is_empty());
    compared
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS, Compared, NotCompared, Turn, compare};
    use flatout_load::judge::{Evidence, Invalid, InvalidReason, figures};
    use flatout_load::record::Counts;
    use flatout_load::stats::order::{RunOrder, Side};
    use flatout_load::stats::responses::Responses;

    fn turn(reasons: &[InvalidReason]) -> Turn {
        let invalid: Vec<Invalid> =
            reasons.iter().map(|reason| Invalid { reason: *reason, text: String::new() }).collect();
        Turn {
            rate: 1000.0,
            p50_ns: 1e6,
            p99_ns: 2e6,
            server_cpu_ns: Some(1e4),
            counts: Counts { responses: 1_000, ..Counts::default() },
            responses: Responses::default(),
            slots: 16,
            verdicts: figures::verdicts(&Evidence::default(), &invalid),
        }
    }

    #[test]
    fn closed_loops_with_different_numbers_of_streams_are_not_compared() {
        let order = RunOrder::Abba;
        let sides = order.sides(BLOCKS);
        let blocks = order.blocks(&sides);
        let same: Vec<Turn> = sides.iter().map(|_| turn(&[])).collect();
        let of = |side: &Side| Turn { slots: if *side == Side::A { 16 } else { 8 }, ..turn(&[]) };
        let turns: Vec<Turn> = sides.iter().map(of).collect();
        let Compared { comparisons, not_compared, .. } = compare(1, false, &blocks, &same, &turns);
        assert_eq!((comparisons.len(), not_compared.len()), (0, 4));
        assert!(not_compared[0].sentence().contains("16 were used in one turn and 8 in another"));
        // The clock determines the load of an open loop.
        assert_eq!(compare(1, true, &blocks, &same, &turns).comparisons.len(), 3);
    }

    #[test]
    fn what_does_not_hold_in_one_turn_of_a_side_is_not_compared() {
        let order = RunOrder::Abba;
        let sides = order.sides(BLOCKS);
        let blocks = order.blocks(&sides);
        let compared = |last_of_b: &[InvalidReason]| {
            let mut turns: Vec<Turn> = sides.iter().map(|_| turn(&[])).collect();
            let last = sides.iter().rposition(|side| *side == Side::B).unwrap();
            turns[last] = turn(last_of_b);
            let same: Vec<Turn> = sides.iter().map(|_| turn(&[])).collect();
            let Compared { comparisons, not_compared, .. } = compare(1, false, &blocks, &same, &turns);
            let names: Vec<String> = comparisons.into_iter().map(|comparison| comparison.measure.name).collect();
            (names.join(", "), not_compared.iter().map(NotCompared::sentence).collect::<Vec<_>>())
        };
        let all = "rate, p50 response time, p99 response time, CPU per request";
        assert_eq!(compared(&[]), (all.to_owned(), Vec::new()));
        let (names, left_out) = compared(&[InvalidReason::ClientSaturated]);
        assert_eq!((names.as_str(), left_out.len()), ("CPU per request", 3));
        assert_eq!(left_out[0], "rate: not compared, because it is not valid for B (client-saturated)");
        let (names, left_out) = compared(&[InvalidReason::CountsDiffer]);
        assert_eq!((names.as_str(), left_out.len()), ("", 4));
    }
}
