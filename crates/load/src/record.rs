//! What came of a run: one [`Recorder`] a thread, merged afterwards.
//!
//! Everything is told by three events: a burst was begun, a request ended ([`Sample`]), a connection ended
//! ([`ConnectionEnd`]). All counts are 64 bits wide and none is estimated. Recording allocates nothing, except the first
//! time a thread meets a new failure detail.
//!
//! What was intended before measuring began is counted apart ([`Recorder::warm_up_samples`]) and in no figure.

pub mod hdr;
pub mod hlog;
pub mod moments;
pub mod series;

pub use hdr::Hdr;
pub use moments::Moments;
pub use series::{Point, Series};

use crate::failure::FailureKind;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Longest time told apart, one hour in nanoseconds; longer ones are recorded as this.
pub const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Most classes that are told apart; requests of further classes are counted with the last.
pub const CLASSES_MAX: usize = 256;

/// One request that ended, answered or not. All times are of one monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Class of the URL, below [`CLASSES_MAX`].
    pub class: u16,
    /// Step of the sweep, from 0.
    pub step: u16,
    /// When the schedule wanted it.
    pub intended_ns: u64,
    /// When the client acted: began to connect or to send.
    pub begun_ns: u64,
    /// When its last byte was handed to the kernel; 0 when that never happened.
    pub sent_ns: u64,
    /// When the first byte of the answer was read; 0 when none was.
    pub first_byte_ns: u64,
    /// When it ended: the last byte, or the failure.
    pub ended_ns: u64,
    /// Time to resolve the name for this request's connection; 0 when nothing was resolved.
    pub resolve_ns: u64,
    /// Time to establish the TCP connection; 0 on a connection that stood already.
    pub connect_ns: u64,
    /// Time of the TLS handshake; 0 where there was none.
    pub tls_ns: u64,
    /// The final status, or why it failed.
    pub result: Result<u16, FailureKind>,
    /// More about a failure than its kind can say: the reason a parser gave, or the name of an errno; else empty.
    pub detail: &'static str,
    /// Bytes of response heads, interim ones and chunked framing included.
    pub head_bytes: u64,
    /// Bytes of the body, without framing.
    pub body_bytes: u64,
    /// Bytes of the request that were sent.
    pub sent_bytes: u64,
    /// Interim (1xx) responses before the answer.
    pub interim_responses: u16,
    /// Whether it was the first on its connection.
    pub is_new_connection: bool,
}

impl Sample {
    /// From the intended start to the end.
    pub fn response_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.intended_ns)
    }

    /// From the client's act to the end.
    pub fn service_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.begun_ns)
    }

    /// From the intended start to the client's act.
    pub fn lag_ns(&self) -> u64 {
        self.begun_ns.saturating_sub(self.intended_ns)
    }
}

/// One connection that ended, or that stood when the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// When the client began to connect.
    pub begun_ns: u64,
    /// When it was closed.
    pub ended_ns: u64,
    /// Answers received whole on it.
    pub replies: u64,
    /// Whether the server closed it although it could have been used again.
    pub by_server: bool,
}

/// Plain counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Attempts to connect.
    pub connects_begun: u64,
    /// Connections established.
    pub connections: u64,
    /// Connections that the server closed although they could have been used again.
    pub server_closes: u64,
    /// TLS handshakes made.
    pub tls_handshakes: u64,
    /// TLS handshakes among them that resumed a session.
    pub tls_resumed: u64,
    /// Requests begun.
    pub requests_begun: u64,
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
    /// Bytes of bodies, without their framing, those of failed requests included.
    pub body_bytes_in: u64,
    /// Responses by status class; index 0 is 1xx (interim ones), 4 is 5xx.
    pub status_classes: [u64; 5],
    /// Bodies that were checked by their digest.
    pub digests_checked: u64,
    /// Failed requests by kind.
    pub failures: Failures,
}

/// Failed requests by kind, in the order of [`FailureKind::ALL`]; in JSON an object of the kinds' names, zeros included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures(pub [u64; FailureKind::COUNT]);

impl Serialize for Failures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(FailureKind::ALL.into_iter().map(|kind| (kind, self.0[kind.index()])))
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
    /// Requests that failed, of all kinds.
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
}

/// Where the time of a request went. Connect and TLS hold one value a connection, the others one a response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phases {
    /// Looking up the name.
    pub resolve: Hdr,
    /// Establishing the TCP connection.
    pub connect: Hdr,
    /// The TLS handshake.
    pub tls: Hdr,
    /// From the last byte sent to the first byte received.
    pub wait: Hdr,
    /// From the first byte received to the last.
    pub transfer: Hdr,
}

/// Sums from which averages and population standard deviations are computed, as the classic reports want them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Time to establish connections, in nanoseconds.
    pub connect_ns: Moments,
    /// Response time from the intended start, in nanoseconds, of answered requests.
    pub response_ns: Moments,
    /// Service time from the client's act, connect included, in nanoseconds, of answered requests.
    pub service_ns: Moments,
    /// From the last byte sent to the first byte received, in nanoseconds.
    pub wait_ns: Moments,
    /// From the first byte received to the last, in nanoseconds.
    pub transfer_ns: Moments,
    /// Bytes of head and body of each answer.
    pub response_bytes: Moments,
    /// Bytes of body of each answer.
    pub body_bytes: Moments,
    /// Bytes of each request sent.
    pub request_bytes: Moments,
    /// From the intended start to the failure, in nanoseconds, of failed requests.
    pub failed_ns: Moments,
}

/// What is known of one class of URLs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassRecord {
    /// Requests begun.
    pub requests: u64,
    /// Answers received whole.
    pub responses: u64,
    /// Failed requests.
    pub failures: u64,
    /// Answers whose status was 4xx or 5xx.
    pub errors: u64,
    /// Sums of its answers.
    pub sums: Sums,
    /// Response time of its answers, to two digits.
    pub response: Hdr,
}

/// What is known of ended connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// Lifetime from the beginning of connect to close, of connections with at least one answer.
    pub lifetime: Hdr,
    /// Sums of the same lifetimes, in nanoseconds.
    pub lifetime_ns: Moments,
    /// Answers on each connection with at least one.
    pub replies: Moments,
    /// Most connections open at once, summed over threads.
    pub peak: u64,
    /// Connections open now.
    pub open: u64,
}

/// Requests in flight, integrated over time: Little's law without an assumption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// Requests in flight now.
    pub now: u64,
    /// Most at once, summed over threads.
    pub peak: u64,
    /// Sum over time of requests in flight, in request-nanoseconds, of the measured part.
    pub integral_ns: u64,
    /// Since when `integral_ns` is up to date.
    last_ns: u64,
}

/// How a recorder is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderSettings {
    /// Classes of URLs, at least 1; at most [`CLASSES_MAX`] are told apart.
    pub classes: usize,
    /// Start of the series: the run's `start_ns`, the same for all threads.
    pub start_ns: u64,
    /// From when samples count, by their intended time; `u64::MAX` while the warm-up lasts and its end is not known.
    pub measured_from_ns: u64,
}

/// Why records cannot be made or added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// A histogram could not be made.
    Histogram,
    /// Two records have different bounds.
    Different,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Histogram => "a histogram could not be made",
            Self::Different => "two records have histograms of different bounds",
        })
    }
}

impl std::error::Error for RecordError {}

/// One thread's record of one step. It can be written as JSON and read back, as agents do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorder {
    /// Counts of the measured part.
    pub counts: Counts,
    /// Response times: from the intended start.
    pub response: Hdr,
    /// Service times: from the client's act.
    pub service: Hdr,
    /// Schedule lag: from the intended start to the client's act.
    pub lag: Hdr,
    /// Where the time went.
    pub phases: Phases,
    /// Sums for averages.
    pub sums: Sums,
    /// By class of URL.
    pub classes: Vec<ClassRecord>,
    /// Ended connections.
    pub connections: ConnectionRecord,
    /// Requests in flight.
    pub in_flight: InFlight,
    /// By second, warm-up included.
    pub series: Series,
    /// Failed requests by kind and detail, where a detail is known.
    pub details: Vec<FailureDetail>,
    /// Requests that ended and had been intended before measuring began.
    pub warm_up_samples: u64,
    /// From when samples count.
    pub measured_from_ns: u64,
    /// When the last measured sample ended; 0 before any did.
    pub last_ended_ns: u64,
}

/// Failures of one kind that had the same further detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDetail {
    /// The kind.
    pub kind: FailureKind,
    /// What a parser or the system said.
    pub detail: Cow<'static, str>,
    /// How many.
    pub count: u64,
}

impl Recorder {
    /// An empty record, some megabytes.
    pub fn new(settings: RecorderSettings) -> Result<Self, RecordError> {
        let class = ClassRecord {
            requests: 0,
            responses: 0,
            failures: 0,
            errors: 0,
            sums: Sums::default(),
            response: Hdr::with_digits(2)?,
        };
        Ok(Self {
            counts: Counts::default(),
            response: Hdr::new()?,
            service: Hdr::new()?,
            lag: Hdr::new()?,
            phases: Phases {
                resolve: Hdr::new()?,
                connect: Hdr::new()?,
                tls: Hdr::new()?,
                wait: Hdr::new()?,
                transfer: Hdr::new()?,
            },
            sums: Sums::default(),
            classes: vec![class; settings.classes.clamp(1, CLASSES_MAX)],
            connections: ConnectionRecord {
                lifetime: Hdr::new()?,
                lifetime_ns: Moments::default(),
                replies: Moments::default(),
                peak: 0,
                open: 0,
            },
            in_flight: InFlight::default(),
            series: Series::new(settings.start_ns),
            details: Vec::new(),
            warm_up_samples: 0,
            measured_from_ns: settings.measured_from_ns,
            last_ended_ns: 0,
        })
    }

    /// Says from when samples count, when a warm-up that waited for the steady state is over.
    pub fn begin_measuring(&mut self, from_ns: u64) {
        self.measured_from_ns = from_ns;
    }

    /// Requests were begun at `now_ns`: `requests` of one burst. Each of them ends in one [`Sample`].
    pub fn record_begun(&mut self, requests: u32, intended_ns: u64, now_ns: u64) {
        let _ = (requests, intended_ns, now_ns);
    }

    /// An attempt to connect was begun.
    pub fn record_connect_begun(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// A connection was established, with a TLS handshake that `tls_resumed` a session, where there was one.
    pub fn record_connected(&mut self, now_ns: u64, tls_resumed: Option<bool>) {
        let _ = (now_ns, tls_resumed);
    }

    /// A connection that was established ended.
    pub fn record_connection_end(&mut self, end: &ConnectionEnd) {
        let _ = end;
    }

    /// A request ended.
    pub fn record(&mut self, sample: &Sample) {
        let _ = sample;
    }

    /// A body was checked by its digest. A wrong one is a failed sample besides.
    pub fn record_digest_checked(&mut self) {
        self.counts.digests_checked += 1;
    }

    /// Ends the record: brings the integral of requests in flight to `now_ns`.
    pub fn finish(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// Adds another thread's record of the same step.
    pub fn merge(&mut self, other: &Self) -> Result<(), RecordError> {
        let _ = other;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
