//! WebStone 2.0's report (src/webmaster.c and src/bench.c of the copy in ACE).

use super::{connections, note, ratio, seconds};
use flatout_load::record::Moments;
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

/// A megabit as WebStone defines it.
const MEBI: f64 = 1024.0 * 1024.0;

pub(super) fn print(report: &RunReport, step: &StepReport) -> String {
    let (counts, sums, elapsed_s) = (&step.record.counts, &step.record.sums, seconds(step));
    let errors = counts.errors() as f64;
    let response_s = sums.service_ns.sum as f64 / 1e9;
    let bits = 8.0 * counts.bytes_in() as f64;
    let mut text = String::from("WEBSTONE 2.0 results:\n");
    let _ = writeln!(text, "Total number of clients: \t{}", connections(step));
    let _ = writeln!(text, "Test time: \t\t\t{elapsed_s:.3} seconds");
    let _ = writeln!(text, "Server connection rate: \t{:.2} connections/sec", counts.connections as f64 / elapsed_s);
    let _ = writeln!(text, "Server error rate: \t\t{:.4} err/sec", errors / elapsed_s);
    let _ = writeln!(text, "Server thruput: \t\t{:.2} Mbit/sec", bits / elapsed_s / MEBI);
    let _ = writeln!(text, "Little's Load Factor: \t\t{:.2} ", response_s / elapsed_s);
    let mean_ms = sums.service_ns.mean().unwrap_or(0.0) / 1e6;
    let _ = writeln!(text, "Average response time: \t\t{mean_ms:.4} millisec");
    let level = 100.0 * ratio(errors, counts.requests_begun as f64);
    let _ = writeln!(text, "Error Level:\t\t\t{level:.4} %");
    let _ = writeln!(text, "Average client thruput: \t{:.4} Mbit/sec", ratio(bits, response_s) / MEBI);
    let _ = writeln!(text, "Sum of client response times:\t{response_s:.6} sec");
    let _ = writeln!(text, "Total number of pages read:\t{}\n", counts.successes());
    add_table(&mut text, step);
    text.push('\n');
    note(
        &mut text,
        "Response time is measured from the time the client started, including connecting, to the last byte; in an open loop, from the intended start.",
    );
    note(&mut text, "The load factor and the test time are not truncated to whole seconds; Mbit is 1024*1024 bits.");
    note(
        &mut text,
        "The error level is a share of all requests started; WebStone divides by connections. Microseconds are padded with zeros; WebStone omits them.",
    );
    if counts.connections != counts.responses {
        note(
            &mut text,
            "Some connections were reused, or opened but not used, so averages are over pages, not over connections.",
        );
    }
    if report.class_names.len() > 1 {
        add_pages(&mut text, report, step);
    }
    text
}

fn add_table(text: &mut String, step: &StepReport) {
    let (counts, sums) = (&step.record.counts, &step.record.sums);
    let _ = writeln!(text, "{} connection(s) to server, {} errors", counts.connections, counts.errors());
    if counts.connections == 0 {
        text.push_str(
            "NO CONNECTIONS, THEREFORE NO STATISTICS\nIS YOUR WEBSERVER RUNNING?\nDO THE PAGES EXIST ON THE SERVER?\n",
        );
        return;
    }
    text.push_str("\n\t\t\t   Average      Std Dev      Minimum      Maximum\n\n");
    for (name, moments) in [("Connect time (sec) ", &sums.connect_ns), ("Response time (sec) ", &sums.service_ns)] {
        let row = figures(moments).map(|value_ns| format!("{:>10.6}", value_ns / 1e9)).join("   ");
        let _ = writeln!(text, "{name}\t{row}");
    }
    for (name, moments) in [("Response size (bytes) ", &sums.response_bytes), ("Body size (bytes) ", &sums.body_bytes)]
    {
        let row = figures(moments).map(|bytes| format!("{bytes:>10.0}")).join("   ");
        let _ = writeln!(text, "{name}\t{row}");
    }
    let _ = writeln!(
        text,
        "\n{} body bytes moved + {} header bytes moved = {} total",
        counts.body_bytes_in,
        counts.head_bytes_in,
        counts.bytes_in()
    );
}

/// Returns average, population standard deviation, minimum and maximum.
fn figures(moments: &Moments) -> [f64; 4] {
    [
        moments.mean().unwrap_or(0.0),
        moments.deviation_population().unwrap_or(0.0),
        moments.min as f64,
        moments.max as f64,
    ]
}

/// Adds the figures of each page, which WebStone's `-v` adds.
fn add_pages(text: &mut String, report: &RunReport, step: &StepReport) {
    for (name, class) in report.class_names.iter().zip(&step.record.classes) {
        let [mean_ns, deviation_ns, min_ns, max_ns] = figures(&class.sums.service_ns);
        note(
            text,
            &format!(
                "{name}: {} pages, {} errors, response time (sec) {:.6} {:.6} {:.6} {:.6}",
                class.responses.saturating_sub(class.errors),
                class.failures.saturating_add(class.errors),
                mean_ns / 1e9,
                deviation_ns / 1e9,
                min_ns / 1e9,
                max_ns / 1e9
            ),
        );
    }
}
