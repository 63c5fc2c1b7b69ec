//! The figures of a step, as lines of a text report. Used for a running bench and for a stored result.

use crate::page::TextPage;
use crate::style::{Style, Weight};
use crate::verdict;
use flatout_load::FailureKind;
use flatout_load::judge::{Figure, Soundness};
use flatout_load::report::{Percentiles, RunReport, StepReport};
use flatout_units::show;

/// Formats a percentile. `None` is that of a request that never got a response.
pub fn time(value_ns: Option<u64>) -> String {
    value_ns.map_or_else(|| "never".to_owned(), |ns| show::duration(ns as f64))
}

/// Adds a table with one line per level.
pub fn add_levels(page: &mut TextPage, steps: &[StepReport]) {
    let header = format!(
        "  {:>16}{:>13}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}  {}",
        "offered", "responses/s", "p50", "p90", "p99", "max", "lag p99", "errors", "verdict"
    );
    page.painted(Weight::Faint, &header);
    for step in steps {
        let at = |times: &Option<Percentiles>, pick: fn(&Percentiles) -> Option<u64>| {
            times.as_ref().map_or_else(|| "-".to_owned(), |times| time(pick(times)))
        };
        let line = format!(
            "  {:>16}{:>13}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}  {}",
            verdict::load(step),
            show::figure(step.responses_per_s),
            at(&step.response, |times| times.p50_ns),
            at(&step.response, |times| times.p90_ns),
            at(&step.response, |times| times.p99_ns),
            at(&step.response, |times| times.max_ns),
            at(&step.lag, |times| times.p99_ns),
            show::percent(step.error_share),
            verdict::short(step),
        );
        page.painted((!step.invalid.is_empty()).then_some(Weight::Warning), &line);
    }
}

/// Adds the figures of a run with one step, each on a line. With `all_phases`, adds every phase of a request.
pub fn add_figures(page: &mut TextPage, step: &StepReport, all_phases: bool) {
    let counts = &step.record.counts;
    let offered = step.offered.rate_per_s.map_or_else(String::new, |rate| {
        format!("of {} offered, {} started", show::figure(rate), show::figure(step.begun_per_s))
    });
    let failed = match step.error_share {
        share if share > 0.0 => format!("{} of all requests failed", show::percent(share)),
        _ => String::new(),
    };
    page.named(
        "requests/s",
        &show::figure(step.responses_per_s),
        &joined(&[&offered, bound(step, Figure::Rate), &failed]),
    );
    let received = format!("{}/s", show::bytes(step.bytes_in_per_s));
    page.named("received", &received, &format!("{} in total", show::bytes(counts.bytes_in() as f64)));
    match &step.response {
        Some(response) => add_latency(page, step, response),
        None => page.named("latency", "-", "there was no successful response"),
    }
    let connections = show::plural(counts.connections, "connection", "connections");
    let resumed = format!("{} of {} resumed", show::count(counts.tls_resumed), show::count(counts.tls_handshakes));
    for (name, times, note, is_shown) in [
        ("resolve", &step.phases.resolve, "", all_phases),
        ("connect", &step.phases.connect, &*connections, true),
        ("TLS handshake", &step.phases.tls, &*resumed, true),
        ("wait", &step.phases.wait, "from the end of the request to the first byte of its response", all_phases),
        ("transfer", &step.phases.transfer, "from the first byte to the last", all_phases),
    ] {
        if let Some(times) = times.as_ref().filter(|_| is_shown) {
            let shown =
                named_durations(page.style(), &[("p50", times.p50_ns), ("p99", times.p99_ns), ("max", times.max_ns)]);
            page.figures(name, &shown, note);
        }
    }
    add_responses(page, step);
    if step.requests.never_begun > 0 {
        let why = "arrivals that waited too long for a free connection";
        page.named("  not started", &show::count(step.requests.never_begun), why);
    }
    add_errors(page, step);
}

fn add_latency(page: &mut TextPage, step: &StepReport, response: &Percentiles) {
    let bounds = match (step.soundness(Figure::Median), step.soundness(Figure::Tail)) {
        (Soundness::Sound, Soundness::Sound) => String::new(),
        (median, tail) => format!("p50 {}, p99 {}", median.words(), tail.words()),
    };
    page.figures("latency", &percentiles(page.style(), response), &bounds);
    if let Some(covered) = verdict::unanswered(step) {
        page.named("", "", &covered);
    }
    if !step.plan.is_open() {
        let from =
            "closed loop: from the end of the previous response to the end of this one; a stall is one slow response";
        return page.named("", "", from);
    }
    page.named("", "", "open loop: from the time each request was due until the last byte of its response");
    if let Some(service) = &step.service {
        page.figures("  service", &percentiles(page.style(), service), "from the start of the request");
    }
    if let Some(lag) = &step.lag {
        page.figures("  lag", &percentiles(page.style(), lag), "from the due time to the start");
    }
}

/// Adds the CPU time of client and server, and what the kernel dropped. `server` is the server's figure, with a note.
pub fn add_costs(page: &mut TextPage, run: &RunReport, step: &StepReport, server: Option<(String, String)>) {
    if let Some(cost_ns) = step.client.cpu_ns_per_response {
        let threads = show::plural(u64::from(run.threads), "thread", "threads");
        let busy = show::percent(step.client.busy_share);
        let whose = if run.threads > 1 { "the busiest " } else { "" };
        let note = format!("{threads}, {whose}{busy} busy{}{}", busy_wait(step), cost_of_failures(step));
        page.named("client CPU", &per_request(cost_ns), &note);
    }
    if let Some((cost, note)) = server {
        page.named("server CPU", &cost, &format!("{note}{}", if cost == "-" { "" } else { cost_of_failures(step) }));
    }
    let Some(kernel) = &step.kernel else { return };
    if kernel.tcp_retransmits + kernel.listen_overflows + kernel.listen_drops > 0 {
        let text = format!(
            "{} retransmitted, {} listen queue overflows, {} dropped at a listener",
            show::plural(kernel.tcp_retransmits, "segment", "segments"),
            show::count(kernel.listen_overflows),
            show::count(kernel.listen_drops),
        );
        page.named("kernel", &text, "on the whole machine");
    }
}

/// Says that CPU times per successful response include those of other requests; empty if no request failed.
fn cost_of_failures(step: &StepReport) -> &'static str {
    if step.error_share > 0.0 { "; with the time for failed requests" } else { "" }
}

/// Formats CPU time per request as text.
pub fn per_request(cost_ns: f64) -> String {
    format!("{} per request", show::duration(cost_ns))
}

/// Adds the result of every requirement.
pub fn add_thresholds(page: &mut TextPage, run: &RunReport) {
    for outcome in &run.thresholds {
        let found = outcome.found.as_deref().unwrap_or("this value does not exist");
        let level = if run.steps.len() > 1 { format!(" (level {})", outcome.step + 1) } else { String::new() };
        let (weight, met) = match (outcome.unsound.is_empty(), outcome.met) {
            (false, _) => {
                let uncertain = verdict::uncertain(outcome);
                (Some(Weight::Bad), format!("UNCERTAIN: {}: {found}{level}{uncertain}", outcome.text))
            }
            (true, true) => (None, format!("required {}: met, {found}{level}", outcome.text)),
            (true, false) => (Some(Weight::Bad), format!("NOT MET: {}: {found}{level}", outcome.text)),
        };
        page.painted(weight, &format!("  {met}"));
    }
}

/// Joins the parts that are not empty.
fn joined(parts: &[&str]) -> String {
    parts.iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns the note beside a figure that is not valid; empty for a valid figure.
fn bound(step: &StepReport, figure: Figure) -> &'static str {
    let soundness = step.soundness(figure);
    if soundness.is_sound() { "" } else { soundness.words() }
}

/// Formats durations with faint names: `p50 1.00 ms   p99 ...`.
fn named_durations(style: Style, durations_ns: &[(&str, Option<u64>)]) -> String {
    let shown: Vec<String> = durations_ns
        .iter()
        .map(|(name, value_ns)| {
            let value = time(*value_ns);
            format!("{} {}", style.paint(Weight::Faint, name), style.paint(Weight::Strong, &value))
        })
        .collect();
    shown.join("   ")
}

fn percentiles(style: Style, times: &Percentiles) -> String {
    let durations_ns = [
        ("p50", times.p50_ns),
        ("p90", times.p90_ns),
        ("p99", times.p99_ns),
        ("p99.9", times.p99_9_ns),
        ("max", times.max_ns),
    ];
    named_durations(style, &durations_ns)
}

/// Adds the number of responses by status, and how many successful responses were in time.
fn add_responses(page: &mut TextPage, step: &StepReport) {
    let counts = &step.record.counts;
    let requests = format!("of {} sent", show::count(counts.requests_sent));
    let interim = Some((1, counts.status_classes[0])).filter(|(_, count)| *count > 0);
    let interim = interim.map(|(class, count)| format!("{class}xx {}", show::count(count)));
    let statuses = verdict::statuses(step).into_iter().map(|(name, count, _)| format!("{name} {}", show::count(count)));
    let statuses: Vec<String> = interim.into_iter().chain(statuses).collect();
    let statuses = if statuses.is_empty() { requests } else { format!("{}   {requests}", statuses.join("  ")) };
    page.named("responses", &show::count(counts.responses), &statuses);
    page.named("  in time", &show::count(step.requests.in_time), &verdict::asked_for(step));
    if step.requests.late > 0 {
        page.named("  late", &show::count(step.requests.late), &verdict::lateness(step));
    }
}

/// Adds the number of failures by kind, with details.
fn add_errors(page: &mut TextPage, step: &StepReport) {
    let counts = &step.record.counts;
    if counts.errors() == 0 {
        page.named("errors", "none", "");
    }
    let mut name = "errors";
    for (status, count, _) in verdict::statuses(step).into_iter().filter(|(.., is_expected)| !is_expected) {
        let expected = format!("the status is not one of {}", step.plan.expected);
        page.named(name, &format!("{} status {status}", show::count(count)), &expected);
        name = "";
    }
    if let Some(times) = &step.unexpected {
        let durations = [("p50", times.p50_ns), ("p99", times.p99_ns), ("max", times.max_ns)];
        page.figures("  response time", &named_durations(page.style(), &durations), "of unexpected statuses");
    }
    for kind in FailureKind::ALL.iter().copied().filter(|kind| counts.failures_of(*kind) > 0) {
        let details: Vec<String> = step
            .record
            .details
            .iter()
            .filter(|detail| detail.kind == kind)
            .map(|detail| format!("{} {}", detail.detail, show::count(detail.count)))
            .collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        let figure = format!("{} {}", show::count(counts.failures_of(kind)), kind.name());
        page.named(name, &figure, &format!("{}{details}", kind.text()));
        name = "";
    }
}

/// Describes the client's CPU time for busy polling, to follow its other CPU time; empty without busy polling.
fn busy_wait(step: &StepReport) -> String {
    let each = step.client.busy_wait_ns_per_response(step.record.counts.successes());
    each.map_or_else(String::new, |each_ns| format!(", and {} per response of busy polling", show::duration(each_ns)))
}
