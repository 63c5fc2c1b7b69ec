//! A result as tables of comma-separated values (RFC 4180). Times are in nanoseconds, sizes in bytes, and shares are
//! fractions of 1.

use flatout_load::FailureKind;
use flatout_load::report::percentiles::quantile_ns;
use flatout_load::report::{Percentiles, RunReport, StepReport};
use std::fmt::Display;

/// The quantiles in the table of distributions.
const QUANTILES: [f64; 14] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99999, 1.0];

/// Returns every table, with file name and content.
pub fn files(report: &RunReport) -> Vec<(&'static str, String)> {
    vec![
        ("steps.csv", steps(report)),
        ("series.csv", series(report)),
        ("percentiles.csv", percentiles(report)),
        ("classes.csv", classes(report)),
        ("errors.csv", errors(report)),
    ]
}

/// A table of comma-separated values under construction.
struct Table {
    text: String,
    columns: usize,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        let mut table = Self { text: String::new(), columns: head.len() };
        table.row(&head.iter().map(|name| name as &dyn Display).collect::<Vec<_>>());
        table
    }

    fn row(&mut self, values: &[&dyn Display]) {
        debug_assert_eq!(values.len(), self.columns, "as many values as names");
        let fields: Vec<String> = values.iter().map(|value| quote(&value.to_string())).collect();
        self.text.push_str(&fields.join(","));
        self.text.push_str("\r\n");
    }
}

/// Quotes a field as RFC 4180 requires.
fn quote(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// Formats a value, or returns an empty field if the value is unknown.
fn known<T: Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats a percentile: `inf` if the request at its rank never got a response.
fn shown(times: Option<Percentiles>, pick: fn(&Percentiles) -> Option<u64>) -> String {
    known(times.map(|times| known_or_never(pick(&times))))
}

fn known_or_never(value_ns: Option<u64>) -> String {
    value_ns.map_or_else(|| "inf".to_owned(), |ns| ns.to_string())
}

fn steps(report: &RunReport) -> String {
    let mut table = Table::new(&[
        "step",
        "offered_per_s",
        "connections",
        "elapsed_ns",
        "begun_per_s",
        "responses_per_s",
        "bytes_in_per_s",
        "error_share",
        "response_mean_ns",
        "response_p50_ns",
        "response_p90_ns",
        "response_p99_ns",
        "response_p99_9_ns",
        "response_max_ns",
        "service_p50_ns",
        "service_p99_ns",
        "lag_p50_ns",
        "lag_p99_ns",
        "requests_offered",
        "requests_begun",
        "responses",
        "in_time",
        "late",
        "drain_ns",
        "failures",
        "unexpected",
        "dropped",
        "client_cpu_ns",
        "client_busy_wait_ns",
        "client_busy_share",
        "server_cpu_ns",
        "sound",
        "invalid",
    ]);
    for step in &report.steps {
        let counts = &step.record.counts;
        let time = |times: Option<Percentiles>, pick: fn(&Percentiles) -> Option<u64>| shown(times, pick);
        let invalid: Vec<&str> = step.invalid.iter().map(|invalid| invalid.reason.name()).collect();
        let sound = super::verdict::worths(step).into_iter().filter(|(_, worth)| worth.is_sound());
        let sound: Vec<&str> = sound.map(|(figure, _)| figure.name()).collect();
        table.row(&[
            &step.step,
            &known(step.offered.rate_per_s),
            &step.offered.connections,
            &step.elapsed_ns,
            &step.begun_per_s,
            &step.responses_per_s,
            &step.bytes_in_per_s,
            &step.error_share,
            &known(step.response.map(|times| times.mean_ns)),
            &time(step.response, |times| times.p50_ns),
            &time(step.response, |times| times.p90_ns),
            &time(step.response, |times| times.p99_ns),
            &time(step.response, |times| times.p99_9_ns),
            &time(step.response, |times| times.max_ns),
            &time(step.service, |times| times.p50_ns),
            &time(step.service, |times| times.p99_ns),
            &time(step.lag, |times| times.p50_ns),
            &time(step.lag, |times| times.p99_ns),
            &known(step.requests.offered),
            &counts.requests_begun,
            &counts.responses,
            &step.requests.in_time,
            &step.requests.late,
            &step.requests.drain_ns,
            &counts.failures_total(),
            &counts.unexpected(),
            &step.tally.dropped,
            &step.client.cpu.total_ns(),
            &step.client.busy_wait_ns,
            &step.client.busy_share,
            &known(step.server.map(|server| server.cpu.total_ns())),
            &sound.join(" "),
            &invalid.join(" "),
        ]);
    }
    table.text
}

fn series(report: &RunReport) -> String {
    let mut table = Table::new(&[
        "step",
        "at_ns",
        "length_ns",
        "begun",
        "responses",
        "failures",
        "errors",
        "connections",
        "bytes_in",
        "bytes_out",
        "response_mean_ns",
        "response_max_ns",
        "service_mean_ns",
        "lag_max_ns",
    ]);
    let start_ns = report.steps.first().map_or(0, |step| step.record.series.start_ns);
    for step in &report.steps {
        let series = &step.record.series;
        let length_ns = series.step_s * 1_000_000_000;
        let offset_ns = series.start_ns.saturating_sub(start_ns);
        for (index, point) in series.points().iter().enumerate() {
            let mean = |sum_ns: u64| known(sum_ns.checked_div(point.successes()));
            table.row(&[
                &step.step,
                &(offset_ns + index as u64 * length_ns),
                &length_ns,
                &point.begun,
                &point.responses,
                &point.failures,
                &point.errors,
                &point.connections,
                &point.bytes_in,
                &point.bytes_out,
                &mean(point.response_sum_ns),
                &point.response_max_ns,
                &mean(point.service_sum_ns),
                &point.lag_max_ns,
            ]);
        }
    }
    table.text
}

fn percentiles(report: &RunReport) -> String {
    let mut table = Table::new(&["step", "time", "quantile", "value_ns"]);
    for step in &report.steps {
        for (name, histogram, missing) in times(step) {
            let histogram = histogram.histogram();
            for quantile in QUANTILES.iter().filter(|_| !histogram.is_empty()) {
                let value = known_or_never(quantile_ns(&histogram, *quantile, missing));
                table.row(&[&step.step, &name, quantile, &value]);
            }
        }
    }
    table.text
}

/// Name and histogram of times, and the number of requests that count as slower than all others.
pub(super) type StepTimes<'s> = (&'static str, &'s flatout_load::record::Hdr, u64);

/// Returns the histograms of a step with their names, and the number of requests that count as slower than all others.
pub(super) fn times(step: &StepReport) -> [StepTimes<'_>; 3] {
    let (failed, never_begun) = (step.requests.failed, step.requests.never_begun);
    [
        ("response", &step.record.response, failed.saturating_add(never_begun)),
        ("service", &step.record.service, failed),
        ("lag", &step.record.lag, never_begun),
    ]
}

fn classes(report: &RunReport) -> String {
    let mut table = Table::new(&[
        "step",
        "class",
        "requests",
        "responses",
        "failures",
        "errors",
        "response_mean_ns",
        "response_p50_ns",
        "response_p99_ns",
        "response_max_ns",
        "body_mean_bytes",
    ]);
    for step in &report.steps {
        for (index, class) in step.record.classes.iter().enumerate() {
            let times = class.percentiles();
            let name = report.class_names.get(index).cloned().unwrap_or_else(|| index.to_string());
            table.row(&[
                &step.step,
                &name,
                &class.requests,
                &class.responses,
                &class.failures,
                &class.errors,
                &known(class.sums.response_ns.mean()),
                &shown(times, |times| times.p50_ns),
                &shown(times, |times| times.p99_ns),
                &shown(times, |times| times.max_ns),
                &known(class.sums.body_bytes.mean()),
            ]);
        }
    }
    table.text
}

fn errors(report: &RunReport) -> String {
    let mut table = Table::new(&["step", "error", "count"]);
    for step in &report.steps {
        for kind in FailureKind::ALL.iter().copied() {
            table.row(&[&step.step, &kind.name(), &step.record.counts.failures_of(kind)]);
        }
        for (status, count, _) in super::verdict::statuses(step).iter().filter(|(.., is_expected)| !is_expected) {
            table.row(&[&step.step, &format!("status {status}"), count]);
        }
    }
    table.text
}

#[cfg(test)]
mod tests {
    use super::{files, quote};
    use crate::tests::fixture;

    #[test]
    fn tables_have_as_many_fields_as_names() {
        let report = fixture::sweep("sweep", 10);
        for (name, table) in files(&report) {
            assert!(table.ends_with("\r\n"), "{name}");
            let rows: Vec<usize> = table.lines().map(|row| row.split(',').count()).collect();
            assert!(rows.len() > 10 && rows.iter().all(|fields| *fields == rows[0]), "{name}: {rows:?}");
        }
    }

    #[test]
    fn figures_are_those_of_the_result() {
        let report = fixture::failing();
        let tables: std::collections::BTreeMap<_, _> = files(&report).into_iter().collect();
        let steps: Vec<&str> = tables["steps.csv"].lines().collect();
        let field = |name: &str| {
            let index = steps[0].split(',').position(|field| field == name).unwrap();
            steps[1].split(',').nth(index).unwrap()
        };
        assert_eq!((field("offered_per_s"), field("responses"), field("failures")), ("50", "288", "12"));
        assert_eq!((field("responses_per_s"), field("invalid")), ("48", ""));
        assert!(tables["errors.csv"].contains("0,connreset,12\r\n"));
        // Six seconds, and the requests that ended in the seventh.
        assert_eq!(tables["series.csv"].lines().filter(|row| row.starts_with("0,")).count(), 6);
        assert!(tables["series.csv"].contains("\r\n0,1000000000,1000000000,50,48,2,"));
        assert!(tables["classes.csv"].contains("0,/index.html,150,"));
        assert!(tables["percentiles.csv"].contains("0,response,0.999,"));
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quote("plain"), "plain");
        assert_eq!(quote("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }
}
