//! Records of a run: one [`Recorder`] per thread, merged afterwards.
//!
//! Three events feed a recorder: the start of a burst, the end of a request ([`Sample`]) and the end of a connection
//! ([`ConnectionEnd`]). All counts have 64 bits, and none is estimated. Recording allocates only for a new failure
//! detail, for a new maximum of requests in flight, or for the first unexpected status.
//!
//! A response is successful if its status is expected ([`ExpectedStatuses`]). Response times are those of successful
//! responses; those of other responses are recorded apart, and a request without a response has none.
//!
//! Requests scheduled before measuring began are counted separately ([`Recorder::warm_up_samples`]) and excluded from
//! all figures.

pub mod counts;
pub mod flight;
pub mod hdr;
pub mod hlog;
pub mod late;
pub mod moments;
pub mod parts;
pub mod series;
pub mod statuses;

pub use counts::{CookieCounts, Counts, Failures};
pub use flight::InFlight;
pub use hdr::{Hdr, HdrError};
pub use late::Late;
pub use moments::Moments;
pub use parts::{ClassRecord, ConnectionRecord, Phases, Sums};
pub use series::{Point, Series};
pub use statuses::Statuses;

use crate::failure::FailureKind;
use crate::plan::ExpectedStatuses;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Longest recorded time, one hour in nanoseconds. Longer times are clamped to it.
pub const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// Maximum number of distinct URL classes. Requests of any further class count under the last.
pub const CLASSES_MAX: usize = 256;

/// One finished request, with or without a response. All times are in nanoseconds of one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Class of the URL, below [`CLASSES_MAX`].
    pub class: u16,
    /// Step of the sweep, numbered from 0.
    pub step: u16,
    /// Intended start of the request.
    pub intended_ns: u64,
    /// Actual start of the request, when the client began to connect or send.
    pub begun_ns: u64,
    /// Time at which the kernel accepted the last byte of the request; 0 if that never happened.
    pub sent_ns: u64,
    /// Time at which the first response byte was read; 0 if there was no response.
    pub first_byte_ns: u64,
    /// Time at which the last byte was read, or the request failed.
    pub ended_ns: u64,
    /// Time taken to resolve the host name for this request's connection; 0 without resolution.
    pub resolve_ns: u64,
    /// Time taken to establish the TCP connection; 0 on an existing connection.
    pub connect_ns: u64,
    /// Time taken by the TLS handshake; 0 without a handshake.
    pub tls_ns: u64,
    /// The final status, or the kind of failure.
    pub result: Result<u16, FailureKind>,
    /// Detail of a failure, such as a parser's reason or the name of an errno. Empty for a response.
    pub detail: &'static str,
    /// Bytes of response heads, including interim responses and chunked framing.
    pub head_bytes: u64,
    /// Bytes of the response body, without framing.
    pub body_bytes: u64,
    /// Bytes of the request that were sent.
    pub sent_bytes: u64,
    /// Number of interim (1xx) responses before the final response.
    pub interim_responses: u16,
    /// True if the request was the first on its connection.
    pub is_new_connection: bool,
}

impl Sample {
    /// Returns the time from the intended start to the end.
    pub fn response_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.intended_ns)
    }

    /// Returns the time from the actual start to the end.
    pub fn service_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.begun_ns)
    }

    /// Returns the time from the intended start to the actual start.
    pub fn lag_ns(&self) -> u64 {
        self.begun_ns.saturating_sub(self.intended_ns)
    }
}

/// One connection that was closed, or was still open when the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionEnd {
    /// Time at which the client began to connect.
    pub begun_ns: u64,
    /// Time at which the connection was closed.
    pub ended_ns: u64,
    /// Number of complete responses on the connection.
    pub replies: u64,
    /// True if the server closed the connection although it was reusable.
    pub by_server: bool,
}

/// The reason that requests are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentAgain {
    /// The server stated that it did not process them (HTTP/2 and HTTP/3).
    Unprocessed,
    /// The server closed the connection, which had been idle, before a response.
    IdleClose,
}

/// The URL classes and the measured span of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderSettings {
    /// Number of URL classes, at least 1; at most [`CLASSES_MAX`] are distinguished.
    pub classes: usize,
    /// Start of the time series: the run's `start_ns`, which all threads share.
    pub start_ns: u64,
    /// Samples with an intended start at this time or later are measured; `u64::MAX` during a warm-up of unknown
    /// length.
    pub measured_from_ns: u64,
}

/// The reason records could not be created or merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A histogram could not be created.
    #[error("a histogram could not be created")]
    Histogram,
    /// Two records have histograms with different bounds, or different numbers of classes.
    #[error("two records have histograms with different bounds")]
    Different,
}

/// One thread's record of one step. Agents send it as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorder {
    /// Counters of the measured span.
    pub counts: Counts,
    /// Complete responses by status.
    #[serde(default)]
    pub statuses: Statuses,
    /// Response times of successful responses, measured from the intended start.
    pub response: Hdr,
    /// Response times of responses with an unexpected status; `None` if there are none.
    #[serde(default)]
    pub unexpected: Option<Hdr>,
    /// Service times of successful responses, measured from the actual start.
    pub service: Hdr,
    /// Schedule lag, from the intended start to the actual start.
    pub lag: Hdr,
    /// Durations of request phases.
    pub phases: Phases,
    /// Sums from which means are calculated.
    pub sums: Sums,
    /// Records by URL class; at most [`CLASSES_MAX`].
    #[serde(deserialize_with = "parts::read_classes")]
    pub classes: Vec<ClassRecord>,
    /// Record of closed connections.
    pub connections: ConnectionRecord,
    /// Number of requests in flight over time.
    pub in_flight: InFlight,
    /// Values per interval of time, including warm-up.
    pub series: Series,
    /// Counts of failed requests by kind and detail, for failures with a known detail.
    pub details: Vec<FailureDetail>,
    /// Number of finished requests that were scheduled before measuring began.
    pub warm_up_samples: u64,
    /// Responses with an unexpected status among them.
    #[serde(default)]
    pub warm_up_unexpected: Statuses,
    /// Requests among them that got no complete response.
    #[serde(default)]
    pub warm_up_failures: Failures,
    /// Samples with an intended start at this time or later are measured, on the clock of [`Series::start_ns`].
    pub measured_from_ns: u64,
    /// End of the last measured sample, on the same clock; 0 before the first sample.
    pub last_ended_ns: u64,
    /// Time from the start of the measured span to the intended start of the last request, in nanoseconds.
    #[serde(default)]
    pub intended_span_ns: u64,
    /// Time from the start of the measured span to the actual start of the last request, in nanoseconds.
    #[serde(default)]
    pub begun_span_ns: u64,
    /// Requests that finished after the end of the measured span.
    #[serde(default)]
    pub late: Late,
    /// Statuses of successful responses.
    #[serde(skip)]
    expected: ExpectedStatuses,
    /// Length of the measured span, if the plan specifies it, in nanoseconds.
    #[serde(skip)]
    span_ns: Option<u64>,
    /// Requests that finished since the last start of a request, until [`Recorder::close_span`]. There are never more
    /// of them than there were requests in flight.
    #[serde(skip)]
    tail: Vec<late::EndedRequest>,
}

/// Number of failures with the same kind and detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDetail {
    /// The failure kind.
    pub kind: FailureKind,
    /// The message of a parser or of the system.
    pub detail: Cow<'static, str>,
    /// Number of these failures.
    pub count: u64,
}

impl Recorder {
    /// Creates an empty record, which takes some megabytes of memory.
    pub fn new(settings: RecorderSettings) -> Result<Self, RecordError> {
        Ok(Self {
            counts: Counts::default(),
            statuses: Statuses::default(),
            response: Hdr::new()?,
            unexpected: None,
            service: Hdr::new()?,
            lag: Hdr::new()?,
            phases: Phases::new()?,
            sums: Sums::default(),
            classes: vec![ClassRecord::new()?; settings.classes.clamp(1, CLASSES_MAX)],
            connections: ConnectionRecord::new()?,
            in_flight: InFlight::default(),
            series: Series::new(settings.start_ns),
            details: Vec::new(),
            warm_up_samples: 0,
            warm_up_unexpected: Statuses::default(),
            warm_up_failures: Failures::default(),
            measured_from_ns: settings.measured_from_ns,
            last_ended_ns: 0,
            intended_span_ns: 0,
            begun_span_ns: 0,
            late: Late::default(),
            expected: ExpectedStatuses::default(),
            span_ns: None,
            tail: Vec::new(),
        })
    }

    /// Sets the length of the measured span, if it is known in advance. Requests that finish later are late.
    pub fn end_span_after(&mut self, span_ns: u64) {
        self.span_ns = Some(span_ns);
    }

    /// Sets the statuses of successful responses.
    pub fn expect(&mut self, expected: ExpectedStatuses) {
        self.expected = expected;
    }

    /// Returns whether a request got a complete response with an expected status.
    pub fn is_success(&self, result: Result<u16, FailureKind>) -> bool {
        result.is_ok_and(|status| self.expected.contains(status))
    }

    /// Returns the number of requests that would be late if the span ended at `until_ns`, which must not precede the
    /// start of the last request.
    pub fn late_after(&self, until_ns: u64) -> u64 {
        let in_tail = self.tail.iter().filter(|ended| ended.at_ns > until_ns).count() as u64;
        self.late.responses + self.late.failures + in_tail
    }

    /// Ends the span at `until_ns`, which must be the planned end, or at least not precede the start of the last
    /// request.
    pub fn close_span(&mut self, until_ns: u64) {
        for ended in std::mem::take(&mut self.tail) {
            if ended.at_ns > until_ns {
                self.late.add(ended);
            }
        }
        self.late.close(until_ns, self.last_ended_ns);
    }

    /// Returns the number of successful responses within the measured span.
    pub fn responses_in_time(&self) -> u64 {
        self.counts.successes().saturating_sub(self.late.responses)
    }

    /// Returns the number of bytes of successful responses within the measured span.
    pub fn bytes_in_time(&self) -> u64 {
        self.sums.response_bytes.sum.saturating_sub(self.late.bytes_in)
    }

    /// Sets the start of measuring, after a warm-up until steady state.
    pub fn begin_measuring(&mut self, from_ns: u64) {
        self.measured_from_ns = from_ns;
    }

    /// Records that a burst of `requests` started at `now_ns`. Each of these requests must later be recorded as a
    /// [`Sample`].
    pub fn record_begun(&mut self, requests: u32, intended_ns: u64, now_ns: u64) {
        self.series.record_begun(requests, now_ns);
        self.tail.clear();
        if intended_ns >= self.measured_from_ns {
            self.counts.requests_begun += u64::from(requests);
            self.in_flight.begin(u64::from(requests), now_ns);
            self.intended_span_ns = self.intended_span_ns.max(intended_ns - self.measured_from_ns);
            self.begun_span_ns = self.begun_span_ns.max(now_ns.saturating_sub(self.measured_from_ns));
        }
    }

    /// Records that a connection attempt started.
    pub fn record_connect_begun(&mut self, now_ns: u64) {
        self.counts.connects_begun += u64::from(now_ns >= self.measured_from_ns);
    }

    /// Records that a connection was established. `tls_resumed` says whether its TLS handshake, if any, resumed a
    /// session.
    pub fn record_connected(&mut self, now_ns: u64, tls_resumed: Option<bool>) {
        self.connections.open += 1;
        self.connections.peak = self.connections.peak.max(self.connections.open);
        self.series.record_connected(now_ns);
        if now_ns >= self.measured_from_ns {
            self.counts.connections += 1;
            self.counts.tls_handshakes += u64::from(tls_resumed.is_some());
            self.counts.tls_resumed += u64::from(tls_resumed == Some(true));
        }
    }

    /// Records that an established connection was closed. A connection opened before measuring began only lowers the
    /// number of open connections.
    pub fn record_connection_end(&mut self, end: &ConnectionEnd) {
        self.connections.open = self.connections.open.saturating_sub(1);
        if end.begun_ns < self.measured_from_ns {
            return;
        }
        self.counts.server_closes += u64::from(end.by_server);
        if end.replies > 0 {
            let lifetime_ns = end.ended_ns.saturating_sub(end.begun_ns);
            self.connections.lifetime.record(lifetime_ns);
            self.connections.lifetime_ns.record(lifetime_ns);
            self.connections.replies.record(end.replies);
        }
    }

    /// Records that requests are sent again. During a warm-up, they are not counted.
    pub fn record_sent_again(&mut self, requests: u32, why: SentAgain) {
        if self.counts.requests_begun > 0 {
            *match why {
                SentAgain::Unprocessed => &mut self.counts.sent_again,
                SentAgain::IdleClose => &mut self.counts.sent_again_idle,
            } += u64::from(requests);
        }
    }

    /// Records that a request finished.
    pub fn record(&mut self, sample: &Sample) {
        let is_success = self.is_success(sample.result);
        self.series.record(sample, is_success);
        if sample.intended_ns < self.measured_from_ns {
            self.warm_up_samples += 1;
            match sample.result {
                Ok(status) if !is_success => self.warm_up_unexpected.add(status, 1),
                Ok(_) => {}
                Err(kind) => self.warm_up_failures.0[kind.index()] += 1,
            }
            return;
        }
        self.in_flight.end(sample);
        self.last_ended_ns = self.last_ended_ns.max(sample.ended_ns);
        self.counts.record(sample, is_success);
        let ended = late::EndedRequest::of(sample, is_success);
        match self.span_ns {
            Some(span_ns) if sample.ended_ns > self.measured_from_ns.saturating_add(span_ns) => self.late.add(ended),
            _ => self.tail.push(ended),
        }
        if sample.sent_ns > 0 {
            self.sums.request_bytes.record(sample.sent_bytes);
        }
        self.lag.record(sample.lag_ns());
        self.phases.record_connection(sample);
        self.sums.record(sample, is_success);
        if is_success {
            self.response.record(sample.response_ns());
            self.service.record(sample.service_ns());
            self.phases.record_answer(sample);
        }
        match sample.result {
            Ok(status) => {
                self.statuses.add(status, 1);
                if !is_success {
                    self.record_unexpected(sample.response_ns());
                }
            }
            Err(kind) => self.record_detail(kind, sample.detail),
        }
        // A single class equals the total, and is copied in `finish`.
        if self.classes.len() > 1 {
            let class = usize::from(sample.class).min(self.classes.len() - 1);
            self.classes[class].record(sample, is_success);
        }
    }

    fn record_unexpected(&mut self, response_ns: u64) {
        if self.unexpected.is_none() {
            self.unexpected = Hdr::new().ok();
        }
        if let Some(unexpected) = &mut self.unexpected {
            unexpected.record(response_ns);
        }
    }

    fn record_detail(&mut self, kind: FailureKind, detail: &'static str) {
        if detail.is_empty() {
            return;
        }
        match self.details.iter_mut().find(|known| known.kind == kind && known.detail == detail) {
            Some(known) => known.count += 1,
            None => self.details.push(FailureDetail { kind, detail: Cow::Borrowed(detail), count: 1 }),
        }
    }

    /// Packs a finished record losslessly, from some megabytes to some kilobytes.
    pub fn pack(&mut self) {
        let Phases { resolve, connect, tls, wait, transfer } = &mut self.phases;
        let own = [&mut self.response, &mut self.service, &mut self.lag, &mut self.connections.lifetime];
        let of_classes = self.classes.iter_mut().map(|class| &mut class.response);
        let phases = [resolve, connect, tls, wait, transfer];
        own.into_iter().chain(phases).chain(of_classes).chain(&mut self.unexpected).for_each(Hdr::pack);
    }

    /// Records that a body was checked by digest. A mismatch is also recorded as a failed sample.
    pub fn record_digest_checked(&mut self) {
        self.counts.digests_checked += 1;
    }

    /// Finishes the record: extends the integral of requests in flight to `now_ns`. Call this before merging.
    pub fn finish(&mut self, now_ns: u64) {
        self.in_flight.advance(now_ns);
        if let [class] = self.classes.as_mut_slice() {
            class.requests = self.counts.ended();
            class.responses = self.counts.responses;
            class.failures = self.counts.failures_total();
            class.errors = self.counts.unexpected();
            class.sums = self.sums;
            class.response = self.response.clone();
        }
    }

    /// Merges the record of another thread or agent of the same step over the same time. The clocks of agents differ
    /// but all of them started together, so times are taken relative to each record's start.
    pub fn merge(&mut self, other: &Self) -> Result<(), RecordError> {
        self.add(other)?;
        let ours = |theirs_ns: u64| {
            let since_ns = theirs_ns.saturating_sub(other.series.start_ns);
            self.series.start_ns.saturating_add(since_ns)
        };
        // If the other start of measuring is unknown, keep this one.
        if other.measured_from_ns != u64::MAX {
            self.measured_from_ns = self.measured_from_ns.min(ours(other.measured_from_ns));
        }
        if other.last_ended_ns > 0 {
            self.last_ended_ns = self.last_ended_ns.max(ours(other.last_ended_ns));
        }
        self.connections.peak += other.connections.peak;
        self.connections.open += other.connections.open;
        self.in_flight.peak += other.in_flight.peak;
        self.series.merge(&other.series);
        self.intended_span_ns = self.intended_span_ns.max(other.intended_span_ns);
        self.begun_span_ns = self.begun_span_ns.max(other.begun_span_ns);
        Ok(())
    }

    /// Appends a later record of the same step on the same clock, such as a second half.
    pub fn append(&mut self, other: &Self) -> Result<(), RecordError> {
        self.add(other)?;
        self.connections.peak = self.connections.peak.max(other.connections.peak);
        self.connections.open = other.connections.open;
        self.measured_from_ns = self.measured_from_ns.min(other.measured_from_ns);
        self.last_ended_ns = self.last_ended_ns.max(other.last_ended_ns);
        self.in_flight.peak = self.in_flight.peak.max(other.in_flight.peak);
        self.series.append(&other.series);
        self.intended_span_ns = self.intended_span_ns.saturating_add(other.intended_span_ns);
        self.begun_span_ns = self.begun_span_ns.saturating_add(other.begun_span_ns);
        Ok(())
    }

    /// Adds the values of `other` that do not depend on time.
    fn add(&mut self, other: &Self) -> Result<(), RecordError> {
        if self.classes.len() != other.classes.len() {
            return Err(RecordError::Different);
        }
        self.counts.merge(&other.counts);
        self.statuses.merge(&other.statuses);
        if let Some(theirs) = &other.unexpected {
            match &mut self.unexpected {
                Some(mine) => mine.merge(theirs)?,
                None => self.unexpected = Some(theirs.clone()),
            }
        }
        self.late.merge(&other.late);
        self.response.merge(&other.response)?;
        self.service.merge(&other.service)?;
        self.lag.merge(&other.lag)?;
        self.phases.merge(&other.phases)?;
        self.sums.merge(&other.sums);
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.merge(theirs)?;
        }
        self.connections.add(&other.connections)?;
        self.in_flight.add(&other.in_flight);
        for theirs in &other.details {
            match self.details.iter_mut().find(|mine| mine.kind == theirs.kind && mine.detail == theirs.detail) {
                Some(mine) => mine.count += theirs.count,
                None => self.details.push(theirs.clone()),
            }
        }
        self.warm_up_samples += other.warm_up_samples;
        self.warm_up_unexpected.merge(&other.warm_up_unexpected);
        self.warm_up_failures.merge(&other.warm_up_failures);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
