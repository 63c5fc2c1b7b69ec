//! Counters of the measured span.

use super::Sample;
use crate::failure::FailureKind;
use serde::{Deserialize, Serialize};

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Connection attempts.
    pub connects_begun: u64,
    /// Connections established.
    pub connections: u64,
    /// Connections that the server closed although they were reusable.
    pub server_closes: u64,
    /// TLS handshakes.
    pub tls_handshakes: u64,
    /// Resumed TLS handshakes among them.
    pub tls_resumed: u64,
    /// Requests begun.
    pub requests_begun: u64,
    /// Requests whose every byte the kernel accepted.
    pub requests_sent: u64,
    /// Complete responses: head, and body to its declared end.
    pub responses: u64,
    /// Interim (1xx) responses, excluded from `responses`.
    pub interim_responses: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes of response heads, interim ones included, and of chunked framing.
    pub head_bytes_in: u64,
    /// Bytes of bodies without framing, including those of failed requests.
    pub body_bytes_in: u64,
    /// Responses by status class; index 0 is 1xx (interim ones), 4 is 5xx.
    pub status_classes: [u64; 5],
    /// Bodies checked by digest.
    pub digests_checked: u64,
    /// Failed requests by kind.
    pub failures: Failures,
}

/// Failed requests by kind, in the order of [`FailureKind::ALL`]; in JSON an object with the names of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures(pub [u64; FailureKind::COUNT]);

impl Serialize for Failures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(FailureKind::ALL.iter().copied().map(|kind| (kind, self.0[kind.index()])))
    }
}

impl<'de> Deserialize<'de> for Failures {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counts = std::collections::BTreeMap::<FailureKind, u64>::deserialize(deserializer)?;
        let mut failures = Self::default();
        for (kind, count) in counts {
            failures.0[kind.index()] = count;
        }
        Ok(failures)
    }
}

impl Counts {
    /// Total failed requests.
    pub fn failures_total(&self) -> u64 {
        self.failures.0.iter().sum()
    }

    /// Failed requests of one kind.
    pub fn failures_of(&self, kind: FailureKind) -> u64 {
        self.failures.0[kind.index()]
    }

    /// Bytes received, heads and bodies together.
    pub fn bytes_in(&self) -> u64 {
        self.head_bytes_in + self.body_bytes_in
    }

    /// Responses with status 4xx or 5xx.
    pub fn status_errors(&self) -> u64 {
        self.status_classes[3] + self.status_classes[4]
    }

    /// Share of requests that failed or had status 4xx or 5xx, 0 to 1; 0 if none ended.
    pub fn error_share(&self) -> f64 {
        let ended = self.responses + self.failures_total();
        let errors = self.failures_total() + self.status_errors();
        if ended == 0 { 0.0 } else { errors as f64 / ended as f64 }
    }

    pub(super) fn record(&mut self, sample: &Sample) {
        self.requests_sent += u64::from(sample.sent_ns > 0);
        self.bytes_out += sample.sent_bytes;
        self.head_bytes_in += sample.head_bytes;
        self.body_bytes_in += sample.body_bytes;
        self.interim_responses += u64::from(sample.interim_responses);
        self.status_classes[0] += u64::from(sample.interim_responses);
        match sample.result {
            Ok(status) => {
                self.responses += 1;
                // The parser only accepts 1xx to 5xx; a defect there must not panic here.
                self.status_classes[usize::from(status / 100).clamp(1, 5) - 1] += 1;
            }
            Err(kind) => self.failures.0[kind.index()] += 1,
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.connects_begun += other.connects_begun;
        self.connections += other.connections;
        self.server_closes += other.server_closes;
        self.tls_handshakes += other.tls_handshakes;
        self.tls_resumed += other.tls_resumed;
        self.requests_begun += other.requests_begun;
        self.requests_sent += other.requests_sent;
        self.responses += other.responses;
        self.interim_responses += other.interim_responses;
        self.bytes_out += other.bytes_out;
        self.head_bytes_in += other.head_bytes_in;
        self.body_bytes_in += other.body_bytes_in;
        self.digests_checked += other.digests_checked;
        let (mine, theirs) = (&mut self.failures.0, other.failures.0);
        mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        let (mine, theirs) = (&mut self.status_classes, other.status_classes);
        mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
    }
}
