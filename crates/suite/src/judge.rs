//! Evaluation of checks. Each figure is compared with its bound, and the result is reported in one sentence, in the
//! same form for every outcome.

use crate::combine::{self, Values};
use crate::document::{Cell, CheckEntry, CheckFinding, StepEntry, SuiteReport, Verdict};
use crate::measure::Measure;
use crate::model::{Against, Bound, Check, Suite};
use crate::pairs;
use crate::why::Reason;
use flatout_load::judge::InvalidReason;
use flatout_units::show;
use std::fmt::Write as _;

/// Evaluates all checks of a suite.
pub fn judge(suite: &Suite, report: &SuiteReport, quick: bool) -> Vec<CheckEntry> {
    suite.checks.iter().map(|check| judge_one(suite, report, check, quick)).collect()
}

fn judge_one(suite: &Suite, report: &SuiteReport, check: &Check, quick: bool) -> CheckEntry {
    let combinations = suite.step(&check.step.text).map(|step| combine::combinations(suite, step, quick));
    let is_meant = |values: &&Values| {
        check.only.iter().all(|only| {
            values.iter().find(|(name, _)| *name == only.name.text).is_none_or(|(_, value)| only.values.contains(value))
        })
    };
    let findings: Vec<CheckFinding> =
        combinations.iter().flatten().filter(is_meant).map(|values| find(report, check, values)).collect();
    CheckEntry {
        name: check.name.clone(),
        step: check.step.text.clone(),
        measure: check.measure.text.clone(),
        of: check.of.text.clone(),
        verdict: findings.iter().map(|finding| finding.verdict).max().unwrap_or_default(),
        findings,
    }
}

/// A figure that takes part in a check, with its server.
struct JudgedFigure<'r> {
    cell: &'r Cell,
    median: f64,
    min: f64,
    max: f64,
    whose: String,
    unit: &'r str,
    /// Servers from which the best was not chosen, with the reasons.
    left_out: Vec<String>,
}

/// The figures of a check: the judged figure, and the figure with which it is compared, if any.
type Pair<'r> = (JudgedFigure<'r>, Option<JudgedFigure<'r>>);

fn find(report: &SuiteReport, check: &Check, values: &Values) -> CheckFinding {
    let (mut bound, mut is_at_most) = match check.bound {
        Bound::AtMost(bound) => (bound, true),
        Bound::AtLeast(bound) => (bound, false),
    };
    let mut finding = CheckFinding { values: values.clone(), bound, is_at_most, ..CheckFinding::default() };
    let mut measure = check.measure.text.as_str();
    let mut head = head(check, values);
    let mut held = pair(report, check, values, measure);
    if let (Err(_), Some(cost)) = (&held, &check.client_limit)
        && is_client_limit(report, check, values)
        && let Ok(known) = pair(report, check, values, &cost.text)
    {
        measure = &cost.text;
        head.push_str(": the client was the bottleneck, or started requests late");
        (bound, is_at_most, held) = (1.0 / bound, !is_at_most, Ok(known));
        finding = CheckFinding { bound, is_at_most, instead: Some(cost.text.clone()), ..finding };
    }
    let not_judged = |finding: CheckFinding, why: String| CheckFinding {
        verdict: Verdict::NotJudged,
        sentence: format!("{head}: not judged: {why}"),
        ..finding
    };
    let (ours, theirs) = match held {
        Ok(pair) => pair,
        Err(why) => return not_judged(finding, why),
    };
    let why = theirs.as_ref().and_then(|theirs| pairs::incomparable(ours.cell, theirs.cell, measure));
    if let Some(why) = why {
        return not_judged(finding, why);
    }
    finding.ours = Some(ours.median);
    let word = if is_at_most { "at most" } else { "at least" };
    let (judged, held, asked) = match &theirs {
        Some(theirs) if theirs.median != 0.0 => {
            let is_turns = matches!(check.against, Against::Server(_) | Against::Best);
            let turns = is_turns.then(|| pairs::ratio(ours.cell, theirs.cell, measure)).flatten();
            let ratio = turns.map_or(ours.median / theirs.median, |turns| turns.estimate);
            let how = turns
                .map_or_else(String::new, |turns| format!(" per repetition ({:.2} to {:.2})", turns.low, turns.high));
            finding.ratio_range = turns.map(|turns| (turns.low, turns.high));
            finding.theirs = Some(theirs.median);
            finding.than.clone_from(&theirs.whose);
            finding.ratio = Some(ratio);
            (ratio, format!(", {ratio:.2} × {}'s {}{how}", theirs.whose, shown(theirs)), format!("{word} {bound:.2} ×"))
        }
        Some(theirs) => return not_judged(finding, format!("{}'s {measure} is 0", theirs.whose)),
        None => {
            finding.theirs = Some(bound);
            (ours.median, String::new(), format!("{word} {}", with_unit(bound, ours.unit)))
        }
    };
    let is_met = if is_at_most { judged <= bound } else { judged >= bound };
    finding.verdict = match finding.ratio_range {
        Some((low, high)) if low < bound && bound < high => Verdict::NotShown,
        _ if is_met => Verdict::Met,
        _ => Verdict::Missed,
    };
    let verdict = finding.verdict.word();
    let failed = pairs::failed_share(ours.cell).filter(|share| *share > 0.0 && measure != Measure::ErrorShare.name());
    let failed = failed.map_or_else(String::new, |share| format!(" ({:.1} % of its requests failed)", 100.0 * share));
    let left_out = theirs.iter().flat_map(|theirs| &theirs.left_out).fold(String::new(), |all, why| all + "; " + why);
    finding.sentence = format!(
        "{head}: {}'s {measure} is {}{failed}{held}; required: {asked}: {verdict}{left_out}",
        check.of.text,
        shown(&ours)
    );
    finding
}

/// Returns both figures of a check for this measure, or the reason one of them is unknown.
fn pair<'r>(report: &'r SuiteReport, check: &Check, values: &Values, measure: &str) -> Result<Pair<'r>, String> {
    let step = report.step(&check.step.text).ok_or_else(|| format!("step {} has not run", check.step.text))?;
    Ok((figure(step, &check.of.text, values, measure)?, against(report, step, check, values, measure)?))
}

/// Returns whether the check's measure is invalid in one of its runs only because the client was saturated, late or
/// stopped, or because other processes ran.
fn is_client_limit(report: &SuiteReport, check: &Check, values: &Values) -> bool {
    let is_by_client = |reason: &InvalidReason| {
        matches!(
            reason,
            InvalidReason::ClientSaturated
                | InvalidReason::ScheduleLag
                | InvalidReason::CpuContention
                | InvalidReason::ClientStopped
        )
    };
    let Some(measure) = Measure::parse(&check.measure.text) else { return false };
    let cells = report.step(&check.step.text).into_iter().flat_map(|step| &step.cells);
    let runs = cells.filter(|cell| cell.values == *values).flat_map(|cell| &cell.runs);
    let mut unsound = runs.flat_map(|run| run.unsound(measure)).peekable();
    unsound.peek().is_some() && unsound.all(|verdict| verdict.reasons.iter().all(is_by_client))
}

fn head(check: &Check, values: &Values) -> String {
    let mut head = check.step.text.clone();
    for (name, value) in values {
        head.extend([", ", name, " ", value]);
    }
    head
}

fn against<'r>(
    report: &'r SuiteReport,
    step: &'r StepEntry,
    check: &Check,
    values: &Values,
    measure: &str,
) -> Result<Option<JudgedFigure<'r>>, String> {
    let of = check.of.text.as_str();
    match &check.against {
        Against::Number => Ok(None),
        Against::Server(server) => figure(step, &server.text, values, measure).map(Some),
        Against::Best => {
            // A server that did not take part does not count. A server whose figure is invalid does count, because it
            // might be the best.
            let others = step.servers.iter().filter(|server| *server != of);
            let there = others.filter(|server| step.cell(server, values).is_some_and(was_there));
            let known = there.map(|server| figure(step, server, values, measure)).collect::<Result<Vec<_>, _>>()?;
            // A server that refuses requests, or responds with other statuses, may be faster, but is not better. It takes
            // part only if no other server does, and the check is then not judged.
            let ours = step.cell(of, values);
            let mut left_out = Vec::new();
            let is_alike = |other: &JudgedFigure<'_>| {
                let why = ours.and_then(|ours| pairs::incomparable(ours, other.cell, measure));
                left_out.extend(why.iter().map(|why| format!("{} does not take part, because {why}", other.whose)));
                why.is_none()
            };
            let (alike, others): (Vec<_>, Vec<_>) = known.into_iter().partition(is_alike);
            best(alike.into_iter(), measure)
                .map(|best| JudgedFigure { left_out, ..best })
                .or_else(|| best(others.into_iter(), measure))
                .map(Some)
                .ok_or_else(|| "no other server has this figure".to_owned())
        }
        Against::Peak(variable) => {
            let cells = step.cells.iter().filter(|cell| {
                let is_same = |(name, value): &(String, String)| {
                    *name == variable.text || values.iter().any(|(other, wanted)| other == name && wanted == value)
                };
                cell.server == of && cell.values.iter().all(is_same)
            });
            let all: Vec<_> = cells.map(|cell| known(cell, measure).ok()).collect();
            let (values, of_known) = (all.len(), all.iter().flatten().count());
            let peak = best(all.into_iter().flatten(), measure)
                .ok_or_else(|| format!("{of} has no {measure} at any {}", variable.text))?;
            let mut whose = format!("its best over {}", variable.text);
            if of_known < values {
                write!(whose, " (known at {of_known} of {values})").unwrap_or_default();
            }
            Ok(Some(JudgedFigure { whose, ..peak }))
        }
        Against::Step(other) => {
            let step = report.step(&other.text).ok_or_else(|| format!("step {} has not run", other.text))?;
            let found = figure(step, of, values, measure)?;
            Ok(Some(JudgedFigure { whose: format!("step {}", other.text), ..found }))
        }
    }
}

/// Returns whether a server was measured at all, even if some repetitions failed.
fn was_there(cell: &Cell) -> bool {
    !cell.runs.is_empty() || cell.absent.as_ref().and_then(Reason::of).is_none_or(Reason::is_failure)
}

fn best<'r>(known: impl Iterator<Item = JudgedFigure<'r>>, measure: &str) -> Option<JudgedFigure<'r>> {
    let is_more_better = Measure::parse(measure).is_some_and(Measure::is_more_better);
    known.max_by(|one, other| {
        let order = one.median.total_cmp(&other.median);
        if is_more_better { order } else { order.reverse() }
    })
}

fn figure<'r>(step: &'r StepEntry, server: &str, values: &Values, measure: &str) -> Result<JudgedFigure<'r>, String> {
    if let Some(why) = &step.absent {
        return Err(format!("step {} was left out: {}", step.name, why.text));
    }
    let cell = step.cell(server, values).ok_or_else(|| format!("{server} was not measured in {}", step.name))?;
    known(cell, measure)
}

fn known<'r>(cell: &'r Cell, measure: &str) -> Result<JudgedFigure<'r>, String> {
    let server = &cell.server;
    let never = cell.runs.iter().filter(|run| run.never.iter().any(|name| name == measure)).count();
    if never > 0 {
        let all = cell.runs.len();
        return Err(format!(
            "in {never} of {all} runs, {server}'s {measure} is that of a request that never got a response"
        ));
    }
    let Some(figure) = cell.figure(measure) else {
        let invalid = Measure::parse(measure).and_then(|of| cell.runs.iter().find_map(|run| run.why_unsound(of)));
        return Err(match (invalid, &cell.absent) {
            (Some(invalid), _) => format!("{server}'s {measure} is not valid in any run: {invalid}"),
            (None, Some(why)) => format!("{server} was left out: {}", why.text),
            (None, None) => format!("{server} has no {measure}"),
        });
    };
    // The valid runs say nothing about the others. If fewer than half of all runs are valid, they are too few to quote.
    if figure.values.len() * 2 < cell.runs.len() {
        let (valid, all) = (figure.values.len(), cell.runs.len());
        return Err(format!("{server}'s {measure} is valid in only {valid} of {all} runs"));
    }
    let (median, min, max) = (figure.median, figure.min, figure.max);
    Ok(JudgedFigure { cell, median, min, max, whose: server.clone(), unit: &figure.unit, left_out: Vec::new() })
}

fn shown(known: &JudgedFigure<'_>) -> String {
    let median = with_unit(known.median, known.unit);
    if known.min.total_cmp(&known.max).is_eq() {
        return median;
    }
    format!("{median} ({} to {})", with_unit(known.min, known.unit), with_unit(known.max, known.unit))
}

/// Formats a figure with its unit.
pub fn with_unit(value: f64, unit: &str) -> String {
    let digits = |value: f64| match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.2e}"),
    };
    match unit {
        "ns" => show::duration(value),
        "B" => show::bytes(value),
        "B/s" if value.abs() >= 1e9 => format!("{} GB/s", digits(value / 1e9)),
        "B/s" if value.abs() >= 1e6 => format!("{} MB/s", digits(value / 1e6)),
        "B/s" => format!("{} kB/s", digits(value / 1e3)),
        "1/s" => format!("{}/s", digits(value)),
        "" => digits(value),
        unit => format!("{} {unit}", digits(value)),
    }
}

#[cfg(test)]
mod tests;
