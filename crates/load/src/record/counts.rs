//! Counters of the measured span.

use super::Sample;
use crate::failure::FailureKind;
use serde::{Deserialize, Serialize};

/// Counters of connections, requests, responses, bytes and failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Connection attempts started.
    pub connects_begun: u64,
    /// Connections established.
    pub connections: u64,
    /// Connections that the server closed although they were reusable.
    pub server_closes: u64,
    /// Completed TLS handshakes, both full and resumed.
    pub tls_handshakes: u64,
    /// TLS handshakes that resumed a session.
    pub tls_resumed: u64,
    /// Requests started.
    pub requests_begun: u64,
    /// Requests of which the kernel accepted every byte.
    pub requests_sent: u64,
    /// Requests that were sent again, because the server stated that it did not process them (HTTP/2 and HTTP/3).
    #[serde(default)]
    pub sent_again: u64,
    /// Requests that were sent again after an idle close: the server closed the connection, which had been idle, before a
    /// response.
    #[serde(default)]
    pub sent_again_idle: u64,
    /// Complete responses, from the head to the declared end of the body.
    pub responses: u64,
    /// Interim (1xx) responses, which `responses` does not include.
    pub interim_responses: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Bytes of response heads, including interim responses, and of chunked framing.
    pub head_bytes_in: u64,
    /// Bytes of bodies without framing, including those of failed requests.
    pub body_bytes_in: u64,
    /// Responses by status class, from 1xx (index 0, interim responses and a final 101) to 5xx (index 4).
    pub status_classes: [u64; 5],
    /// Responses with an unexpected status ([`crate::plan::ExpectedStatuses`]) by status class, which `status_classes`
    /// includes.
    #[serde(default)]
    pub unexpected_classes: [u64; 5],
    /// Responses with a status of 600 to 999, which is unexpected and in no status class.
    #[serde(default)]
    pub other_statuses: u64,
    /// Bodies checked by digest.
    pub digests_checked: u64,
    /// Failed requests by kind.
    pub failures: Failures,
    /// Cookies that clients received and sent, also during the warm-up.
    #[serde(default)]
    pub cookies: CookieCounts,
}

/// Counts of cookies, including those of the warm-up, in which clients usually receive theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CookieCounts {
    /// Clients that stored a cookie.
    pub clients: u64,
    /// Cookies that clients stored, including those that replaced others of the same name.
    pub stored: u64,
    /// Requests that were sent with cookies.
    pub requests: u64,
    /// Set-Cookie fields that were not used, because no request of the same client followed.
    pub unused: u64,
    /// Cookies that were not stored because they were invalid, for another host, `Secure` without TLS, or too many.
    pub dropped: u64,
}

impl CookieCounts {
    /// Adds the counts of other clients.
    pub const fn merge(&mut self, other: &Self) {
        self.clients += other.clients;
        self.stored += other.stored;
        self.requests += other.requests;
        self.unused += other.unused;
        self.dropped += other.dropped;
    }
}

/// Failed requests by kind, in the order of [`FailureKind::ALL`]. In JSON it is an object with the names of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures(pub [u64; FailureKind::COUNT]);

impl Failures {
    /// Adds the counts of another record.
    pub(super) fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }
}

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

/// Returns the sum, or the largest number if it is exceeded: the counts of a document may be anything.
fn sum_of(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

impl Counts {
    /// Returns the total number of failed requests.
    pub fn failures_total(&self) -> u64 {
        sum_of(&self.failures.0)
    }

    /// Returns the number of failed requests of one kind.
    pub fn failures_of(&self, kind: FailureKind) -> u64 {
        self.failures.0[kind.index()]
    }

    /// Returns the number of requests that failed because the client had no file descriptor or port.
    pub fn failures_of_client(&self) -> u64 {
        let kinds = [FailureKind::FdUnavail, FailureKind::AddrUnavail, FailureKind::FtabFull];
        kinds.into_iter().map(|kind| self.failures_of(kind)).sum()
    }

    /// Returns the number of bytes received in heads and bodies together.
    pub fn bytes_in(&self) -> u64 {
        self.head_bytes_in.saturating_add(self.body_bytes_in)
    }

    /// Returns the number of complete responses with an unexpected status.
    pub fn unexpected(&self) -> u64 {
        sum_of(&self.unexpected_classes).saturating_add(self.other_statuses)
    }

    /// Returns the number of complete responses with an expected status.
    pub fn successes(&self) -> u64 {
        self.responses.saturating_sub(self.unexpected())
    }

    /// Returns the number of requests that got no complete response, or one with an unexpected status.
    pub fn errors(&self) -> u64 {
        self.failures_total().saturating_add(self.unexpected())
    }

    /// Returns the number of requests that finished, with or without a response.
    pub fn ended(&self) -> u64 {
        self.responses.saturating_add(self.failures_total())
    }

    /// Returns the share of finished requests that are [`Self::errors`], 0 to 1; 0 if no request finished.
    pub fn error_share(&self) -> f64 {
        Self::error_share_of([self])
    }

    /// Returns the share of finished requests of several runs that are [`Self::errors`], 0 to 1; 0 if no request
    /// finished.
    pub fn error_share_of<'c>(runs: impl IntoIterator<Item = &'c Self>) -> f64 {
        let (errors, ended) = runs.into_iter().fold((0.0, 0.0), |(errors, ended), counts| {
            (errors + counts.errors() as f64, ended + counts.ended() as f64)
        });
        errors / f64::max(ended, 1.0)
    }

    pub(super) fn record(&mut self, sample: &Sample, is_success: bool) {
        self.requests_sent += u64::from(sample.sent_ns > 0);
        self.bytes_out += sample.sent_bytes;
        self.head_bytes_in += sample.head_bytes;
        self.body_bytes_in += sample.body_bytes;
        self.interim_responses += u64::from(sample.interim_responses);
        self.status_classes[0] += u64::from(sample.interim_responses);
        match sample.result {
            Ok(status) => {
                self.responses += 1;
                // The parser accepts only 100 to 999; a defect there must not cause a panic here.
                match usize::from(status / 100).max(1) {
                    class @ 1..=5 => {
                        self.status_classes[class - 1] += 1;
                        self.unexpected_classes[class - 1] += u64::from(!is_success);
                    }
                    _ => self.other_statuses += 1,
                }
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
        self.sent_again += other.sent_again;
        self.sent_again_idle += other.sent_again_idle;
        self.responses += other.responses;
        self.interim_responses += other.interim_responses;
        self.bytes_out += other.bytes_out;
        self.head_bytes_in += other.head_bytes_in;
        self.body_bytes_in += other.body_bytes_in;
        self.digests_checked += other.digests_checked;
        self.other_statuses += other.other_statuses;
        self.cookies.merge(&other.cookies);
        self.failures.merge(&other.failures);
        for (mine, theirs) in
            [(&mut self.status_classes, other.status_classes), (&mut self.unexpected_classes, other.unexpected_classes)]
        {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }
}
