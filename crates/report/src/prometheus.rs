//! A result as metrics in Prometheus text format, for the textfile collector of its node exporter. Units are the
//! conventional base units: seconds, bytes, fractions of 1.

use super::series::times;
use flatout_load::FailureKind;
use flatout_load::report::{RunReport, StepReport};
use std::fmt::Write as _;

/// Quantiles of every summary.
const QUANTILES: [(&str, f64); 5] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];

/// Most bytes of a label's value.
const LABEL_BYTES_MAX: usize = 256;

/// All metrics of a result.
pub fn metrics(report: &RunReport) -> String {
    let mut page = Page { text: String::new(), label: escape(&report.label) };
    page.head("info", "gauge", "URL, protocol, workload and version of the run; always 1.");
    let info = [
        ("url", report.url.as_str()),
        ("protocol", report.protocol.as_str()),
        ("workload", report.workload.as_str()),
        ("version", report.flatout_version.as_str()),
    ];
    let info: String = info.map(|(name, value)| format!(",{name}=\"{}\"", escape(value))).concat();
    let _ = writeln!(page.text, "flatout_bench_info{{run=\"{}\"{info}}} 1", page.label);
    page.head("begun_timestamp_seconds", "gauge", "When the run began, in seconds since 1970.");
    let _ = writeln!(
        page.text,
        "flatout_bench_begun_timestamp_seconds{{run=\"{}\"}} {}",
        page.label,
        report.begun_unix_ms as f64 / 1e3
    );
    page.each(report, "valid", "gauge", "1 if every figure is valid.", |step| {
        Some(f64::from(u8::from(step.invalid.is_empty())))
    });
    page.each(report, "offered_requests_per_second", "gauge", "Rate that an open loop offered.", |step| {
        step.offered.rate_per_s
    });
    page.each(report, "responses_per_second", "gauge", "Complete responses within the measured span.", |step| {
        Some(step.responses_per_s)
    });
    page.each(report, "connections", "gauge", "Upper bound of connections.", |step| {
        Some(f64::from(step.offered.connections))
    });
    page.each(report, "elapsed_seconds", "gauge", "Length of the measured span.", |step| {
        Some(step.elapsed_ns as f64 / 1e9)
    });
    page.each(report, "requests_total", "counter", "Requests begun.", |step| {
        Some(step.record.counts.requests_begun as f64)
    });
    page.each(report, "offered_requests_total", "counter", "Requests due in an open loop.", |step| {
        step.requests.offered.map(|offered| offered as f64)
    });
    page.each(report, "in_time_responses_total", "counter", "Complete responses within the measured span.", |step| {
        Some(step.requests.in_time as f64)
    });
    page.each(report, "late_responses_total", "counter", "Complete responses after the measured span.", |step| {
        Some(step.requests.late as f64)
    });
    page.head("figure_sound", "gauge", "1 if the figure is valid.");
    for step in &report.steps {
        for (figure, worth) in super::verdict::worths(step) {
            let is_sound = f64::from(u8::from(worth.is_sound()));
            page.sample("figure_sound", step, &format!(",figure=\"{}\"", figure.name()), is_sound);
        }
    }
    page.each(report, "received_bytes_total", "counter", "Bytes received.", |step| {
        Some(step.record.counts.bytes_in() as f64)
    });
    page.each(report, "dropped_total", "counter", "Arrivals whose requests were never sent.", |step| {
        Some(step.tally.dropped as f64)
    });
    page.each(report, "client_cpu_seconds_total", "counter", "On-CPU time of the client.", |step| {
        Some(step.client.cpu.total_ns() as f64 / 1e9)
    });
    let busy_wait = "On-CPU time of the client spent on busy polling.";
    page.each(report, "client_busy_wait_seconds_total", "counter", busy_wait, |step| {
        Some(step.client.busy_wait_ns as f64 / 1e9)
    });
    page.each(
        report,
        "client_busy_ratio",
        "gauge",
        "Share of its time that the busiest client thread was on a core.",
        |step| Some(step.client.busy_share),
    );
    page.each(
        report,
        "server_cpu_seconds_total",
        "counter",
        "On-CPU time of the server, if it runs on this machine.",
        |step| step.server.map(|server| server.cpu.total_ns() as f64 / 1e9),
    );
    page.head("responses_total", "counter", "Complete responses by class of status.");
    for step in &report.steps {
        for (index, count) in step.record.counts.status_classes.iter().enumerate() {
            page.sample("responses_total", step, &format!(",status=\"{}xx\"", index + 1), *count as f64);
        }
    }
    page.head("failures_total", "counter", "Requests that failed, by kind.");
    for step in &report.steps {
        for kind in FailureKind::ALL.iter().copied() {
            let count = step.record.counts.failures_of(kind) as f64;
            page.sample("failures_total", step, &format!(",kind=\"{}\"", kind.name()), count);
        }
    }
    for (index, (name, help)) in [
        ("response_seconds", "From the intended start to the last byte."),
        ("service_seconds", "From the client's act to the last byte."),
        ("lag_seconds", "From the intended start to the client's act."),
    ]
    .into_iter()
    .enumerate()
    {
        page.head(name, "summary", help);
        for step in &report.steps {
            let histogram = times(step)[index].1.histogram();
            for (label, quantile) in QUANTILES.iter().filter(|_| !histogram.is_empty()) {
                let value_s = histogram.value_at_quantile(*quantile) as f64 / 1e9;
                page.sample(name, step, &format!(",quantile=\"{label}\""), value_s);
            }
            let count = histogram.len() as f64;
            let sum_s = if histogram.is_empty() { 0.0 } else { histogram.mean() * count / 1e9 };
            page.sample(&format!("{name}_sum"), step, "", sum_s);
            page.sample(&format!("{name}_count"), step, "", count);
        }
    }
    page.text
}

struct Page {
    text: String,
    label: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP flatout_bench_{name} {help}\n# TYPE flatout_bench_{name} {kind}");
    }

    fn sample(&mut self, name: &str, step: &StepReport, labels: &str, value: f64) {
        let (run, step) = (&self.label, step.step);
        let _ = writeln!(self.text, "flatout_bench_{name}{{run=\"{run}\",step=\"{step}\"{labels}}} {value}");
    }

    /// One figure of each step that has it.
    fn each(
        &mut self,
        report: &RunReport,
        name: &str,
        kind: &str,
        help: &str,
        value: impl Fn(&StepReport) -> Option<f64>,
    ) {
        self.head(name, kind, help);
        for step in &report.steps {
            if let Some(value) = value(step) {
                self.sample(name, step, "", value);
            }
        }
    }
}

/// A label's value: quotes, backslashes and line ends escaped, and at most [`LABEL_BYTES_MAX`] bytes.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if escaped.len() >= LABEL_BYTES_MAX {
            break;
        }
        match character {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{escape, metrics};
    use crate::fixture;
    use std::collections::BTreeSet;

    #[test]
    fn every_sample_has_its_type_and_its_run() {
        let text = metrics(&fixture::sweep("a \"sweep\"", 10));
        let mut families = BTreeSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(families.insert(rest.split(' ').next().unwrap().to_owned()), "twice: {line}");
            } else if !line.starts_with('#') {
                let (name, rest) = line.split_once('{').unwrap();
                let family = name.strip_suffix("_sum").or(name.strip_suffix("_count")).unwrap_or(name);
                assert!(families.contains(family), "{line}");
                let (labels, value) = rest.rsplit_once("} ").unwrap();
                assert!(labels.starts_with("run=\"a \\\"sweep\\\"\""), "{line}");
                value.parse::<f64>().unwrap();
            }
        }
        assert!(text.contains("flatout_bench_valid{run=\"a \\\"sweep\\\"\",step=\"9\"} 0\n"));
        assert!(
            text.contains("flatout_bench_responses_total{run=\"a \\\"sweep\\\"\",step=\"0\",status=\"2xx\"} 1000\n")
        );
    }

    #[test]
    fn labels_are_escaped_and_have_an_end() {
        assert_eq!(escape("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
        assert_eq!(escape(&"x".repeat(10_000)).len(), super::LABEL_BYTES_MAX);
    }
}
