//! Counters of a worker. Only the worker writes its counters, so an increment is a plain load and store; any thread
//! may read them.

use flatout_handler::OUTCOMES_MAX;
use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use flatout_net::tls::TlsFailure;
use flatout_os::counter::Counter;
use flatout_reason::Table;

/// All counters of one worker.
#[derive(Debug)]
pub struct Counters {
    /// Connections accepted.
    pub connections_accepted: Counter,
    /// Failed accepts because descriptors had run out.
    pub accepts_without_descriptor: Counter,
    /// Accepts that failed otherwise, mostly because the client had already disconnected.
    pub accepts_failed: Counter,
    /// Times at which an accept queue was shortened because more clients connected than could be served.
    pub accept_queue_limited: Counter,
    /// Requests with a response, refused ones included.
    pub requests: Counter,
    /// Bytes handed to the kernel, heads and bodies.
    pub bytes_sent: Counter,
    /// Bytes received.
    pub bytes_received: Counter,
    /// TLS handshakes completed, including resumed ones.
    pub tls_handshakes: Counter,
    /// TLS handshakes that resumed an earlier session.
    pub tls_resumptions: Counter,
    /// TLS sessions that failed, in the order of `TlsFailure::ALL`.
    pub tls_failures: [Counter; TlsFailure::ALL.len()],
    /// Connections that negotiated HTTP/2.
    pub http2_connections: Counter,
    /// HTTP/2 streams that ended before their response was sent.
    pub http2_streams_cut: Counter,
    /// Responses by status class, 1xx to 5xx.
    pub status_classes: [Counter; 5],
    /// Refusals, in the order of `Refusal::ALL`.
    pub refusals: [Counter; Refusal::ALL.len()],
    /// Connections closed, in the order of `CloseReason::ALL`.
    pub closes: [Counter; CloseReason::ALL.len()],
    /// The handler's outcomes, in the order of its tables.
    pub outcomes: [Counter; OUTCOMES_MAX],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            connections_accepted: Counter::default(),
            accepts_without_descriptor: Counter::default(),
            accepts_failed: Counter::default(),
            accept_queue_limited: Counter::default(),
            requests: Counter::default(),
            bytes_sent: Counter::default(),
            bytes_received: Counter::default(),
            tls_handshakes: Counter::default(),
            tls_resumptions: Counter::default(),
            tls_failures: std::array::from_fn(|_| Counter::default()),
            http2_connections: Counter::default(),
            http2_streams_cut: Counter::default(),
            // Arrays of more than 32 elements do not implement Default.
            status_classes: std::array::from_fn(|_| Counter::default()),
            refusals: std::array::from_fn(|_| Counter::default()),
            closes: std::array::from_fn(|_| Counter::default()),
            outcomes: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl Counters {
    /// Counts a response with `status`; 600 and above count as 5xx (RFC 9110 §15).
    pub fn add_status(&self, status: u16) {
        let class = (status / 100).min(5).checked_sub(1);
        if let Some(class) = class.and_then(|class| self.status_classes.get(usize::from(class))) {
            class.add(1);
        }
    }
}

/// The sum over all workers as (name, count) rows, zeros left out, for reports and tests.
pub fn sum_rows(workers: &[&Counters], outcomes: &[&'static Table]) -> Vec<(String, u64)> {
    let sum = |pick: &dyn Fn(&Counters) -> u64| workers.iter().map(|counters| pick(counters)).sum::<u64>();
    let mut rows = vec![
        ("connections_accepted".to_owned(), sum(&|c| c.connections_accepted.get())),
        ("requests".to_owned(), sum(&|c| c.requests.get())),
        ("bytes_received".to_owned(), sum(&|c| c.bytes_received.get())),
        ("bytes_sent".to_owned(), sum(&|c| c.bytes_sent.get())),
        ("accepts_without_descriptor".to_owned(), sum(&|c| c.accepts_without_descriptor.get())),
        ("accepts_failed".to_owned(), sum(&|c| c.accepts_failed.get())),
        ("accept_queue_limited".to_owned(), sum(&|c| c.accept_queue_limited.get())),
        ("tls_handshakes".to_owned(), sum(&|c| c.tls_handshakes.get())),
        ("tls_resumptions".to_owned(), sum(&|c| c.tls_resumptions.get())),
        ("http2_connections".to_owned(), sum(&|c| c.http2_connections.get())),
        ("http2_streams_cut".to_owned(), sum(&|c| c.http2_streams_cut.get())),
    ];
    for class in 0..5 {
        rows.push((format!("status_{}xx", class + 1), sum(&|c| c.status_classes[class].get())));
    }
    for (index, name) in outcomes.iter().flat_map(|table| table.names).take(OUTCOMES_MAX).enumerate() {
        rows.push((format!("outcome_{name}"), sum(&|c| c.outcomes[index].get())));
    }
    for (index, refusal) in Refusal::ALL.iter().enumerate() {
        rows.push((format!("refused_{}", refusal.name()), sum(&|c| c.refusals[index].get())));
    }
    for (index, failure) in TlsFailure::ALL.iter().enumerate() {
        rows.push((format!("tls_{}", failure.name()), sum(&|c| c.tls_failures[index].get())));
    }
    for (index, reason) in CloseReason::ALL.iter().enumerate() {
        rows.push((format!("closed_{}", reason.name()), sum(&|c| c.closes[index].get())));
    }
    rows.retain(|(_, count)| *count > 0);
    rows
}

#[cfg(test)]
mod tests {
    use super::{Counters, sum_rows};
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
        let rows = sum_rows(&[&one, &two], &[&Table { names: &["hit", "missing"], texts: &[] }]);
        // Statuses of no class count as server errors (RFC 9110 section 15).
        let expected =
            [("requests", 5), ("status_4xx", 1), ("status_5xx", 1), ("outcome_missing", 7), ("closed_idle_timeout", 1)];
        assert_eq!(rows, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
