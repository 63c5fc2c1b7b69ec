//! A result as metrics in Prometheus text format, for the textfile collector of the Prometheus node exporter. Units are
//! the conventional base units: seconds, bytes, fractions of 1.

use super::series::times;
use flatout_load::FailureKind;
use flatout_load::report::percentiles::quantile_ns;
use flatout_load::report::{RunReport, StepReport};
use flatout_units::prometheus::{push_head, push_sample};

/// The quantiles in every summary, as label and number.
const QUANTILES: [(&str, f64); 5] = [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];

/// Maximum length of a label's value, in bytes.
const LABEL_BYTES_MAX: usize = 256;

/// Returns all metrics of a result.
pub fn metrics(report: &RunReport) -> String {
    let mut page = Page { text: String::new(), run: shortened(&report.label) };
    page.head("info", "gauge", "URL, protocol, workload and version of the run; always 1.");
    let info = [
        ("run", page.run),
        ("url", shortened(&report.url)),
        ("protocol", shortened(&report.protocol)),
        ("workload", shortened(&report.workload)),
        ("version", shortened(&report.flatout_version)),
    ];
    push_sample(&mut page.text, "flatout_bench_info", info, 1);
    let started = "flatout_bench_begun_timestamp_seconds";
    page.head("begun_timestamp_seconds", "gauge", "When the run began, in seconds since the Unix epoch.");
    push_sample(&mut page.text, started, [("run", page.run)], report.begun_unix_ms as f64 / 1e3);
    page.each(report, "valid", "gauge", "1 if every figure is valid, otherwise 0.", |step| {
        Some(f64::from(u8::from(step.invalid.is_empty())))
    });
    page.each(report, "offered_requests_per_second", "gauge", "Request rate that an open loop offered.", |step| {
        step.offered.rate_per_s
    });
    page.each(
        report,
        "responses_per_second",
        "gauge",
        "Successful responses completed within the measurement interval.",
        |step| Some(step.responses_per_s),
    );
    page.each(report, "connections", "gauge", "Maximum number of connections.", |step| {
        Some(f64::from(step.offered.connections))
    });
    page.each(report, "elapsed_seconds", "gauge", "Length of the measurement interval.", |step| {
        Some(step.elapsed_ns as f64 / 1e9)
    });
    page.each(report, "requests_total", "counter", "Requests started.", |step| {
        Some(step.record.counts.requests_begun as f64)
    });
    page.each(report, "offered_requests_total", "counter", "Requests due in an open loop.", |step| {
        step.requests.offered.map(|offered| offered as f64)
    });
    page.each(
        report,
        "in_time_responses_total",
        "counter",
        "Successful responses completed within the measurement interval.",
        |step| Some(step.requests.in_time as f64),
    );
    page.each(
        report,
        "late_responses_total",
        "counter",
        "Successful responses completed after the measurement interval.",
        |step| Some(step.requests.late as f64),
    );
    page.head("figure_sound", "gauge", "1 if the figure is valid, otherwise 0.");
    for step in &report.steps {
        for (figure, worth) in super::verdict::worths(step) {
            let is_sound = f64::from(u8::from(worth.is_sound()));
            page.sample("figure_sound", step, Some(("figure", figure.name())), is_sound);
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
    let busy_wait = "On-CPU time that the client spent on busy polling.";
    page.each(report, "client_busy_wait_seconds_total", "counter", busy_wait, |step| {
        Some(step.client.busy_wait_ns as f64 / 1e9)
    });
    page.each(
        report,
        "client_busy_ratio",
        "gauge",
        "Share of the time that the busiest client thread was on a core.",
        |step| Some(step.client.busy_share),
    );
    page.each(
        report,
        "server_cpu_seconds_total",
        "counter",
        "On-CPU time of the server, if it runs on this machine.",
        |step| step.server.map(|server| server.cpu.total_ns() as f64 / 1e9),
    );
    page.head("responses_total", "counter", "Complete responses by status class.");
    for step in &report.steps {
        for (index, count) in step.record.counts.status_classes.iter().enumerate() {
            page.sample("responses_total", step, Some(("status", &*format!("{}xx", index + 1))), *count as f64);
        }
    }
    let help = "Share of requests without a complete response, or with an unexpected status.";
    page.each(report, "error_ratio", "gauge", help, |step| Some(step.error_share));
    page.head("status_responses_total", "counter", "Complete responses by status.");
    for step in &report.steps {
        for (status, count) in step.record.statuses.iter() {
            page.sample("status_responses_total", step, Some(("status", &status.to_string())), count as f64);
        }
    }
    page.head("failures_total", "counter", "Requests without a complete response, by kind.");
    for step in &report.steps {
        for kind in FailureKind::ALL.iter().copied() {
            let count = step.record.counts.failures_of(kind) as f64;
            page.sample("failures_total", step, Some(("kind", kind.name())), count);
        }
    }
    for (index, (name, help)) in [
        ("response_seconds", "From the intended start to the last byte."),
        ("service_seconds", "From the time the client started to the last byte."),
        ("lag_seconds", "From the intended start to the time the client started."),
    ]
    .into_iter()
    .enumerate()
    {
        page.head(name, "summary", help);
        for step in &report.steps {
            let (_, histogram, missing) = times(step)[index];
            let histogram = histogram.histogram();
            for (label, quantile) in QUANTILES.iter().filter(|_| !histogram.is_empty()) {
                let value_ns = quantile_ns(&histogram, *quantile, missing);
                let value_s = value_ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
                page.sample(name, step, Some(("quantile", label)), value_s);
            }
            let count = histogram.len() as f64;
            let sum_s = if histogram.is_empty() { 0.0 } else { histogram.mean() * count / 1e9 };
            page.sample(&format!("{name}_sum"), step, None, sum_s);
            page.sample(&format!("{name}_count"), step, None, count);
        }
    }
    page.text
}

struct Page<'r> {
    text: String,
    run: &'r str,
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        push_head(&mut self.text, &format!("flatout_bench_{name}"), kind, help);
    }

    fn sample(&mut self, name: &str, step: &StepReport, label: Option<(&str, &str)>, value: f64) {
        let number = step.step.to_string();
        let labels = [("run", self.run), ("step", &number)].into_iter().chain(label);
        let name = format!("flatout_bench_{name}");
        if value.is_infinite() {
            push_sample(&mut self.text, &name, labels, "+Inf");
        } else {
            push_sample(&mut self.text, &name, labels, value);
        }
    }

    /// Adds a sample for each step that has the figure.
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
                self.sample(name, step, None, value);
            }
        }
    }
}

/// Shortens the value of a label to at most [`LABEL_BYTES_MAX`] bytes.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(LABEL_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::{metrics, shortened};
    use crate::tests::fixture;
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
    fn labels_are_bounded() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(10_000)).len(), super::LABEL_BYTES_MAX);
    }
}
