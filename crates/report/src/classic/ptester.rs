//! ptester's report (src/ptester/ptester.c of phttpd).

use super::{note, parse_url, seconds};
use flatout_load::record::Moments;
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

pub(super) fn print(report: &RunReport, step: &StepReport) -> String {
    let (counts, sums, elapsed_s) = (&step.record.counts, &step.record.sums, seconds(step));
    let url = parse_url(report);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<19} {:>4}  {:>6} {:>6} {:>6}  {:>6} {:>6} {:>6}  Bytes",
        "URL", "NRq", "Min Ct", "Avg Ct", "Max Ct", "Min Tx", "Avg Tx", "Max Tx"
    );
    for (index, class) in step.record.classes.iter().enumerate() {
        let name = match report.class_names.get(index) {
            Some(name) if report.class_names.len() > 1 => name.as_str(),
            _ => url.target.as_str(),
        };
        let _ = writeln!(
            text,
            "{name:<19} {:>4}  {}  {}  {:.0}",
            class.responses.saturating_sub(class.errors),
            times(&class.sums.connect_ns),
            times(&class.sums.service_ns),
            class.sums.response_bytes.mean().unwrap_or(0.0)
        );
    }
    text.push('\n');
    let failures = counts.errors();
    let per_s = |count: u64| count as f64 / elapsed_s;
    let _ = writeln!(text, "Actual test time.. {elapsed_s:.0} seconds");
    let _ = writeln!(
        text,
        "Total requests.... {} ({:.0} requests/sec)",
        counts.requests_begun,
        per_s(counts.requests_begun)
    );
    let _ = writeln!(text, "Total failed...... {failures} ({:.0} requests/sec)", per_s(failures));
    let _ = writeln!(text, "Total bytes....... {} ({:.0} bytes/sec)", counts.bytes_in(), per_s(counts.bytes_in()));
    text.push('\n');
    let _ = writeln!(text, "Min Tx: {:.4}", sums.service_ns.min as f64 / 1e9);
    let _ = writeln!(text, "Max Tx: {:.4}", sums.service_ns.max as f64 / 1e9);
    text.push('\n');
    note(
        &mut text,
        "This table has one row for each URL or class; ptester has one for each thread. Rates use the exact time, not whole seconds.",
    );
    note(
        &mut text,
        "Tx is measured per request, from the client's first action to the last byte. ptester divides the times of whole connections by requests, so -k makes its times small.",
    );
    note(&mut text, "Averages of Ct are over connections; averages of Tx and bytes are over responses.");
    text
}

/// Returns minimum, average and maximum as text, in seconds.
fn times(moments: &Moments) -> String {
    let second = |value_ns: f64| value_ns / 1e9;
    format!(
        "{:.4} {:.4} {:.4}",
        second(moments.min as f64),
        second(moments.mean().unwrap_or(0.0)),
        second(moments.max as f64)
    )
}
