//! wrk's report with `--latency` (src/wrk.c and src/units.c of 4.1).

use super::{connections, note, seconds, spread};
use flatout_load::FailureKind;
use flatout_load::report::percentiles::quantile_ns;
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

pub(super) fn print(report: &RunReport, step: &StepReport) -> String {
    let (counts, elapsed_s) = (&step.record.counts, seconds(step));
    let threads = report.threads.max(1);
    let mut text = String::new();
    let _ = writeln!(text, "Running {} test @ {}", seconds_text(elapsed_s, 0), report.url);
    let _ = writeln!(text, "  {threads} threads and {} connections", connections(step));
    let _ = writeln!(text, "  Thread Stats{:>6}{:>11}{:>8}{:>12}", "Avg", "Stdev", "Max", "+/- Stdev");
    let service = step.record.service.histogram();
    let (mean_us, deviation_us) =
        if service.is_empty() { (0.0, 0.0) } else { (service.mean() / 1e3, service.stdev() / 1e3) };
    let at = |quantile: f64| match quantile_ns(&service, quantile, step.requests.failed) {
        _ if service.is_empty() => time_text(0.0),
        Some(ns) => time_text(ns as f64 / 1e3),
        None => "never".to_owned(),
    };
    let within = {
        let (low_ns, high_ns) = ((mean_us - deviation_us).max(0.0) * 1e3, (mean_us + deviation_us) * 1e3);
        let inside = service.count_between(low_ns as u64, high_ns as u64);
        if service.is_empty() { 0.0 } else { 100.0 * inside as f64 / service.len() as f64 }
    };
    add_stats(&mut text, "Latency", [time_text(mean_us), time_text(deviation_us), at(1.0)], within);
    let (interval_s, rates) = {
        let from_ns = step.record.measured_from_ns;
        step.record.series.reply_rates(1, from_ns, from_ns.saturating_add(step.elapsed_ns))
    };
    let rates: Vec<f64> = rates.into_iter().map(|rate| rate / f64::from(threads)).collect();
    let (_, mean, max, deviation) = spread(&rates);
    let within = rates.iter().filter(|rate| (**rate - mean).abs() <= deviation).count();
    let within = if rates.is_empty() { 0.0 } else { 100.0 * within as f64 / rates.len() as f64 };
    add_stats(&mut text, "Req/Sec", [metric_text(mean), metric_text(deviation), metric_text(max)], within);
    text.push_str("  Latency Distribution\n");
    for (percent, quantile) in [(50, 0.5), (75, 0.75), (90, 0.9), (99, 0.99)] {
        let _ = writeln!(text, "{percent:>7}%{}", padded(&at(quantile), 10).trim_end());
    }
    let runtime = if elapsed_s >= 1.0 { seconds_text(elapsed_s, 2) } else { time_text(elapsed_s * 1e6) };
    let _ =
        writeln!(text, "  {} requests in {runtime}, {}B read", counts.responses, binary_text(counts.bytes_in() as f64));
    add_errors(&mut text, step);
    let _ = writeln!(text, "Requests/sec: {:>9.2}", step.responses_per_s);
    let _ = writeln!(text, "Transfer/sec: {:>10}B", binary_text(counts.bytes_in() as f64 / elapsed_s));
    text.push('\n');
    note(
        &mut text,
        "Latency is measured from the time the client started (sending, or connecting) to the last byte. wrk adds synthetic samples for requests that it assumes it missed; this output has none.",
    );
    if let Some(response) = &step.response
        && step.plan.is_open()
    {
        let figures = [response.p50_ns, response.p90_ns, response.p99_ns]
            .map(|ns| ns.map_or_else(|| "never".to_owned(), |ns| time_text(ns as f64 / 1e3)));
        note(
            &mut text,
            &format!(
                "From the intended start, which wrk cannot know: 50% {}, 90% {}, 99% {}.",
                figures[0], figures[1], figures[2]
            ),
        );
    }
    note(
        &mut text,
        &format!(
            "Req/Sec has {} samples of {interval_s} s, divided by the number of threads; wrk takes samples of 100 ms from each thread.",
            rates.len()
        ),
    );
    note(
        &mut text,
        "Only complete responses count as requests, and only successful ones in Requests/sec; wrk does not count lost connections.",
    );
    text
}

fn add_stats(text: &mut String, name: &str, figures: [String; 3], within: f64) {
    let [mean, deviation, max] = figures;
    let (mean, deviation, max) = (padded(&mean, 8), padded(&deviation, 10), padded(&max, 9));
    let _ = writeln!(text, "    {name:<10}{mean}{deviation}{max}{within:>8.2}%");
}

fn add_errors(text: &mut String, step: &StepReport) {
    let counts = &step.record.counts;
    let of = |kinds: &[FailureKind]| kinds.iter().map(|kind| counts.failures_of(*kind)).sum::<u64>();
    let connect = of(&[
        FailureKind::ConnRefused,
        FailureKind::FdUnavail,
        FailureKind::AddrUnavail,
        FailureKind::FtabFull,
        FailureKind::SocketTimo,
    ]);
    let timeout = of(&[FailureKind::ClientTimo]);
    let read = counts.failures_total() - connect - timeout;
    if connect + read + timeout > 0 {
        let _ = writeln!(text, "  Socket errors: connect {connect}, read {read}, write 0, timeout {timeout}");
    }
    if counts.unexpected() > 0 {
        let _ = writeln!(text, "  Non-2xx or 3xx responses: {}", counts.unexpected());
    }
}

/// Aligns text to the right, with room for a unit of two letters.
fn padded(text: &str, width: usize) -> String {
    let letters = text.chars().rev().take(2).take_while(char::is_ascii_alphabetic).count();
    let room = 2 - letters;
    format!("{text:>0$}{1:2$}", width - room, "", room)
}

/// Formats a value with its unit. Like wrk, changes to the next unit at 85 % of that unit.
fn scaled(value: f64, step: f64, units: &[&str], decimals: usize) -> String {
    let (mut value, mut unit) = (value, units[0]);
    for next in &units[1..] {
        if value < 0.85 * step {
            break;
        }
        value /= step;
        unit = next;
    }
    format!("{value:.decimals$}{unit}")
}

fn time_text(value_us: f64) -> String {
    if value_us >= 1e6 { seconds_text(value_us / 1e6, 2) } else { scaled(value_us, 1e3, &["us", "ms"], 2) }
}

fn seconds_text(value_s: f64, decimals: usize) -> String {
    scaled(value_s, 60.0, &["s", "m", "h"], decimals)
}

fn metric_text(value: f64) -> String {
    scaled(value, 1e3, &["", "k", "M", "G"], 2)
}

fn binary_text(value: f64) -> String {
    scaled(value, 1024.0, &["", "K", "M", "G", "T"], 2)
}

#[cfg(test)]
mod tests {
    use super::{binary_text, metric_text, padded, seconds_text, time_text};

    #[test]
    fn figures_look_as_in_wrk() {
        // From real output of wrk 4.1.0.
        assert_eq!(time_text(503.67), "503.67us");
        assert_eq!(time_text(1560.0), "1.56ms");
        assert_eq!(time_text(860.0), "0.86ms");
        assert_eq!(time_text(1_200_000.0), "1.20s");
        assert_eq!(metric_text(1270.0), "1.27k");
        assert_eq!(metric_text(63.21), "63.21");
        assert_eq!(binary_text(5.75 * 1024.0 * 1024.0), "5.75M");
        assert_eq!((seconds_text(2.0, 0), seconds_text(60.0, 0)), ("2s".to_owned(), "1m".to_owned()));
        assert_eq!(padded("1.27k", 8), "  1.27k ");
        assert_eq!(padded("63.21", 10), "   63.21  ");
        assert_eq!(padded("1.56ms", 8), "  1.56ms");
    }
}
