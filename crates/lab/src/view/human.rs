//! Results as text: aligned, in readable units, and with all problems.

use crate::bench::{BenchReport, Limit};
use crate::limits::{LimitsReport, Unit};
use crate::request::HttpVersion;
use flatout_load::judge::{Invalid, InvalidReason};
use flatout_load::plan::{Loop, Plan, Visit};
use flatout_load::report::{Reason, StepReport};
use flatout_load::stats::compare::FAILED_SHARE_DIFFERENCE_MAX;
use flatout_report::figures::{add_classes, add_costs, add_figures, add_levels, add_thresholds, per_request};
use flatout_report::page::TextPage;
use flatout_report::style::{Style, Weight};
use flatout_report::verdict;
use flatout_units::show;

/// Formats a bench report for printing.
pub fn print_bench(report: &BenchReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    let steps = &report.run.steps;
    match &steps[..] {
        [step] => {
            let head =
                format!("{}   {}", style.paint(Weight::Strong, &report.asked.url.to_string()), how(report, step));
            page.plain(&head);
            add_outcome(&mut page, report);
            add_figures(&mut page, step, false);
            add_costs(&mut page, &report.run, step, Some(server_cost(report, step)));
            add_classes(&mut page, &report.run, step);
        }
        steps => {
            let levels = show::plural(steps.len() as u64, "level", "levels");
            let threads = show::plural(report.threads as u64, "thread", "threads");
            let url = style.paint(Weight::Strong, &report.asked.url.to_string());
            page.plain(&format!("{url}   {levels}, {threads}, {}", report.run.protocol));
            add_outcome(&mut page, report);
            match report.run.findings.get("comparison") {
                Some(comparison) => add_comparison(&mut page, comparison),
                None => add_levels(&mut page, steps),
            }
        }
    }
    if let Some(limit) = &report.limit {
        page.plain("");
        let closes = steps.last().is_some_and(|step| closes(&step.plan));
        // The bare loop has no failed requests, so a run with many is not comparable with it.
        let is_comparable = steps.iter().all(|step| step.error_share <= FAILED_SHARE_DIFFERENCE_MAX);
        add_limit(&mut page, limit, closes, is_comparable);
    }
    page.plain("");
    page.painted(Weight::Faint, &format!("  {}", report.run.machine));
    page.painted(Weight::Faint, &format!("  seed {}", report.run.seed));
    add_notes(&mut page, report);
    page.finish()
}

fn how(report: &BenchReport, step: &StepReport) -> String {
    let plan = &step.plan;
    let connections = connections_of(report, step);
    let threads = show::plural(report.threads as u64, "thread", "threads");
    let used = used_as(closes(plan));
    let elapsed = show::duration(step.elapsed_ns as f64);
    let load = match (&plan.kind, step.offered.visits_per_s) {
        (Loop::Open(_), Some(rate)) => {
            let peak = show::count(step.record.connections.peak);
            format!("{} {}/s, {peak} of up to {connections}", show::figure(rate), plan.visits())
        }
        _ => connections,
    };
    match plan.counted() {
        Some((count, what)) => {
            let counted = show::plural(count, what.trim_end_matches('s'), what);
            format!("{counted} in {elapsed}, {load}, {used}, {threads}")
        }
        None => format!("{load}, {used}, {threads}, {elapsed}"),
    }
}

/// Describes the connections of a plan. Over HTTP/2 and HTTP/3, these are streams, several of which share a connection.
fn connections_of(report: &BenchReport, step: &StepReport) -> String {
    let slots = step.plan.connections_used();
    let version = report.asked.speech.version;
    let over = if matches!(version, HttpVersion::Http3 { .. }) { " over HTTP/3" } else { "" };
    match version.streams().map(|streams| streams.per_connection) {
        Some(streams) if streams > 1 => {
            let connections = show::plural(u64::from(slots.div_ceil(streams)), "connection", "connections");
            let used = step.tally.streams_max.unwrap_or(streams);
            format!("{connections} of {} streams{over}", used.min(streams))
        }
        _ => format!("{}{over}", show::plural(u64::from(slots), "connection", "connections")),
    }
}

/// Returns whether each connection carries only one request.
const fn closes(plan: &Plan) -> bool {
    matches!(plan.visit, Visit::Connection { calls: 1 }) && plan.burst == 1
}

const fn used_as(closes: bool) -> &'static str {
    if closes { "one request each" } else { "kept alive" }
}

/// Adds a line for each compared measure. Single turns are not shown, because they mean nothing on their own.
fn add_comparison(page: &mut TextPage, comparison: &serde_json::Value) {
    for subject in ["a", "b"] {
        page.plain(&format!("  {}  {}", subject.to_uppercase(), comparison[subject].as_str().unwrap_or("-")));
    }
    page.plain("");
    let header = format!("  {:<20}{:>12} {:>21} {:>23}", "", "B against A", "95 % CI", "A against A");
    page.painted(Weight::Faint, &header);
    for found in comparison["comparisons"].as_array().into_iter().flatten() {
        let ratio = |of: &str, end: &str| found["comparison"][of][end].as_f64();
        let percent = |ratio: Option<f64>| {
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:+.1} %", 100.0 * (ratio - 1.0)))
        };
        let range = |of: &str| format!("{} to {}", percent(ratio(of, "low")), percent(ratio(of, "high")));
        let line = format!(
            "  {:<20}{:>12} {:>21} {:>23}",
            found["measure"].as_str().unwrap_or("-"),
            percent(ratio("ratio", "estimate")),
            range("ratio"),
            range("same")
        );
        let is_shown = found["is_shown"].as_bool().unwrap_or_default();
        page.painted(is_shown.then_some(Weight::Strong), &line);
    }
    for left_out in comparison["not_compared"].as_array().into_iter().flatten() {
        page.painted(Weight::Warning, &format!("  {}", left_out["sentence"].as_str().unwrap_or("-")));
    }
}

/// Returns the server's CPU time, and the processes for which it was measured.
fn server_cost(report: &BenchReport, step: &StepReport) -> (String, String) {
    match &report.server {
        Ok(found) => {
            let cost = step.server.and_then(|server| server.cpu_ns_per_response);
            let threads = show::plural(found.busy_threads as u64, "busy thread", "busy threads");
            let processes = show::plural(found.processes.len() as u64, "process", "processes");
            let clock = step.server.map_or_else(String::new, |server| format!("; {}", server.cpu_clock.words()));
            let note = format!("{}, {processes}, {threads}{clock}", found.name);
            (cost.map_or_else(|| "-".to_owned(), per_request), note)
        }
        Err(why) => ("-".to_owned(), format!("unknown: {why}")),
    }
}

fn add_limit(page: &mut TextPage, limit: &Limit, closes: bool, is_comparable: bool) {
    let threads = show::plural(limit.threads as u64, "thread", "threads");
    let body = show::bytes(limit.body_bytes as f64);
    let way = if limit.by_sendfile { "by sendfile" } else { "from memory" };
    let elapsed = show::duration(limit.elapsed_ns as f64);
    let how = format!("bare loop on {threads}, {body} bodies {way}, {}, {elapsed}", used_as(closes));
    page.named("machine limit", "", &how);
    if limit.failures > 0 {
        let failures = show::plural(limit.failures, "request failed", "requests failed");
        page.named("", &failures, "do not trust the comparison");
    }
    let share = if is_comparable {
        format!("this run: {} of that limit", show::percent(limit.requests_share))
    } else {
        "not compared with this run, in which requests failed".to_owned()
    };
    page.named("  requests/s", &show::figure(limit.requests_per_s), &share);
    let ratio =
        limit.cpu_ratio.filter(|_| is_comparable).map_or_else(String::new, |ratio| format!("this run: {ratio:.2} x"));
    page.named("  CPU", &per_request(limit.cpu_ns_per_request), &ratio);
}

/// Adds the outcome of the run: the answer to its question, whether the figures are valid, requirements and failures.
fn add_outcome(page: &mut TextPage, report: &BenchReport) {
    let steps = &report.run.steps;
    page.plain("");
    let sentences = report.run.findings.values().filter_map(|finding| finding["sentence"].as_str());
    sentences.for_each(|sentence| page.painted(Weight::Strong, &format!("  {sentence}")));
    let sizes = report.run.findings.values().filter_map(|finding| finding["sizes"].as_str());
    sizes.for_each(|sizes| page.painted(Weight::Warning, &format!("  {sizes}")));
    // Single turns of a comparison mean nothing on their own.
    if !report.run.findings.contains_key("comparison") {
        let (tone, headline) = verdict::headline(&report.run);
        page.painted(verdict::weight(tone), &format!("  {headline}"));
    }
    add_thresholds(page, &report.run);
    let failing = steps.iter().flat_map(|step| {
        let failure = |reason: &Reason| format!("FAILED{}: {}", level(report, step), reason.text);
        step.failing.iter().map(move |reason| (reason.name.clone(), failure(reason)))
    });
    for failure in alike(failing) {
        page.painted(Weight::Bad, &format!("  {failure}"));
    }
    page.plain("");
}

/// Names the level of a step, if there are several.
fn level(report: &BenchReport, step: &StepReport) -> String {
    if report.run.steps.len() > 1 { format!(" at level {}", step.step + 1) } else { String::new() }
}

/// Adds the notes, and the reasons why figures are not valid, with what to do about them.
fn add_notes(page: &mut TextPage, report: &BenchReport) {
    let notes = report.notes();
    let steps = &report.run.steps;
    if !notes.is_empty() || steps.iter().any(|step| !step.invalid.is_empty()) {
        page.plain("");
    }
    for note in alike(notes.iter().map(|note| (note.kind(), note.to_string()))) {
        page.painted(Weight::Warning, &format!("  note: {note}"));
    }
    let invalid = steps.iter().flat_map(|step| {
        let sentence = |invalid: &Invalid| {
            let (name, touched) = (invalid.reason.name(), verdict::touched(step, invalid.reason));
            format!("{name}{}: {}. {touched}.", level(report, step), invalid.text)
        };
        step.invalid.iter().map(move |invalid| (invalid.reason, sentence(invalid)))
    });
    let invalid: Vec<(InvalidReason, String)> = invalid.collect();
    let mut reasons: Vec<InvalidReason> = Vec::new();
    for sentence in alike(invalid.iter().map(|(reason, text)| (reason.name().to_owned(), text.clone()))) {
        page.painted(Weight::Warning, &format!("  {sentence}"));
        // List the reasons in the order of the table.
        let next = invalid.iter().map(|(reason, _)| *reason).find(|reason| !reasons.contains(reason));
        if let Some(reason) = next {
            reasons.push(reason);
            let help = format!("    What to do: {} (flatout help {}).", reason.remedy(), reason.name());
            page.plain(&help);
        }
    }
}

/// Returns each kind of remark once, with the number of similar remarks: a comparison has dozens of levels.
fn alike(remarks: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let mut kinds: Vec<(String, String, u64)> = Vec::new();
    for (name, text) in remarks {
        match kinds.iter_mut().find(|(kind, ..)| *kind == name) {
            Some((.., others)) => *others += 1,
            None => kinds.push((name, text, 0)),
        }
    }
    let sentence = |(_, text, others): (String, String, u64)| match others {
        0 => text,
        others => format!("{text} (and {others} more of that kind)"),
    };
    kinds.into_iter().map(sentence).collect()
}

/// Formats a limits report for printing: every measure with its median, minimum and maximum.
pub fn print_limits(report: &LimitsReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    let rounds = show::plural(u64::from(report.plan.rounds), "round", "rounds");
    let probe = show::duration(report.plan.probe.as_nanos() as f64);
    let cores = match report.cores.cores_used() {
        1 => "both roles on one core".to_owned(),
        _ => format!("server role on core {}, client role on core {}", report.cores.server, report.cores.client),
    };
    page.painted(Weight::Strong, "Limits of this machine, over loopback");
    page.painted(Weight::Faint, &format!("{rounds} of {probe} per probe; {cores}"));
    page.plain("");
    let header = format!("  {:<36}{:>14}{:>14}{:>14}", "", "median", "min", "max");
    page.painted(Weight::Faint, &header);
    for (measure, spread) in &report.measures {
        let is_measured = !spread.readings().is_empty();
        let show = |value: f64| if is_measured { quantity(measure.unit(), value) } else { "-".to_owned() };
        let median = style.paint(Weight::Strong, &format!("{:>14}", show(spread.median())));
        let around = format!("{:>14}{:>14}", show(spread.min()), show(spread.max()));
        page.plain(&format!("  {:<36}{median}{}", measure.text(), style.paint(Weight::Faint, &around)));
    }
    page.plain("");
    let body = show::bytes(report.plan.body_bytes as f64);
    page.painted(Weight::Faint, &format!("  response bodies of the bare loop have {body} unless stated otherwise"));
    page.painted(Weight::Faint, &format!("  {}", report.machine));
    add_limits_notes(&mut page, report);
    page.finish()
}

fn add_limits_notes(page: &mut TextPage, report: &LimitsReport) {
    let notes = report.notes();
    if !notes.is_empty() || !report.gaps.is_empty() {
        page.plain("");
    }
    for note in notes {
        page.painted(Weight::Warning, &format!("  note: {note}"));
    }
    for gap in &report.gaps {
        page.painted(Weight::Bad, &format!("  FAILED: {gap}"));
    }
}

fn quantity(unit: Unit, value: f64) -> String {
    match unit {
        Unit::PerSecond => format!("{}/s", show::figure(value)),
        Unit::BytesPerSecond => format!("{}/s", show::bytes(value)),
        Unit::Nanoseconds | Unit::NanosecondsPerMebibyte => show::duration(value),
    }
}

#[cfg(test)]
mod tests;
