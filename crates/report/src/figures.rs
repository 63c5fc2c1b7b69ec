//! The figures of a step, as lines of a text report. Used for a running bench and for a stored result.

use crate::page::TextPage;
use crate::style::{Style, Weight};
use crate::verdict;
use flatout_load::FailureKind;
use flatout_load::judge::Figure;
use flatout_load::record::ClassRecord;
use flatout_load::report::percentiles::{Bucket, buckets};
use flatout_load::report::visible::visible;
use flatout_load::report::{Percentiles, RunReport, StepReport};
use flatout_load::stats::responses::Responses;
use flatout_units::show;

/// Formats a percentile. `None` is that of a request that never got a response.
pub fn time(value_ns: Option<u64>) -> String {
    value_ns.map_or_else(|| "never".to_owned(), |ns| show::duration(ns as f64))
}

/// Adds a table with one line per level. The lag is only of interest in an open loop.
pub fn add_levels(page: &mut TextPage, steps: &[StepReport]) {
    let has_lag = steps.iter().any(|step| step.plan.is_open());
    let mut header = vec!["offered", "responses/s", "p50", "p99", "max"];
    header.extend(has_lag.then_some("lag p99"));
    // Which successful statuses a server sent is of interest only if they vary.
    let responses: Vec<Responses> = steps.iter().map(|step| Responses::of(&step.record, &step.plan)).collect();
    let all = responses.iter().fold(Responses::default(), Responses::and);
    let has_statuses = all.statuses() > 1;
    header.extend(has_statuses.then_some("statuses"));
    header.extend(["errors", "verdict"]);
    let mut rows = vec![header.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for (step, responses) in steps.iter().zip(&responses) {
        let at = |times: &Option<Percentiles>, pick: fn(&Percentiles) -> Option<u64>| {
            times.as_ref().map_or_else(|| "-".to_owned(), |times| time(pick(times)))
        };
        let mut row = vec![
            verdict::load(step),
            show::figure(step.responses_per_s),
            at(&step.response, |times| times.p50_ns),
            at(&step.response, |times| times.p99_ns),
            at(&step.response, |times| times.max_ns),
        ];
        row.extend(has_lag.then(|| at(&step.lag, |times| times.p99_ns)));
        row.extend(has_statuses.then(|| if responses.has_successes() { responses.shares() } else { "-".to_owned() }));
        row.extend([show::percent(step.error_share), verdict::short(step)]);
        rows.push(row);
    }
    page.table(&rows, 0);
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
    add_times(page, step, all_phases);
    add_distribution(page, step);
    let resumed = match counts.tls_handshakes {
        0 => String::new(),
        all => format!("{} of {} TLS handshakes resumed a session", show::count(counts.tls_resumed), show::count(all)),
    };
    // With a warm-up or a ramp, the connections may have been opened before the measured span.
    let (connections, when) = match (counts.connections, step.record.connections.peak) {
        (0, open) if open > 0 => (open, "open at once, opened before the measurement"),
        (opened, _) if step.warm_up.elapsed_ns > 0 => (opened, "opened during the measurement"),
        (opened, _) => (opened, ""),
    };
    page.named("connections", &show::count(connections), &joined(&[when, &resumed]));
    if step.is_stopped_in_warm_up() {
        return page.named("responses", "-", "none was measured, because the run was stopped in its warm-up");
    }
    add_responses(page, step);
    if step.requests.never_begun > 0 {
        let why = "arrivals that waited too long for a free connection";
        page.named("  not started", &show::count(step.requests.never_begun), why);
    }
    add_errors(page, step);
}

/// Width of the names in the table of times, in columns. With eight times, a line has 79 columns.
const TIME_NAME_WIDTH: usize = 13;

/// Adds the table of times, and what they are.
fn add_times(page: &mut TextPage, step: &StepReport, all_phases: bool) {
    let Some(response) = &step.response else {
        return page.named("latency", "-", "there was no successful response");
    };
    let heads = ["mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max"];
    let heads: String = heads.iter().map(|head| format!("{head:>8}")).collect();
    page.painted(Weight::Faint, &format!("  {:<TIME_NAME_WIDTH$}{heads}", ""));
    let (is_open, phases) = (step.plan.is_open(), &step.phases);
    for (name, times, is_shown) in [
        ("latency", Some(response), true),
        ("  service", step.service.as_ref(), is_open),
        ("  lag", step.lag.as_ref(), is_open),
        ("  first byte", phases.wait.as_ref(), true),
        ("  transfer", phases.transfer.as_ref(), all_phases),
        ("resolve", phases.resolve.as_ref(), all_phases),
        ("connect", phases.connect.as_ref(), true),
        ("TLS handshake", phases.tls.as_ref(), true),
    ] {
        if let Some(times) = times.filter(|_| is_shown) {
            let text: String = in_table(times).iter().map(|value| format!("{value:>8}")).collect();
            page.plain(&format!("  {name:<TIME_NAME_WIDTH$}{}", page.style().paint(Weight::Strong, &text)));
        }
    }
    if let (median, tail) = (step.soundness(Figure::Median), step.soundness(Figure::Tail))
        && !(median.is_sound() && tail.is_sound())
    {
        page.named("", "", &format!("p50 {}, p99 {}", median.words(), tail.words()));
    }
    if let Some(covered) = verdict::unanswered(step) {
        page.named("", "", &covered);
    }
    let explained: &[&str] = if is_open {
        &[
            "    open loop: latency is from the time a request was due to the last byte of",
            "    its response; service is from its start, and lag from due to start",
        ]
    } else {
        &[
            "    closed loop: latency is from the end of the previous response to the end",
            "    of this one; a stall is one slow response",
        ]
    };
    let first_byte = "    first byte: from the end of the request to the first byte of its response";
    for line in explained.iter().chain([&first_byte]) {
        page.painted(Weight::Faint, line);
    }
}

/// Returns the times of a row: the mean, the percentiles and the maximum.
fn in_table(times: &Percentiles) -> [String; 8] {
    let percentiles =
        [times.p50_ns, times.p75_ns, times.p90_ns, times.p95_ns, times.p99_ns, times.p99_9_ns, times.max_ns];
    let [p50, p75, p90, p95, p99, p99_9, max] = percentiles.map(time);
    [mean(times), p50, p75, p90, p95, p99, p99_9, max]
}

/// Formats the mean. Requests without a time have no mean, although they count in the percentiles.
pub fn mean(times: &Percentiles) -> String {
    if times.max_ns.is_none() { "-".to_owned() } else { show::duration(times.mean_ns) }
}

/// Adds the distribution of the response times as a line of bars, one for each [`Bucket`].
fn add_distribution(page: &mut TextPage, step: &StepReport) {
    let buckets = buckets(&step.record.response.histogram());
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return };
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1).max(1);
    let bar = |bucket: &Bucket| match bucket.count {
        0 => ' ',
        count => BARS[(count.saturating_mul(BARS.len() as u64 - 1) / most) as usize],
    };
    let bars: String = buckets.iter().map(bar).collect();
    let (from, to) = (show::duration(first.from_ns as f64), show::duration(last.to_ns as f64));
    page.named("distribution", &format!("{from} {bars} {to}"), "");
    let failed = step.requests.failed.saturating_add(step.requests.unexpected);
    if failed > 0 {
        let responses =
            show::plural(step.record.response.histogram().len(), "successful response", "successful responses");
        let failed = show::plural(failed, "failed request is", "failed requests are");
        page.named("", "", &format!("of {responses}; {failed} not shown"));
    }
}

/// Bars from a small to the largest number of requests.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Maximum number of URLs or classes in the table of a text report that have no errors.
const CLASSES_SHOWN_MAX: usize = 10;

/// Width of the name of a URL in the table, in columns.
const CLASS_NAME_WIDTH: usize = 36;

/// Adds a table of the URLs or classes of a run, if there are several: the most requested ones, every other one with
/// errors, and the sum of the others.
pub fn add_classes(page: &mut TextPage, run: &RunReport, step: &StepReport) {
    let mut classes: Vec<(&String, &ClassRecord)> = run.class_names.iter().zip(&step.record.classes).collect();
    if classes.len() < 2 {
        return;
    }
    classes.sort_by_key(|(_, class)| std::cmp::Reverse(class.requests));
    let (shown, others): (Vec<_>, Vec<_>) = classes
        .into_iter()
        .enumerate()
        .partition(|(index, (_, class))| *index < CLASSES_SHOWN_MAX || class_errors(class) > 0);
    let header = ["URL or class", "requests", "p50", "p99", "max", "errors"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(shown.into_iter().map(|(_, (name, class))| class_row(&class_name(name, &run.url), class)));
    if !others.is_empty() {
        let requests = others.iter().fold(0, |sum: u64, (_, (_, class))| sum.saturating_add(class.requests));
        let name = show::plural(others.len() as u64, "other", "others");
        let cells = [&*name, &show::count(requests), "-", "-", "-", "0"];
        rows.push(cells.map(str::to_owned).to_vec());
    }
    page.plain("");
    page.table(&rows, 1);
}

/// Returns the number of requests of a class without a response, or with an unexpected status.
const fn class_errors(class: &ClassRecord) -> u64 {
    class.errors.saturating_add(class.failures)
}

fn class_row(name: &str, class: &ClassRecord) -> Vec<String> {
    let times = class.percentiles();
    let at = |pick: fn(&Percentiles) -> Option<u64>| {
        times.as_ref().map_or_else(|| "-".to_owned(), |times| time(pick(times)))
    };
    vec![
        name.to_owned(),
        show::count(class.requests),
        at(|times| times.p50_ns),
        at(|times| times.p99_ns),
        at(|times| times.max_ns),
        show::count(class_errors(class)),
    ]
}

/// Returns the name of a class, without the origin of the run's URL, and without the middle if it is long.
fn class_name(name: &str, url: &str) -> String {
    let origin = url.find("://").and_then(|at| url[at + 3..].find('/').map(|end| &url[..at + 3 + end]));
    let name = visible(origin.map_or(name, |origin| name.strip_prefix(origin).unwrap_or(name))).into_owned();
    let length = name.chars().count();
    if length <= CLASS_NAME_WIDTH {
        return name;
    }
    let half = (CLASS_NAME_WIDTH - 1) / 2;
    let (start, end): (String, String) =
        (name.chars().take(half).collect(), name.chars().skip(length - half).collect());
    format!("{start}…{end}")
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

/// Adds the number of responses by status, and how many successful responses were in time.
fn add_responses(page: &mut TextPage, step: &StepReport) {
    let counts = &step.record.counts;
    let requests = format!("of {} sent", show::count(counts.requests_sent));
    let interim = Some(counts.interim_responses).filter(|count| *count > 0);
    let interim = interim.map(|count| format!("1xx {}", show::count(count)));
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
