//! autobench's table (version 2.1.1, one host): one row per rate, values separated by tabs.

use super::{add_verdict, ms, note, parse_url, ratio, reply_rates, seconds, spread};
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

/// Names of the columns after the first. In the table, each is followed by the host's name.
const COLUMNS: [&str; 9] = [
    "req_rate",
    "con_rate",
    "min_rep_rate",
    "avg_rep_rate",
    "max_rep_rate",
    "stddev_rep_rate",
    "resp_time",
    "net_io",
    "errors",
];

pub(super) fn print(report: &RunReport) -> String {
    let host = parse_url(report).host;
    let mut text = String::from("dem_req_rate");
    for column in COLUMNS {
        let _ = write!(text, "\t{column}_{host}");
    }
    text.push('\n');
    for step in &report.steps {
        add_row(&mut text, step);
    }
    for step in &report.steps {
        add_verdict(&mut text, step);
    }
    if report.steps.iter().any(|step| step.offered.rate_per_s.is_none()) {
        note(&mut text, "A closed loop has no requested rate: dem_req_rate is 0.");
    }
    note(
        &mut text,
        "errors: percent of requests started; autobench divides by replies, so 101 can mean no replies or more errors than replies.",
    );
    note(&mut text, "Reply rates come from samples of 5 s, as in httperf; a shorter run has none.");
    text
}

fn add_row(text: &mut String, step: &StepReport) {
    let (record, counts, elapsed_s) = (&step.record, &step.record.counts, seconds(step));
    let (_, rates) = reply_rates(record, step.elapsed_ns);
    let (min, avg, max, deviation) = spread(&rates);
    let response_ms = ms(record.sums.wait_ns.mean().unwrap_or(0.0));
    let net_io = (counts.bytes_out + counts.bytes_in()) as f64 / elapsed_s / 1024.0;
    let errors = 100.0 * ratio(counts.errors() as f64, counts.requests_begun as f64);
    let _ = writeln!(
        text,
        "{}\t{:.1}\t{:.1}\t{min:.1}\t{avg:.1}\t{max:.1}\t{deviation:.1}\t{response_ms:.1}\t{net_io:.1}\t{errors}",
        step.offered.rate_per_s.unwrap_or(0.0),
        counts.requests_sent as f64 / elapsed_s,
        counts.connects_begun as f64 / elapsed_s,
    );
}
