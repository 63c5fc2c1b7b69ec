//! Metrics for Prometheus, generated from the workers' counters at each scrape. The format is text format 0.0.4, or
//! OpenMetrics if the scraper requests it.

use crate::status::{QueueStatus, StatusState};
use crate::store::{MetricKind, MetricRow};
use flatout_engine::MetricsFormat;
use flatout_os::send_memory::SendMemory;
use flatout_server::counters::{CounterFamily, FAMILIES, GAUGES, ROWS};
use flatout_units::prometheus::{push_head, push_sample};
use std::borrow::Cow;
use std::sync::atomic::Ordering;

/// Returns all metrics as text. `unsent` is the kernel memory of unacknowledged responses, if it is known.
pub(crate) fn encode_metrics(shared: &StatusState, unsent: Option<SendMemory>, format: MetricsFormat) -> String {
    Rows::gather(shared, unsent).to_text(format)
}

/// Names and values of labels.
type Labels = Vec<(&'static str, Cow<'static, str>)>;

/// A value with its labels.
#[derive(Debug)]
struct Sample {
    labels: Labels,
    value: u64,
}

/// A family of metrics.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    /// True for a counter, false for a gauge.
    counter: bool,
    samples: Vec<Sample>,
}

/// All metrics at one point in time.
#[derive(Debug)]
struct Rows(Vec<Family>);

impl Rows {
    fn gather(shared: &StatusState, unsent: Option<SendMemory>) -> Self {
        let mut rows = Self(Vec::new());
        for row in ROWS {
            rows.counter(row.metric, row.help, row.sum(&shared.counters));
        }
        for family in FAMILIES {
            rows.family(family, family.sums(&shared.counters, shared.outcomes));
        }
        for row in GAUGES {
            rows.gauge(row.metric, row.help, row.sum(&shared.counters));
        }
        if let Some(SendMemory { bytes, connections }) = unsent {
            let help =
                "Kernel memory of response data that clients of TCP connections have not acknowledged, in bytes.";
            rows.gauge("unsent_memory_bytes", help, bytes);
            rows.gauge("unsent_connections", "TCP connections with unacknowledged response data.", connections);
        }
        rows.counter("log_lines_lost", "Log lines that could not be written.", shared.log_lines_lost());
        rows.gauge("connections_open", "Connections open now.", shared.connections_open());
        rows.gauge("workers", "Worker threads.", shared.counters.len() as u64);
        rows.gauge(
            "generation",
            "Number of configurations that have been active since the process started, including the first one.",
            shared.generation.load(Ordering::Relaxed),
        );
        rows.counter("reloads_refused", "Reloads that failed.", shared.reloads_refused.load(Ordering::Relaxed));
        rows.counter("upgrades_failed", "Upgrades that failed.", shared.upgrades_failed.load(Ordering::Relaxed));
        rows.gauge("start_time_seconds", "Start time of the process as a Unix timestamp.", shared.started_unix_s());
        rows.0.push(Family {
            name: "build_info",
            help: "Always 1; the labels describe the running program.",
            counter: false,
            samples: vec![Sample { labels: vec![("version", env!("CARGO_PKG_VERSION").into())], value: 1 }],
        });
        rows.queues(&shared.queues());
        for row in shared.store.metric_rows() {
            rows.store(row);
        }
        rows
    }

    fn queues(&mut self, queues: &[QueueStatus]) {
        let length = "Connections or requests in a queue, over all workers, by queue.";
        let limit = "Maximum length of a queue, by queue. It is lower during overload, until later requests are served in time.";
        for queue in queues {
            let mut add = |name, help, kind, value| {
                self.store(MetricRow { name, help, kind, labels: vec![("queue", queue.name.clone())], value });
            };
            add("queue_length", length, MetricKind::Gauge, queue.waiting);
            add("queue_limit", limit, MetricKind::Gauge, queue.waiting_max);
        }
    }

    /// In text format 0.0.4, the name of a counter's family includes the suffix `_total`. In OpenMetrics, it does not,
    /// and the text ends with an end mark.
    fn to_text(&self, format: MetricsFormat) -> String {
        let is_open = format == MetricsFormat::OpenMetrics;
        let mut text = String::new();
        for family in &self.0 {
            let (kind, ending) = if family.counter { ("counter", "_total") } else { ("gauge", "") };
            let name = format!("flatout_{}{ending}", family.name);
            let of_family = if is_open { name.trim_end_matches("_total") } else { &name };
            push_head(&mut text, of_family, kind, family.help);
            for Sample { labels, value } in &family.samples {
                push_sample(&mut text, &name, labels.iter().map(|(name, value)| (*name, &**value)), value);
            }
        }
        if is_open {
            text.push_str("# EOF\n");
        }
        text
    }

    /// Adds a row to its family, even if rows of other families were added since the family began.
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

    fn family(&mut self, family: &'static CounterFamily, values: impl Iterator<Item = (&'static str, u64)>) {
        let sample = |(of, value): (&'static str, u64)| Sample { labels: vec![(family.label, of.into())], value };
        let samples = values.map(sample).collect();
        self.0.push(Family { name: family.metric, help: family.help, counter: true, samples });
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
    use flatout_os::send_memory::SendMemory;
    use flatout_overload::QueueReading;
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
                &[&Table { names: &["hit", "not_found"], texts: &[], marks: &[] }],
                Arc::new(logs),
                Arc::new(NoStore),
            ),
            Some(SendMemory { bytes: 9, connections: 2 }),
            MetricsFormat::OpenMetrics,
        );
        for line in [
            "flatout_unsent_memory_bytes 9",
            "flatout_unsent_connections 2",
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

        fn queues(&self) -> Vec<(String, QueueReading)> {
            vec![("pages: short".to_owned(), QueueReading { waiting: 3, waiting_max: 6 })]
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
        let text = encode_metrics(&shared, None, MetricsFormat::OpenMetrics);
        for line in [
            "# TYPE flatout_cache_lookups counter",
            "flatout_cache_lookups_total{reason=\"hit\"} 3",
            "flatout_cache_lookups_total{reason=\"miss\"} 1",
            "# TYPE flatout_cache_objects gauge",
            "flatout_cache_objects 2",
            "flatout_cache_disk_bytes{reason=\"/a \\\"b\\\"\"} 5",
            "flatout_queue_length{queue=\"pages: short\"} 3",
            "flatout_queue_limit{queue=\"pages: short\"} 6",
        ] {
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} is not once in\n{text}");
        }
        let text = encode_metrics(&shared, None, MetricsFormat::Text);
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
        assert_eq!((shared.status().queues[0].waiting, shared.status().queues[0].waiting_max), (3, 6));
    }
}
