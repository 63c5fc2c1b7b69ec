//! Metrics for Prometheus, generated at each scrape from the workers' counters: in text format 0.0.4, or as
//! OpenMetrics if the scraper requests it.

use crate::status::StatusState;
use crate::store::{MetricKind, MetricRow};
use flatout_engine::MetricsFormat;
use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use flatout_net::tls::TlsFailure;
use flatout_os::counter::Counter;
use flatout_server::counters::Counters;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;

/// All metrics as text.
pub(crate) fn encode_metrics(shared: &StatusState, format: MetricsFormat) -> String {
    let rows = Rows::gather(shared);
    if format == MetricsFormat::Text {
        return rows.to_text();
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(rows));
    let mut text = String::new();
    // Writing to a String cannot fail, and the rows are plain numbers.
    let _ = encode(&mut text, &registry);
    text
}

/// Names and values of labels.
type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// A value with its labels.
#[derive(Debug)]
struct Sample {
    labels: Labels,
    value: u64,
}

/// One family of metrics.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    /// True for a counter, false for a gauge.
    counter: bool,
    samples: Vec<Sample>,
}

/// All metrics at one moment.
#[derive(Debug)]
struct Rows(Vec<Family>);

impl Rows {
    fn gather(shared: &StatusState) -> Self {
        let mut rows = Self(Vec::new());
        let sum = |pick: fn(&Counters) -> &Counter| shared.sum(|counters| pick(counters).get());
        rows.counter("requests", "Requests with a response, including refused ones.", sum(|c| &c.requests));
        rows.counter("connections_accepted", "Connections accepted.", sum(|c| &c.connections_accepted));
        rows.counter("sent_bytes", "Bytes handed to the kernel, heads and bodies.", sum(|c| &c.bytes_sent));
        rows.counter("received_bytes", "Bytes received.", sum(|c| &c.bytes_received));
        rows.counter(
            "accepts_without_descriptor",
            "Number of times no connection could be accepted because descriptors had run out.",
            sum(|c| &c.accepts_without_descriptor),
        );
        rows.counter("accepts_failed", "Number of times accept failed for another reason.", sum(|c| &c.accepts_failed));
        rows.counter(
            "accept_queue_limited",
            "Number of times an accept queue was shortened because more clients connected than could be served.",
            sum(|c| &c.accept_queue_limited),
        );
        rows.counter("log_lines_lost", "Log lines that could not be written.", shared.log_lines_lost());
        rows.counter("tls_handshakes", "TLS handshakes completed, including resumed ones.", sum(|c| &c.tls_handshakes));
        rows.counter("tls_resumptions", "TLS handshakes that resumed a session.", sum(|c| &c.tls_resumptions));
        rows.family("tls_failures", "TLS sessions that failed, by reason.", "reason", tls_failures(shared));
        rows.counter("http2_connections", "Connections that use HTTP/2.", sum(|c| &c.http2_connections));
        rows.counter(
            "http2_streams_cut",
            "HTTP/2 streams that ended before their response was sent.",
            sum(|c| &c.http2_streams_cut),
        );
        rows.family("responses", "Responses by status class.", "class", status_classes(shared));
        rows.family("outcomes", "Responses by outcome.", "outcome", outcomes(shared));
        rows.family("refusals", "Refused requests by reason.", "reason", refusals(shared));
        rows.family("closes", "Closed connections by reason.", "reason", closes(shared));
        rows.gauge("connections_open", "Connections open now.", shared.connections_open());
        rows.gauge("workers", "Worker threads.", shared.counters.len() as u64);
        rows.gauge(
            "generation",
            "Configurations activated since the start, including the first one.",
            shared.generation.load(Ordering::Relaxed),
        );
        rows.counter("reloads_refused", "Reloads that were refused.", shared.reloads_refused.load(Ordering::Relaxed));
        rows.counter("upgrades_failed", "Upgrades that failed.", shared.upgrades_failed.load(Ordering::Relaxed));
        rows.gauge("start_time_seconds", "Start time of the process, since 1970.", shared.started_unix_s());
        rows.0.push(Family {
            name: "build_info",
            help: "Always 1; the labels describe the running program.",
            counter: false,
            samples: vec![Sample { labels: vec![("version", env!("CARGO_PKG_VERSION").into())], value: 1 }],
        });
        for row in shared.store.metric_rows() {
            rows.store(row);
        }
        rows
    }

    /// Text format 0.0.4: a family's name includes the counter's `_total`, and there is no end mark.
    fn to_text(&self) -> String {
        let mut text = String::new();
        for family in &self.0 {
            let (kind, ending) = if family.counter { ("counter", "_total") } else { ("gauge", "") };
            let name = format!("flatout_{}{ending}", family.name);
            // Writing to a String cannot fail.
            let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n", family.help);
            for sample in &family.samples {
                text.push_str(&name);
                for (index, (label, value)) in sample.labels.iter().enumerate() {
                    let before = if index == 0 { '{' } else { ',' };
                    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    let _ = write!(text, "{before}{label}=\"{value}\"");
                }
                let end = if sample.labels.is_empty() { "" } else { "}" };
                let _ = writeln!(text, "{end} {}", sample.value);
            }
        }
        text
    }

    /// Adds a row to its family, also if others came between.
    fn store(&mut self, row: MetricRow) {
        let labels = row.labels.into_iter().map(|(name, value)| (name, Cow::Owned(value))).collect();
        let sample = Sample { labels, value: row.value };
        match self.0.iter_mut().find(|family| family.name == row.name) {
            Some(family) => family.samples.push(sample),
            None => self.0.push(Family {
                name: row.name,
                help: row.help,
                counter: row.kind == MetricKind::Counter,
                samples: vec![sample],
            }),
        }
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.0.push(Family { name, help, counter: true, samples: vec![Sample { labels: Labels::new(), value }] });
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.0.push(Family { name, help, counter: false, samples: vec![Sample { labels: Labels::new(), value }] });
    }

    /// Adds counters that differ in the value of `label`.
    fn family(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: Vec<(&'static str, u64)>,
    ) {
        let sample = |(of, value): (&'static str, u64)| Sample { labels: vec![(label, of.into())], value };
        self.0.push(Family { name, help, counter: true, samples: values.into_iter().map(sample).collect() });
    }
}

fn status_classes(shared: &StatusState) -> Vec<(&'static str, u64)> {
    let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    let sample =
        |(index, class): (usize, &&'static str)| (*class, shared.sum(|counters| counters.status_classes[index].get()));
    classes.iter().enumerate().map(sample).collect()
}

fn tls_failures(shared: &StatusState) -> Vec<(&'static str, u64)> {
    let sample = |(index, failure): (usize, &TlsFailure)| {
        (failure.name(), shared.sum(|counters| counters.tls_failures[index].get()))
    };
    TlsFailure::ALL.iter().enumerate().map(sample).collect()
}

fn outcomes(shared: &StatusState) -> Vec<(&'static str, u64)> {
    let sample = |(index, name): (usize, &&'static str)| {
        (*name, shared.sum(|counters| counters.outcomes.get(index).map_or(0, Counter::get)))
    };
    shared.outcomes.iter().flat_map(|table| table.names).enumerate().map(sample).collect()
}

fn refusals(shared: &StatusState) -> Vec<(&'static str, u64)> {
    let sample =
        |(index, refusal): (usize, &Refusal)| (refusal.name(), shared.sum(|counters| counters.refusals[index].get()));
    Refusal::ALL.iter().enumerate().map(sample).collect()
}

fn closes(shared: &StatusState) -> Vec<(&'static str, u64)> {
    let sample =
        |(index, reason): (usize, &CloseReason)| (reason.name(), shared.sum(|counters| counters.closes[index].get()));
    CloseReason::ALL.iter().enumerate().map(sample).collect()
}

impl prometheus_client::collector::Collector for Rows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            let kind = if family.counter { MetricType::Counter } else { MetricType::Gauge };
            let name = format!("flatout_{}", family.name);
            let mut metrics = encoder.encode_descriptor(&name, family.help, None, kind)?;
            for sample in &family.samples {
                let gauge = i64::try_from(sample.value).unwrap_or(i64::MAX);
                match (sample.labels.is_empty(), family.counter) {
                    (false, true) => ConstCounter::new(sample.value).encode(metrics.encode_family(&sample.labels)?)?,
                    (false, false) => ConstGauge::new(gauge).encode(metrics.encode_family(&sample.labels)?)?,
                    (true, true) => metrics.encode_counter::<[(&str, &str); 0], _, u64>(&sample.value, None)?,
                    (true, false) => metrics.encode_gauge(&gauge)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::encode_metrics;
    use crate::cache::CacheReply;
    use crate::purge::{PurgeReply, PurgeRequest, PurgedProxy};
    use crate::status::StatusState;
    use crate::store::{MetricKind, MetricRow, NoStore, StatusRow, StoreView};
    use flatout_access_log::Logs;
    use flatout_engine::MetricsFormat;
    use flatout_engine::explain::Question;
    use flatout_handler::ending::CloseReason;
    use flatout_reason::Table;
    use flatout_server::counters::Counters;
    use std::sync::Arc;

    #[test]
    fn counters_become_metrics_with_labels() {
        let counters: Vec<Arc<Counters>> = (0..2).map(|_| Arc::default()).collect();
        counters[0].requests.add(2);
        counters[1].requests.add(3);
        counters[1].add_status(404);
        counters[0].connections_accepted.add(4);
        counters[0].closes[CloseReason::IdleTimeout as usize].add(1);
        counters[0].outcomes[1].add(7);
        let logs = Logs::open(&[], Box::new(|_| {})).unwrap();
        let text = encode_metrics(
            &StatusState::new(
                counters,
                &[&Table { names: &["hit", "not_found"], texts: &[] }],
                Arc::new(logs),
                Arc::new(NoStore),
            ),
            MetricsFormat::OpenMetrics,
        );
        for line in [
            "# TYPE flatout_requests counter",
            "flatout_requests_total 5",
            "flatout_responses_total{class=\"4xx\"} 1",
            "flatout_responses_total{class=\"5xx\"} 0",
            "flatout_outcomes_total{outcome=\"not_found\"} 7",
            "flatout_closes_total{reason=\"idle_timeout\"} 1",
            "# TYPE flatout_connections_open gauge",
            "flatout_connections_open 3",
            "flatout_generation 1",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
    struct Two;

    impl StoreView for Two {
        fn explain(&self, _: &Question) -> Result<CacheReply, String> {
            Err(String::new())
        }

        fn purge(&self, request: &PurgeRequest) -> Result<PurgeReply, String> {
            Ok(PurgeReply::new(request, vec![PurgedProxy { proxy: "a.example".to_owned(), objects: 2 }]))
        }

        fn status_rows(&self) -> Vec<StatusRow> {
            vec![StatusRow { name: "objects".to_owned(), value: "2".to_owned() }]
        }

        fn metric_rows(&self) -> Vec<MetricRow> {
            let row = |name, kind, label: Option<&str>, value| {
                let labels = label.map(|label| ("reason", label.to_owned())).into_iter().collect();
                MetricRow { name, help: "Of the store.", kind, labels, value }
            };
            vec![
                row("cache_lookups", MetricKind::Counter, Some("hit"), 3),
                row("cache_lookups", MetricKind::Counter, Some("miss"), 1),
                row("cache_objects", MetricKind::Gauge, None, 2),
                row("cache_disk_bytes", MetricKind::Gauge, Some("/a \"b\""), 5),
            ]
        }
    }

    #[test]
    fn rows_of_the_store_come_too() {
        let logs = Arc::new(Logs::open(&[], Box::new(|_| {})).unwrap());
        let shared = StatusState::new(vec![Arc::default()], &[], logs, Arc::new(Two));
        let text = encode_metrics(&shared, MetricsFormat::OpenMetrics);
        for line in [
            "# TYPE flatout_cache_lookups counter",
            "flatout_cache_lookups_total{reason=\"hit\"} 3",
            "flatout_cache_lookups_total{reason=\"miss\"} 1",
            "# TYPE flatout_cache_objects gauge",
            "flatout_cache_objects 2",
            "flatout_cache_disk_bytes{reason=\"/a \\\"b\\\"\"} 5",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} is not once in\n{text}");
        }
        let text = encode_metrics(&shared, MetricsFormat::Text);
        for line in [
            "# HELP flatout_cache_lookups_total Of the store.",
            "# TYPE flatout_cache_lookups_total counter",
            "flatout_cache_lookups_total{reason=\"hit\"} 3",
            "flatout_cache_objects 2",
            "flatout_cache_disk_bytes{reason=\"/a \\\"b\\\"\"} 5",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} is not once in\n{text}");
        }
        assert!(!text.contains("# EOF"));
        assert_eq!(shared.status().store[0].value, "2");
    }
}
