//! What came of a run: counts and histograms, one [`Recorder`] a thread, merged afterwards.
//!
//! All counts are 64 bits wide and none is estimated. Recording allocates nothing, except the first time a thread meets a
//! new failure detail.

use crate::failure::FailureKind;
use hdrhistogram::{CreationError, Histogram};
use std::collections::BTreeMap;

/// Longest latency told apart, one hour in nanoseconds; longer ones are recorded as this.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Significant decimal digits of every recorded time.
const DIGITS: u8 = 3;

/// Plain counts of a run or of one thread's part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections established.
    pub connections: u64,
    /// Connections among them that replaced one which the server had closed although it could have been used again.
    pub reconnects: u64,
    /// Requests of which every byte was handed to the kernel.
    pub requests_sent: u64,
    /// Responses received whole: head, and the body to its declared end.
    pub responses: u64,
    /// Interim (1xx) responses, which are not in `responses`.
    pub interim_responses: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes of response heads, interim ones included, and of chunked framing.
    pub head_bytes_in: u64,
    /// Bytes of bodies, without their chunked framing, those of failed requests included.
    pub body_bytes_in: u64,
    /// Responses by status class; index 0 is 1xx (interim ones), 4 is 5xx.
    pub status_classes: [u64; 5],
    /// Failed requests by kind, in the order of [`FailureKind::ALL`].
    pub failures: [u64; FailureKind::COUNT],
}

impl Counts {
    /// Requests that failed, of all kinds.
    pub fn failures_total(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// Failed requests of one kind.
    pub fn failures_of(&self, kind: FailureKind) -> u64 {
        self.failures[kind.index()]
    }

    /// Bytes received, heads and bodies together.
    pub fn bytes_in(&self) -> u64 {
        self.head_bytes_in + self.body_bytes_in
    }

    fn merge(&mut self, other: &Self) {
        self.connections += other.connections;
        self.reconnects += other.reconnects;
        self.requests_sent += other.requests_sent;
        self.responses += other.responses;
        self.interim_responses += other.interim_responses;
        self.bytes_out += other.bytes_out;
        self.head_bytes_in += other.head_bytes_in;
        self.body_bytes_in += other.body_bytes_in;
        for (mine, theirs) in self.status_classes.iter_mut().zip(other.status_classes) {
            *mine += theirs;
        }
        for (mine, theirs) in self.failures.iter_mut().zip(other.failures) {
            *mine += theirs;
        }
    }
}

/// One request answered in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Status of the final response, 200 to 599.
    pub status: u16,
    /// From just before the request was sent to the last byte of the answer, in nanoseconds.
    pub latency_ns: u64,
}

/// One thread's record.
#[derive(Clone, Debug)]
pub struct Recorder {
    counts: Counts,
    latency: Histogram<u64>,
    connect: Histogram<u64>,
    details: BTreeMap<(FailureKind, &'static str), u64>,
}

impl Recorder {
    /// An empty record, about half a megabyte.
    pub fn new() -> Result<Self, CreationError> {
        Ok(Self {
            counts: Counts::default(),
            latency: Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)?,
            connect: Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)?,
            details: BTreeMap::new(),
        })
    }

    /// A connection was established, `connect_ns` after it was begun.
    pub fn record_connect(&mut self, connect_ns: u64, is_reconnect: bool) {
        self.counts.connections += 1;
        self.counts.reconnects += u64::from(is_reconnect);
        self.connect.saturating_record(connect_ns);
    }

    /// A request of `bytes` was handed to the kernel whole.
    pub fn record_sent(&mut self, bytes: u64) {
        self.counts.requests_sent += 1;
        self.counts.bytes_out += bytes;
    }

    /// Bytes arrived, whatever becomes of their request.
    pub fn record_received(&mut self, head_bytes: u64, body_bytes: u64) {
        self.counts.head_bytes_in += head_bytes;
        self.counts.body_bytes_in += body_bytes;
    }

    /// An interim (1xx) response arrived.
    pub fn record_interim(&mut self) {
        self.counts.interim_responses += 1;
        self.counts.status_classes[0] += 1;
    }

    /// A request was answered in full.
    pub fn record_exchange(&mut self, exchange: Exchange) {
        self.counts.responses += 1;
        // A parser that lets another status through than 1xx to 5xx would be a defect; it must not become a panic here.
        let class = usize::from(exchange.status / 100).clamp(1, 5) - 1;
        self.counts.status_classes[class] += 1;
        self.latency.saturating_record(exchange.latency_ns);
    }

    /// A request failed. `detail` says more than the kind can: the reason a parser gave, or the name of an errno.
    pub fn record_failure(&mut self, kind: FailureKind, detail: &'static str) {
        self.counts.failures[kind.index()] += 1;
        if !detail.is_empty() {
            *self.details.entry((kind, detail)).or_insert(0) += 1;
        }
    }

    /// Adds another thread's record to this one.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        for (mine, theirs) in [(&mut self.latency, &other.latency), (&mut self.connect, &other.connect)] {
            let merged = mine.add(theirs);
            debug_assert!(merged.is_ok(), "all recorders have the same bounds");
        }
        for (key, count) in &other.details {
            *self.details.entry(*key).or_insert(0) += count;
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Latency of every answered request, in nanoseconds.
    pub fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Time each connection took to establish, in nanoseconds.
    pub fn connect(&self) -> &Histogram<u64> {
        &self.connect
    }

    /// Failed requests by kind and detail, where a detail is known.
    pub fn details(&self) -> impl Iterator<Item = (FailureKind, &'static str, u64)> + '_ {
        self.details.iter().map(|((kind, detail), count)| (*kind, *detail, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, LATENCY_NS_MAX, Recorder};
    use crate::failure::FailureKind;

    fn answered(recorder: &mut Recorder, status: u16, latency_ns: u64) {
        recorder.record_exchange(Exchange { status, latency_ns });
    }

    #[test]
    fn two_threads_merge_to_the_sum_of_both() {
        let mut one = Recorder::new().unwrap();
        let mut two = Recorder::new().unwrap();
        one.record_connect(1_000, false);
        one.record_sent(40);
        one.record_received(100, 1024);
        answered(&mut one, 200, 50_000);
        two.record_connect(3_000, true);
        two.record_sent(40);
        two.record_received(90, 3);
        two.record_interim();
        answered(&mut two, 404, 150_000);
        two.record_failure(FailureKind::BadResponse, "bad status line");
        one.record_failure(FailureKind::BadResponse, "bad status line");
        one.record_failure(FailureKind::ClosedEarly, "");
        one.merge(&two);

        let counts = one.counts();
        assert_eq!((counts.connections, counts.reconnects), (2, 1));
        assert_eq!((counts.requests_sent, counts.responses, counts.bytes_out), (2, 2, 80));
        assert_eq!((counts.head_bytes_in, counts.body_bytes_in, counts.bytes_in()), (190, 1027, 1217));
        assert_eq!(counts.status_classes, [1, 1, 0, 1, 0]);
        assert_eq!(counts.failures_total(), 3);
        assert_eq!(counts.failures_of(FailureKind::BadResponse), 2);
        assert_eq!(one.latency().len(), 2);
        assert_eq!(one.connect().len(), 2);
        let details: Vec<_> = one.details().collect();
        assert_eq!(details, vec![(FailureKind::BadResponse, "bad status line", 2)]);
    }

    #[test]
    fn times_outside_the_range_are_kept_at_its_ends() {
        let mut recorder = Recorder::new().unwrap();
        answered(&mut recorder, 200, 0);
        answered(&mut recorder, 200, u64::MAX);
        assert_eq!(recorder.latency().len(), 2);
        assert!(recorder.latency().max() >= LATENCY_NS_MAX);
    }

    #[test]
    fn a_status_outside_every_class_is_counted_somewhere() {
        let mut recorder = Recorder::new().unwrap();
        answered(&mut recorder, 0, 1);
        answered(&mut recorder, 999, 1);
        assert_eq!(recorder.counts().status_classes, [1, 0, 0, 0, 1]);
    }

    #[test]
    fn latency_is_kept_to_three_digits() {
        let mut recorder = Recorder::new().unwrap();
        answered(&mut recorder, 200, 123_456_789);
        let kept = recorder.latency().value_at_quantile(0.5);
        assert!(kept.abs_diff(123_456_789) <= 123_456, "{kept}");
    }
}
