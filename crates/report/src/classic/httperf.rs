//! httperf's report (src/stat/basic.c and sess_stat.c of 0.9.0).

use super::{ms, note, parse_url, ratio, reply_rates, seconds, spread};
use flatout_load::FailureKind;
use flatout_load::plan::{Loop, Stop, Visit};
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

/// Failures that httperf names in its two error lines. All other failures count as its `other`.
const FIRST: [FailureKind; 4] =
    [FailureKind::ClientTimo, FailureKind::SocketTimo, FailureKind::ConnRefused, FailureKind::ConnReset];
const SECOND: [FailureKind; 3] = [FailureKind::FdUnavail, FailureKind::AddrUnavail, FailureKind::FtabFull];

pub(super) fn print(report: &RunReport, step: &StepReport) -> String {
    let (record, counts, elapsed_s) = (&step.record, &step.record.counts, seconds(step));
    let mut text = String::new();
    let _ = writeln!(text, "{}", command(report, step));
    let _ = writeln!(text, "Maximum connect burst length: {}\n", step.tally.backlog_peak.max(1));
    let _ = writeln!(
        text,
        "Total: connections {} requests {} replies {} test-duration {elapsed_s:.3} s\n",
        counts.connects_begun, counts.requests_sent, counts.responses
    );
    add_connections(&mut text, step, elapsed_s);
    let _ = writeln!(
        text,
        "Request rate: {:.1} req/s ({:.1} ms/req)",
        counts.requests_sent as f64 / elapsed_s,
        ratio(1e3 * elapsed_s, counts.requests_sent as f64)
    );
    let _ = writeln!(text, "Request size [B]: {:.1}\n", ratio(counts.bytes_out as f64, counts.requests_sent as f64));
    let (_, rates) = reply_rates(record, step.elapsed_ns);
    let (min, avg, max, deviation) = spread(&rates);
    let _ = writeln!(
        text,
        "Reply rate [replies/s]: min {min:.1} avg {avg:.1} max {max:.1} stddev {deviation:.1} ({} samples)",
        rates.len()
    );
    let mean_ms = |sums: &flatout_load::record::Moments| ms(sums.mean().unwrap_or(0.0));
    let _ = writeln!(
        text,
        "Reply time [ms]: response {:.1} transfer {:.1}",
        mean_ms(&record.sums.wait_ns),
        mean_ms(&record.sums.transfer_ns)
    );
    let content = record.sums.body_bytes.mean().unwrap_or(0.0);
    let whole = record.sums.response_bytes.mean().unwrap_or(0.0);
    let _ = writeln!(
        text,
        "Reply size [B]: header {:.1} content {content:.1} footer 0.0 (total {whole:.1})",
        whole - content
    );
    let [informational, success, redirection, client_error, server_error] = counts.status_classes;
    let _ = writeln!(
        text,
        "Reply status: 1xx={informational} 2xx={success} 3xx={redirection} 4xx={client_error} 5xx={server_error}\n"
    );
    add_costs(&mut text, step, elapsed_s);
    add_errors(&mut text, step);
    if let Visit::Session { .. } = step.plan.visit {
        add_sessions(&mut text, step, elapsed_s);
    }
    text.push('\n');
    add_notes(&mut text, step);
    text
}

/// Returns the equivalent httperf command line.
fn command(report: &RunReport, step: &StepReport) -> String {
    let url = parse_url(report);
    let mut text = format!(
        "httperf --timeout={} --client=0/1 --server={} --port={} --uri={}",
        report.request_timeout_ns as f64 / 1e9,
        url.host,
        url.port,
        url.target,
    );
    if url.secure {
        text.push_str(" --ssl");
    }
    let visits = step.tally.visits;
    let rate = step.offered.visits_per_s.unwrap_or(0.0);
    let period = match &step.plan.kind {
        Loop::Open(arrivals) => match arrivals.kind {
            flatout_load::plan::ArrivalKind::Exp => format!(" --period=e{}", ratio(1.0, rate)),
            flatout_load::plan::ArrivalKind::Uniform { spread } => {
                format!(" --period=u{},{}", ratio(1.0 - spread, rate), ratio(1.0 + spread, rate))
            }
            flatout_load::plan::ArrivalKind::Fixed => format!(" --rate={rate}"),
        },
        Loop::Closed => String::new(),
    };
    text.push_str(&period);
    if step.plan.burst > 1 {
        let _ = write!(text, " --burst-length={}", step.plan.burst);
    }
    match &step.plan.visit {
        Visit::Session { length } => {
            let think_s = step.plan.think_ns.mean() / 1e9;
            let _ = write!(text, " --wsess={visits},{},{think_s:.3}", length.mean());
        }
        Visit::Connection { calls } => {
            let _ = write!(text, " --num-conns={visits} --num-calls={calls}");
        }
        Visit::Request => {
            let connections = step.record.counts.connects_begun.max(1);
            let calls = step.record.counts.requests_begun.div_ceil(connections);
            let _ = write!(text, " --num-conns={connections} --num-calls={calls}");
        }
    }
    text
}

fn add_connections(text: &mut String, step: &StepReport, elapsed_s: f64) {
    let (record, counts) = (&step.record, &step.record.counts);
    let _ = writeln!(
        text,
        "Connection rate: {:.1} conn/s ({:.1} ms/conn, <={} concurrent connections)",
        counts.connects_begun as f64 / elapsed_s,
        ratio(1e3 * elapsed_s, counts.connects_begun as f64),
        record.connections.peak
    );
    let lifetime = &record.connections.lifetime_ns;
    let median_ns = record.connections.lifetime.percentiles(0).and_then(|lifetimes| lifetimes.p50_ns).unwrap_or(0);
    let _ = writeln!(
        text,
        "Connection time [ms]: min {:.1} avg {:.1} max {:.1} median {:.1} stddev {:.1}",
        ms(lifetime.min as f64),
        ms(lifetime.mean().unwrap_or(0.0)),
        ms(lifetime.max as f64),
        ms(median_ns as f64),
        ms(lifetime.deviation_sample().unwrap_or(0.0))
    );
    let _ = writeln!(text, "Connection time [ms]: connect {:.1}", ms(record.sums.connect_ns.mean().unwrap_or(0.0)));
    let _ =
        writeln!(text, "Connection length [replies/conn]: {:.3}\n", record.connections.replies.mean().unwrap_or(0.0));
}

fn add_costs(text: &mut String, step: &StepReport, elapsed_s: f64) {
    let cpu = step.client.cpu;
    let (user_s, system_s) = (cpu.user_ns as f64 / 1e9, cpu.system_ns as f64 / 1e9);
    let share = |cpu_s: f64| 100.0 * cpu_s / elapsed_s;
    let _ = writeln!(
        text,
        "CPU time [s]: user {user_s:.2} system {system_s:.2} (user {:.1}% system {:.1}% total {:.1}%)",
        share(user_s),
        share(system_s),
        share(user_s + system_s)
    );
    let counts = &step.record.counts;
    let bytes_per_s = (counts.bytes_out + counts.bytes_in()) as f64 / elapsed_s;
    let _ = writeln!(text, "Net I/O: {:.1} KB/s ({:.1}*10^6 bps)\n", bytes_per_s / 1024.0, 8.0 * bytes_per_s / 1e6);
}

fn add_errors(text: &mut String, step: &StepReport) {
    let counts = &step.record.counts;
    let listed = |kinds: &[FailureKind]| -> String {
        kinds.iter().map(|kind| format!(" {} {}", kind.name(), counts.failures_of(*kind))).collect()
    };
    let named: u64 = FIRST.iter().chain(&SECOND).map(|kind| counts.failures_of(*kind)).sum();
    let total = counts.failures_total();
    let _ = writeln!(text, "Errors: total {total}{}", listed(&FIRST));
    let _ = writeln!(text, "Errors:{} other {}", listed(&SECOND), total - named);
}

fn add_sessions(text: &mut String, step: &StepReport, elapsed_s: f64) {
    let (record, tally) = (&step.record, &step.tally);
    let rate = tally.visits_completed as f64 / elapsed_s;
    let _ = writeln!(
        text,
        "\nSession rate [sess/s]: min 0.00 avg {rate:.2} max 0.00 stddev 0.00 ({}/{})",
        tally.visits_completed, tally.visits
    );
    let each = ratio(record.counts.connects_begun as f64, tally.visits as f64);
    let _ = writeln!(text, "Session: avg {each:.2} connections/session");
    let lifetime_s = record.connections.lifetime_ns.mean().unwrap_or(0.0) / 1e9;
    let _ = writeln!(text, "Session lifetime [s]: {lifetime_s:.1}");
    let failed_s = record.sums.failed_ns.mean().unwrap_or(0.0) / 1e9;
    let _ = writeln!(text, "Session failtime [s]: {failed_s:.1}");
    let replies = &record.connections.replies;
    let _ = writeln!(
        text,
        "Session length histogram: min {} avg {:.2} max {}",
        replies.min,
        replies.mean().unwrap_or(0.0),
        replies.max
    );
}

fn add_notes(text: &mut String, step: &StepReport) {
    let record = &step.record;
    if let Some(response) = &step.response {
        let shown =
            |value_ns: Option<u64>| value_ns.map_or_else(|| "never".to_owned(), |ns| format!("{:.1}", ms(ns as f64)));
        let figures = [("p50", response.p50_ns), ("p99", response.p99_ns), ("max", response.max_ns)];
        let words = figures.map(|(name, value_ns)| format!("{name} {}", shown(value_ns))).join(" ");
        note(
            text,
            &format!(
                "From the intended start to the last byte [ms]: {words}. httperf measures from the actual start and reports connecting separately."
            ),
        );
    }
    let (interval_s, rates) = reply_rates(record, step.elapsed_ns);
    note(
        text,
        &format!(
            "Reply rate: mean of {} samples of {interval_s} s, as in httperf; over the whole time it is {:.1} replies/s.",
            rates.len(),
            step.responses_per_s
        ),
    );
    note(
        text,
        "The median of connection times has three significant digits; httperf prints the middle of a bin of 1 ms.",
    );
    note(text, "Sizes are exact means; httperf uses integer division. Chunk framing counts as header, and in Net I/O.");
    note(
        text,
        "addrunavail is counted separately; httperf declares it but counts it as other. Connect burst: the maximum number of arrivals that waited at the same time.",
    );
    let others: Vec<String> = FailureKind::ALL
        .iter()
        .copied()
        .filter(|kind| !FIRST.contains(kind) && !SECOND.contains(kind))
        .filter(|kind| record.counts.failures_of(*kind) > 0)
        .map(|kind| format!("{} {}", kind.name(), record.counts.failures_of(kind)))
        .collect();
    if !others.is_empty() {
        note(text, &format!("Counted as other: {}.", others.join(", ")));
    }
    if matches!(step.plan.stop, Stop::Tight { .. }) {
        note(text, "The run ended when its mean had the required precision, not after a fixed number of connections.");
    }
    if matches!(step.plan.visit, Visit::Session { .. }) {
        note(
            text,
            "Sessions have one connection each. Their lengths are summarized, not listed; rates per interval are not recorded.",
        );
    }
}
