//! Counters of a worker's exchanges with origins.

use super::failure::OriginFailure;
use flatout_os::counter::Counter;

/// Counters of a worker's clients of origins. Only the worker writes them; any thread may read them.
#[derive(Debug)]
pub struct OriginCounts {
    /// Number of connections opened, including their TLS handshakes.
    pub connections_opened: Counter,
    /// Number of exchanges started on a reused connection.
    pub connections_reused: Counter,
    /// Number of idle connections that turned out to be closed by the origin.
    pub connections_stale: Counter,
    /// Number of requests repeated immediately on a new connection.
    pub repeats: Counter,
    /// Number of final responses whose head was received.
    pub responses: Counter,
    /// Number of name resolutions.
    pub lookups: Counter,
    /// Number of bytes sent to origins over HTTP/1.1, without TLS overhead.
    pub bytes_sent: Counter,
    /// Number of bytes received from origins over HTTP/1.1, without TLS overhead.
    pub bytes_received: Counter,
    /// Number of failures returned to callers, by kind, in the order of `OriginFailure::ALL`.
    pub failures: [Counter; OriginFailure::ALL.len()],
}

impl Default for OriginCounts {
    fn default() -> Self {
        Self {
            connections_opened: Counter::default(),
            connections_reused: Counter::default(),
            connections_stale: Counter::default(),
            repeats: Counter::default(),
            responses: Counter::default(),
            lookups: Counter::default(),
            bytes_sent: Counter::default(),
            bytes_received: Counter::default(),
            failures: std::array::from_fn(|_| Counter::default()),
        }
    }
}

impl OriginCounts {
    pub(super) fn add_failure(&self, failure: OriginFailure) {
        self.failures[failure as usize].add(1);
    }
}

/// Returns the sums over all workers as (name, count) rows. Rows with a count of 0 are omitted.
pub fn sum_origin_rows(workers: &[&OriginCounts]) -> Vec<(String, u64)> {
    let sum = |pick: &dyn Fn(&OriginCounts) -> u64| workers.iter().map(|counts| pick(counts)).sum::<u64>();
    let mut rows = vec![
        ("origin_connections_opened".to_owned(), sum(&|c| c.connections_opened.get())),
        ("origin_connections_reused".to_owned(), sum(&|c| c.connections_reused.get())),
        ("origin_connections_stale".to_owned(), sum(&|c| c.connections_stale.get())),
        ("origin_repeats".to_owned(), sum(&|c| c.repeats.get())),
        ("origin_responses".to_owned(), sum(&|c| c.responses.get())),
        ("origin_lookups".to_owned(), sum(&|c| c.lookups.get())),
        ("origin_bytes_sent".to_owned(), sum(&|c| c.bytes_sent.get())),
        ("origin_bytes_received".to_owned(), sum(&|c| c.bytes_received.get())),
    ];
    for failure in OriginFailure::ALL {
        rows.push((format!("failed_{}", failure.name()), sum(&|c| c.failures[*failure as usize].get())));
    }
    rows.retain(|(_, count)| *count > 0);
    rows
}

#[cfg(test)]
mod tests {
    use super::{OriginCounts, sum_origin_rows};
    use crate::origin::OriginFailure;

    #[test]
    fn counters_are_summed_and_zeros_omitted() {
        let (one, two) = (OriginCounts::default(), OriginCounts::default());
        one.responses.add(2);
        two.responses.add(3);
        two.add_failure(OriginFailure::Refused);
        let expected = [("origin_responses", 5), ("failed_origin_refused", 1)];
        assert_eq!(sum_origin_rows(&[&one, &two]), expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
