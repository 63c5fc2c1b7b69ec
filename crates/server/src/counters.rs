//! Counters of a worker. Only the worker writes its counters, so an increment is a plain load and store. Any thread may
//! read them.

use crate::accept::AcceptProblem;
use flatout_handler::OUTCOMES_MAX;
use flatout_handler::ending::CloseReason;
use flatout_http::http2::error::{self as http2, StreamError};
use flatout_http::http3::error as http3;
use flatout_http::refusal::Refusal;
use flatout_net::tls::TlsFailure;
use flatout_os::counter::Counter;
use flatout_reason::Table;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// Creates the counters from three tables, each of which is also available as a constant.
///
/// A counter or gauge has a field, a metric and a help text. A family of counters has a field, a metric, the label by
/// which its counters differ, the prefix of their names in reports, the values of the label, and a help text.
macro_rules! counters {
    (
        counters { $($field:ident, $metric:literal, $help:literal;)+ }
        gauges { $($gauge:ident, $gauge_metric:literal, $gauge_help:literal;)+ }
        families {
            $($family:ident, $family_metric:literal, $label:literal, $prefix:literal, $names:expr, $count:expr,
                $family_help:literal;)+
        }
    ) => {
        /// All counters of one worker.
        #[derive(Debug)]
        pub struct Counters {
            $(#[doc = $help] pub $field: Counter,)+
            $(#[doc = $gauge_help] pub $gauge: Arc<Counter>,)+
            $(#[doc = $family_help] pub $family: [Counter; $count],)+
            /// The largest number of a TCP connection's descriptor so far, for measuring the memory of connections.
            pub descriptor_max: Counter,
        }

        impl Default for Counters {
            fn default() -> Self {
                Self {
                    $($field: Counter::default(),)+
                    $($gauge: Arc::default(),)+
                    // Arrays of more than 32 elements do not implement Default.
                    $($family: std::array::from_fn(|_| Counter::default()),)+
                    descriptor_max: Counter::default(),
                }
            }
        }

        /// All counters.
        pub const ROWS: &[CounterRow] = &[$(CounterRow {
            name: stringify!($field),
            metric: $metric,
            help: $help,
            counter: |counters| &counters.$field,
        },)+];

        /// All gauges.
        pub const GAUGES: &[CounterRow] = &[$(CounterRow {
            name: stringify!($gauge),
            metric: $gauge_metric,
            help: $gauge_help,
            counter: |counters| &counters.$gauge,
        },)+];

        /// All families of counters.
        pub const FAMILIES: &[CounterFamily] = &[$(CounterFamily {
            metric: $family_metric,
            help: $family_help,
            label: $label,
            prefix: $prefix,
            names: $names,
            counters: |counters| &counters.$family,
        },)+];
    };
}

/// Returns the counters of a family.
type CountersOf = fn(&Counters) -> &[Counter];

/// A counter or gauge in [`Counters`].
#[derive(Debug)]
pub struct CounterRow {
    /// The name in reports.
    pub name: &'static str,
    /// The name of the metric.
    pub metric: &'static str,
    /// The help text of the metric.
    pub help: &'static str,
    counter: fn(&Counters) -> &Counter,
}

/// A family of counters in [`Counters`], which differ in the value of a label.
#[derive(Debug)]
pub struct CounterFamily {
    /// The name of the metric.
    pub metric: &'static str,
    /// The help text of the metric.
    pub help: &'static str,
    /// The name of the label.
    pub label: &'static str,
    /// The prefix of the label's value in reports.
    prefix: &'static str,
    /// The values of the label. If empty, the values are the names of the handler's outcomes.
    names: &'static [&'static str],
    counters: CountersOf,
}

impl CounterRow {
    /// Returns the sum over all workers.
    pub fn sum(&self, workers: &[impl Deref<Target = Counters>]) -> u64 {
        workers.iter().map(|counters| (self.counter)(counters).get()).sum()
    }
}

impl CounterFamily {
    /// Returns the values of the label, each with its sum over all workers. `outcomes` are the tables of the handler.
    pub fn sums(
        &self,
        workers: &[impl Deref<Target = Counters>],
        outcomes: &[&'static Table],
    ) -> impl Iterator<Item = (&'static str, u64)> {
        let outcomes = outcomes.iter().filter(move |_| self.names.is_empty()).flat_map(|table| table.names);
        self.names.iter().chain(outcomes).take(OUTCOMES_MAX).enumerate().map(move |(index, name)| {
            let count = |counters: &Counters| (self.counters)(counters).get(index).map_or(0, Counter::get);
            (*name, workers.iter().map(|counters| count(counters)).sum())
        })
    }
}

counters! {
    counters {
        connections_accepted, "connections_accepted", "Connections accepted.";
        requests, "requests", "Requests that got a response, including refused requests.";
        bytes_received, "received_bytes", "Bytes received.";
        bytes_sent, "sent_bytes", "Bytes of heads and bodies passed to the kernel for sending.";
        accepts_failed, "accepts_failed", "Accept calls that failed for another reason.";
        accept_queue_limited, "accept_queue_limited",
            "Number of times flatout shortened a listen backlog because more clients connected than it could serve.";
        tls_handshakes, "tls_handshakes", "TLS handshakes completed, including resumed ones.";
        tls_resumptions, "tls_resumptions", "TLS handshakes that resumed a session.";
        http2_connections, "http2_connections", "Connections that use HTTP/2.";
        http2_streams_cut, "http2_streams_cut", "HTTP/2 streams that ended before their response was sent.";
        http3_connections, "http3_connections", "Connections that use HTTP/3.";
        http3_streams_cut, "http3_streams_cut", "HTTP/3 streams that ended before their response was sent.";
        quic_retries, "quic_retries", "QUIC connection attempts that required address validation (Retry).";
        quic_refused, "quic_refused", "Refused QUIC connections.";
        quic_datagrams_relayed, "quic_datagrams_relayed",
            "QUIC datagrams that a worker or process forwarded to the owner of their connection.";
        quic_packets_lost, "quic_packets_lost", "Lost QUIC packets. A connection's losses are added when it closes.";
    }
    gauges {
        receive_window_bytes, "receive_window_bytes",
            "Receive window currently granted to HTTP/2 and HTTP/3 connections beyond their initial window, in bytes.";
        send_buffer_bytes, "send_buffer_bytes",
            "Send buffer currently granted to HTTP/1.1, HTTP/2 and HTTP/3 connections beyond their minimum, in bytes.";
    }
    families {
        status_classes, "responses", "class", "status_", &["1xx", "2xx", "3xx", "4xx", "5xx"], 5,
            "Responses, by status class.";
        outcomes, "outcomes", "outcome", "outcome_", &[], OUTCOMES_MAX, "Responses, by outcome.";
        refusals, "refusals", "reason", "refused_", Refusal::NAMES, Refusal::ALL.len(),
            "Refused requests, by reason.";
        tls_failures, "tls_failures", "reason", "tls_", TlsFailure::NAMES, TlsFailure::ALL.len(),
            "Failed TLS sessions, by reason.";
        http2_violations, "http2_violations", "reason", "", http2::ConnectionError::NAMES,
            http2::ConnectionError::ALL.len(), "Violations of HTTP/2 that closed a connection, by name.";
        http3_violations, "http3_violations", "reason", "", http3::ConnectionError::NAMES,
            http3::ConnectionError::ALL.len(), "Violations of HTTP/3 that closed a connection, by name.";
        stream_errors, "stream_errors", "reason", "", StreamError::NAMES, StreamError::ALL.len(),
            "HTTP/2 and HTTP/3 streams reset because of a client error, by name.";
        accept_problems, "accept_problems", "reason", "", AcceptProblem::NAMES, AcceptProblem::ALL.len(),
            "Number of times flatout accepted no connection, or accepted one from a full listen backlog, by reason.";
        closes, "closes", "reason", "closed_", CloseReason::NAMES, CloseReason::ALL.len(),
            "Closed connections, by reason.";
    }
}

impl Counters {
    /// Counts a problem with accepting a connection, if there is one.
    pub(crate) fn count_accept_problem(&self, problem: Option<AcceptProblem>) {
        if let Some(problem) = problem {
            self.accept_problems[problem as usize].add(1);
        }
    }

    /// Counts a response with `status`. Status codes of 600 and above count as 5xx (RFC 9110 §15).
    pub fn add_status(&self, status: u16) {
        let class = (status / 100).min(5).checked_sub(1);
        if let Some(class) = class.and_then(|class| self.status_classes.get(usize::from(class))) {
            class.add(1);
        }
    }
}

/// Returns the sums over all workers of the reasons with this mark: accept problems, close reasons, and the outcomes in
/// the tables `outcomes`.
pub fn marked_sums(
    workers: &[impl Deref<Target = Counters>],
    outcomes: &[&'static Table],
    mark: &str,
) -> BTreeMap<&'static str, u64> {
    let families: [(&[&'static Table], CountersOf); 3] = [
        (&[AcceptProblem::TABLE], |counters| &counters.accept_problems),
        (&[CloseReason::TABLE], |counters| &counters.closes),
        (outcomes, |counters| &counters.outcomes),
    ];
    let mut sums = BTreeMap::new();
    for (tables, counters) in families {
        let rows = tables.iter().flat_map(|table| table.rows()).enumerate();
        for (index, (name, _)) in rows.filter(|(_, (_, other))| *other == mark) {
            let count = |worker: &Counters| counters(worker).get(index).map_or(0, Counter::get);
            sums.insert(name, workers.iter().map(|worker| count(worker)).sum());
        }
    }
    sums
}

/// Returns the sums over all workers as (name, count) rows, without rows of 0, for reports and tests.
pub fn sum_rows(workers: &[impl Deref<Target = Counters>], outcomes: &[&'static Table]) -> Vec<(String, u64)> {
    let rows = ROWS.iter().map(|row| (row.name.to_owned(), row.sum(workers)));
    let families = FAMILIES.iter().flat_map(|family| {
        family.sums(workers, outcomes).map(move |(name, count)| (format!("{}{name}", family.prefix), count))
    });
    rows.chain(families).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::{Counters, marked_sums, sum_rows};
    use crate::accept::AcceptProblem;
    use flatout_handler::ending::CloseReason;
    use flatout_reason::Table;

    #[test]
    fn rows_are_summed_and_zeros_left_out() {
        let (one, two) = (Counters::default(), Counters::default());
        one.requests.add(2);
        two.requests.add(3);
        two.add_status(404);
        two.add_status(999);
        two.closes[CloseReason::IdleTimeout as usize].add(1);
        two.outcomes[1].add(7);
        let rows = sum_rows(&[&one, &two], &[&Table { names: &["hit", "missing"], texts: &[], marks: &[] }]);
        // Status codes of no class count as server errors (RFC 9110 §15).
        let expected =
            [("requests", 5), ("status_4xx", 1), ("status_5xx", 1), ("outcome_missing", 7), ("closed_idle_timeout", 1)];
        assert_eq!(rows, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn reasons_with_a_mark_are_summed() {
        let (one, two) = (Counters::default(), Counters::default());
        one.outcomes[1].add(7);
        two.count_accept_problem(Some(AcceptProblem::QueueFull));
        two.count_accept_problem(Some(AcceptProblem::KernelMemory));
        two.closes[CloseReason::HeadsTotal as usize].add(2);
        let table = Table { names: &["hit", "busy"], texts: &[], marks: &["", "overload"] };
        let table: &'static Table = Box::leak(Box::new(table));
        let mut sums = marked_sums(&[&one, &two], &[table], "overload");
        sums.retain(|_, count| *count > 0);
        assert_eq!(sums, [("accept_queue_full", 1), ("busy", 7), ("heads_total", 2)].into());
        assert_eq!(marked_sums(&[&two], &[], "resources")["accept_kernel_memory"], 1);
    }
}
