//! Results as text: aligned, in readable units, with all problems.

use crate::bench::{BenchReport, Limit};
use crate::limits::{LimitsReport, Unit};
use crate::request::HttpVersion;
use flatout_load::judge::{Figure, Invalid, InvalidReason, Soundness};
use flatout_load::plan::{Loop, Plan, Visit};
use flatout_load::report::{Percentiles, Reason, StepReport};
use flatout_report::figures::{add_errors, add_responses, busy_wait, named_durations, percentiles};
use flatout_report::page::TextPage;
use flatout_report::style::{Style, Weight};
use flatout_report::verdict;
use flatout_units::show;

/// A bench report, ready to print.
pub fn print_bench(report: &BenchReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    let steps = &report.run.steps;
    match &steps[..] {
        [step] => {
            let head =
                format!("{}   {}", style.paint(Weight::Strong, &report.asked.url.to_string()), how(report, step));
            page.plain(&head);
            page.plain("");
            add_figures(&mut page, step);
            add_costs(&mut page, report, step);
        }
        steps => {
            let levels = show::plural(steps.len() as u64, "level", "levels");
            let threads = show::plural(report.threads as u64, "thread", "threads");
            let url = style.paint(Weight::Strong, &report.asked.url.to_string());
            page.plain(&format!("{url}   {levels}, {threads}, {}", report.run.protocol));
            page.plain("");
            match report.run.findings.get("comparison") {
                Some(comparison) => add_comparison(&mut page, comparison),
                None => add_levels(&mut page, steps),
            }
        }
    }
    if let Some(limit) = &report.limit {
        page.plain("");
        let closes = steps.last().is_some_and(|step| closes(&step.plan));
        add_limit(&mut page, limit, closes);
    }
    for finding in report.run.findings.values() {
        if let Some(sentence) = finding["sentence"].as_str() {
            page.plain("");
            page.painted(Weight::Strong, &format!("  {sentence}"));
        }
    }
    page.plain("");
    page.painted(Weight::Faint, &format!("  {}", report.run.machine));
    page.painted(Weight::Faint, &format!("  seed {}", report.run.seed));
    add_notes(&mut page, report);
    page.finish()
}

fn how(report: &BenchReport, step: &StepReport) -> String {
    let plan = &step.plan;
    let connections = connections_of(report, plan);
    let threads = show::plural(report.threads as u64, "thread", "threads");
    let used = used_as(closes(plan));
    let elapsed = show::duration(step.elapsed_ns as f64);
    let load = match (&plan.kind, step.offered.visits_per_s) {
        (Loop::Open(_), Some(rate)) => {
            format!("{} {}/s, up to {connections}", show::figure(rate), plan.visits())
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

/// Over HTTP/2 what the plan calls connections are streams, of which several share one.
fn connections_of(report: &BenchReport, plan: &Plan) -> String {
    let slots = plan.connections_used();
    match report.asked.speech.version {
        HttpVersion::Http2 { streams } if streams > 1 => {
            let connections = show::plural(u64::from(slots.div_ceil(streams)), "connection", "connections");
            format!("{connections} of {streams} streams")
        }
        _ => show::plural(u64::from(slots), "connection", "connections"),
    }
}

/// Returns true if a connection is for one request.
const fn closes(plan: &Plan) -> bool {
    matches!(plan.visit, Visit::Connection { calls: 1 }) && plan.burst == 1
}

const fn used_as(closes: bool) -> &'static str {
    if closes { "one request each" } else { "kept alive" }
}

/// A line for each compared measure. Single turns are not shown, as they mean nothing alone.
fn add_comparison(page: &mut TextPage, comparison: &serde_json::Value) {
    for subject in ["a", "b"] {
        page.plain(&format!("  {}  {}", subject.to_uppercase(), comparison[subject].as_str().unwrap_or("-")));
    }
    page.plain("");
    let header = format!("  {:<20}{:>12}{:>22}{:>24}", "", "B beside A", "95 % CI", "A beside itself");
    page.painted(Weight::Faint, &header);
    for found in comparison["comparisons"].as_array().into_iter().flatten() {
        let ratio = |of: &str, end: &str| found["comparison"][of][end].as_f64();
        let percent = |ratio: Option<f64>| {
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:+.1} %", 100.0 * (ratio - 1.0)))
        };
        let range = |of: &str| format!("{} to {}", percent(ratio(of, "low")), percent(ratio(of, "high")));
        let line = format!(
            "  {:<20}{:>12}{:>22}{:>24}",
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

/// One line per level.
fn add_levels(page: &mut TextPage, steps: &[StepReport]) {
    let header = format!(
        "  {:>12}{:>14}{:>12}{:>12}{:>12}{:>10}  {}",
        "offered", "responses/s", "p50", "p99", "lag p99", "errors", "verdict"
    );
    page.painted(Weight::Faint, &header);
    for step in steps {
        let offered = match step.offered.rate_per_s {
            Some(rate) => format!("{}/s", show::figure(rate)),
            None => format!("{} conn", show::count(u64::from(step.offered.connections))),
        };
        let at = |times: &Option<Percentiles>, pick: fn(&Percentiles) -> u64| {
            times.as_ref().map_or_else(|| "-".to_owned(), |times| show::duration(pick(times) as f64))
        };
        let verdict = verdict::short(step);
        let line = format!(
            "  {offered:>12}{:>14}{:>12}{:>12}{:>12}{:>10}  {verdict}",
            show::figure(step.responses_per_s),
            at(&step.response, |times| times.p50_ns),
            at(&step.response, |times| times.p99_ns),
            at(&step.lag, |times| times.p99_ns),
            show::percent(step.error_share),
        );
        page.painted((!step.invalid.is_empty()).then_some(Weight::Warning), &line);
    }
}

fn add_figures(page: &mut TextPage, step: &StepReport) {
    let counts = &step.record.counts;
    let offered = step.offered.rate_per_s.map_or_else(String::new, |rate| {
        format!("of {} offered, {} begun", show::figure(rate), show::figure(step.begun_per_s))
    });
    let offered: Vec<&str> =
        [offered.as_str(), bound(step, Figure::Rate)].into_iter().filter(|part| !part.is_empty()).collect();
    page.named("requests/s", &show::figure(step.responses_per_s), &offered.join("; "));
    let received = format!("{}/s", show::bytes(step.bytes_in_per_s));
    page.named("received", &received, &format!("{} in all", show::bytes(counts.bytes_in() as f64)));
    match &step.response {
        Some(response) => {
            let bounds = match (step.soundness(Figure::Median), step.soundness(Figure::Tail)) {
                (Soundness::Sound, Soundness::Sound) => String::new(),
                (median, tail) => format!("p50 {}, p99 {}", median.words(), tail.words()),
            };
            let parts = [bounds, verdict::unanswered(step).unwrap_or_default()];
            let bounds =
                parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("; ");
            page.figures("latency", &percentiles(page.style(), response), &bounds);
            if step.plan.is_open() {
                page.named("", "", "open loop: from the time each request was due until the last byte of its response");
                if let Some(service) = &step.service {
                    page.figures("  service", &percentiles(page.style(), service), "from when it was begun");
                }
                if let Some(lag) = &step.lag {
                    page.figures("  lag", &percentiles(page.style(), lag), "from due to begun");
                }
            } else {
                page.named("", "", "closed loop: from the end of the previous response to the end of this one; a stall is one slow response");
            }
        }
        None => page.named("latency", "-", "there was no response"),
    }
    if let Some(connect) = &step.phases.connect {
        let connections = show::plural(counts.connections, "connection", "connections");
        page.figures("connect", &spread(page.style(), connect), &connections);
    }
    if let Some(tls) = &step.phases.tls {
        let resumed = format!("{} of {} resumed", show::count(counts.tls_resumed), show::count(counts.tls_handshakes));
        page.figures("TLS handshake", &spread(page.style(), tls), &resumed);
    }
    add_responses(page, step, format!("of {} sent", show::count(counts.requests_sent)));
    if step.requests.never_begun > 0 {
        let why = "arrivals that waited too long for a free connection";
        page.named("  never begun", &show::count(step.requests.never_begun), why);
    }
    add_errors(page, step);
}

/// The note beside an invalid figure.
fn bound(step: &StepReport, figure: Figure) -> &'static str {
    let soundness = step.soundness(figure);
    if soundness.is_sound() { "" } else { soundness.words() }
}

fn spread(style: Style, times: &Percentiles) -> String {
    named_durations(style, &[("p50", times.p50_ns), ("p99", times.p99_ns), ("max", times.max_ns)])
}

fn add_costs(page: &mut TextPage, report: &BenchReport, step: &StepReport) {
    let per_request = |cost_ns: f64| format!("{} a request", show::duration(cost_ns));
    if let Some(cost_ns) = step.client.cpu_ns_per_response {
        let threads = show::plural(report.threads as u64, "thread", "threads");
        let busy = show::percent(step.client.busy_share);
        let whose = if report.threads > 1 { "the busiest " } else { "" };
        let rest = format!("{threads}, {whose}{busy} busy{}", busy_wait(step));
        page.named("client CPU", &per_request(cost_ns), &rest);
    }
    match &report.server {
        Ok(found) => {
            let cost = step.server.and_then(|server| server.cpu_ns_per_response);
            let cost = cost.map_or_else(|| "-".to_owned(), per_request);
            let threads = show::plural(found.busy_threads as u64, "busy thread", "busy threads");
            let processes = show::plural(found.processes.len() as u64, "process", "processes");
            let clock = step.server.map_or_else(String::new, |server| format!("; {}", server.cpu_clock.words()));
            page.named("server CPU", &cost, &format!("{}, {processes}, {threads}{clock}", found.name));
        }
        Err(why) => page.named("server CPU", "-", &format!("not known: {why}")),
    }
    let Some(kernel) = &step.kernel else { return };
    if kernel.tcp_retransmits + kernel.listen_overflows + kernel.listen_drops > 0 {
        let text = format!(
            "{} sent again, {} listen queue overflows, {} dropped at a listener",
            show::plural(kernel.tcp_retransmits, "segment", "segments"),
            show::count(kernel.listen_overflows),
            show::count(kernel.listen_drops),
        );
        page.named("kernel", &text, "of the whole machine");
    }
}

fn add_limit(page: &mut TextPage, limit: &Limit, closes: bool) {
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
    let share = format!("this run: {} of it", show::percent(limit.requests_share));
    page.named("  requests/s", &show::figure(limit.requests_per_s), &share);
    let ratio = limit.cpu_ratio.map_or_else(String::new, |ratio| format!("this run: {ratio:.2} x"));
    page.named("  CPU", &format!("{} a request", show::duration(limit.cpu_ns_per_request)), &ratio);
}

fn add_notes(page: &mut TextPage, report: &BenchReport) {
    let notes = report.notes();
    let steps = &report.run.steps;
    let is_quiet = steps.iter().all(|step| step.invalid.is_empty() && step.failing.is_empty());
    if !notes.is_empty() || !is_quiet || !report.run.thresholds.is_empty() {
        page.plain("");
    }
    for told in alike(notes.iter().map(|note| (note.kind(), note.to_string()))) {
        page.painted(Weight::Warning, &format!("  note: {told}"));
    }
    for outcome in &report.run.thresholds {
        let found = outcome.found.as_deref().unwrap_or("there is no such value");
        let (weight, met) = match (outcome.unsound.is_empty(), outcome.met) {
            (false, _) => {
                (Some(Weight::Bad), format!("NOT CERTAIN: {}: {found}{}", outcome.text, verdict::uncertain(outcome)))
            }
            (true, true) => (None, format!("required {}: met, {found}", outcome.text)),
            (true, false) => (Some(Weight::Bad), format!("MISSED: {}: {found}", outcome.text)),
        };
        page.painted(weight, &format!("  {met}"));
    }
    // Where there are several levels, a reason says which one it is about.
    let level = |step: &StepReport| {
        if steps.len() > 1 { format!(" at level {}", step.step + 1) } else { String::new() }
    };
    if let [step] = &steps[..] {
        add_worth(page, step);
    }
    let invalid = steps.iter().flat_map(|step| {
        let told = |invalid: &Invalid| {
            let (name, touched) = (invalid.reason.name(), verdict::touched(step, invalid.reason));
            format!("{name}{}: {}. {touched}.", level(step), invalid.text)
        };
        step.invalid.iter().map(move |invalid| (invalid.reason, told(invalid)))
    });
    let failing = steps.iter().flat_map(|step| {
        let told = |reason: &Reason| format!("FAILED{}: {}", level(step), reason.text);
        step.failing.iter().map(move |reason| (reason.name.clone(), told(reason)))
    });
    let invalid: Vec<(InvalidReason, String)> = invalid.collect();
    let mut reasons: Vec<InvalidReason> = Vec::new();
    for told in alike(invalid.iter().map(|(reason, told)| (reason.name().to_owned(), told.clone()))) {
        page.painted(Weight::Warning, &format!("  {told}"));
        // The same reasons in the same order.
        let next = invalid.iter().map(|(reason, _)| *reason).find(|reason| !reasons.contains(reason));
        if let Some(reason) = next {
            reasons.push(reason);
            let help = format!("    What to do: {} (flatout help {}).", reason.remedy(), reason.name());
            page.plain(&help);
        }
    }
    for told in alike(failing) {
        page.painted(Weight::Bad, &format!("  {told}"));
    }
}

/// Names the figures that do not hold.
fn add_worth(page: &mut TextPage, step: &StepReport) {
    if step.invalid.is_empty() {
        return;
    }
    let weight = if step.has_sound() { Weight::Warning } else { Weight::Bad };
    let headline = if step.has_sound() { "  Not every figure holds" } else { "  INVALID: no figure holds" };
    page.painted(weight, &format!("{headline}: {}.", verdict::worth(step)));
}

/// Each kind of remark once, with the number of others of its kind: a comparison has dozens of levels.
fn alike(remarks: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let mut kinds: Vec<(String, String, u64)> = Vec::new();
    for (name, text) in remarks {
        match kinds.iter_mut().find(|(kind, ..)| *kind == name) {
            Some((.., others)) => *others += 1,
            None => kinds.push((name, text, 0)),
        }
    }
    let told = |(_, text, others): (String, String, u64)| match others {
        0 => text,
        others => format!("{text} (and {others} more of that kind)"),
    };
    kinds.into_iter().map(told).collect()
}

/// A limits report, ready to print: every measure with its median, minimum and maximum.
pub fn print_limits(report: &LimitsReport, style: Style) -> String {
    let mut page = TextPage::new(style);
    let rounds = show::plural(u64::from(report.plan.rounds), "round", "rounds");
    let probe = show::duration(report.plan.probe.as_nanos() as f64);
    let cores = match report.cores.cores_used() {
        1 => "both roles on one core".to_owned(),
        _ => format!("server role on core {}, client role on core {}", report.cores.server, report.cores.client),
    };
    page.painted(Weight::Strong, "Limits of this machine, over loopback");
    page.painted(Weight::Faint, &format!("{rounds} of {probe} a probe; {cores}"));
    page.plain("");
    let header = format!("  {:<36}{:>14}{:>14}{:>14}", "", "median", "min", "max");
    page.painted(Weight::Faint, &header);
    for (measure, spread) in &report.measures {
        let is_measured = !spread.readings().is_empty();
        let show = |value: f64| if is_measured { quantity(measure.unit(), value) } else { "-".to_owned() };
        let median = style.paint(Weight::Strong, &format!("{:>14}", show(spread.median())));
        let around = format!("{:>14}{:>14}", show(spread.min()), show(spread.max()));
        page.plain(&format!("  {:<36}{median}{}", measure.words(), style.paint(Weight::Faint, &around)));
    }
    page.plain("");
    let body = show::bytes(report.plan.body_bytes as f64);
    page.painted(Weight::Faint, &format!("  bodies of the bare loop have {body} unless stated otherwise"));
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
