//! A client thread's share of the schedule, and its record.

use super::spec::BenchRequests;
use flatout_client::{Drive, Made, RequestFailure, RequestRecord, StreamVersion};
use flatout_http::http3::error::ErrorCode;
use flatout_load::FailureKind;
use flatout_load::record::{ConnectionEnd, Hdr, Recorder, Sample, SentAgain, Statuses};
use flatout_load::schedule::{Begin, Move, Schedule, Tally, Visitor};
use hdrhistogram::Histogram;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Interval at which a thread publishes its progress, in nanoseconds.
const PUBLISH_INTERVAL_NS: u64 = 200_000_000;

/// A thread's progress since the start of the run.
#[derive(Clone, Debug)]
pub(super) struct ThreadProgress {
    /// Time of the counts, in nanoseconds.
    pub(super) at_ns: u64,
    pub(super) statuses: Statuses,
    pub(super) responses: u64,
    pub(super) failures: u64,
    pub(super) unanswered: u64,
    pub(super) latency: Histogram<u64>,
    pub(super) lag: Histogram<u64>,
}

/// Sums over all finished requests, including the warm-up, on which decisions during the run are based.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Finished requests, with or without a response.
    pub(super) ended: u64,
    pub(super) answers: u64,
    /// Service times of all responses, whatever their status: a server that refuses everything can be steady.
    pub(super) service_ns: u64,
    pub(super) successes: u64,
    /// Response times of successful responses.
    pub(super) response_ns: u64,
    /// True if no planned request is left to start.
    pub(super) has_begun_all: bool,
}

/// Totals for comparison with the server's own counts, including the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Responses by status class, 1xx to 5xx.
    pub(crate) classes: [u64; 5],
    /// Successful responses.
    pub(crate) successes: u64,
    /// Number of finished requests.
    pub(crate) requests: u64,
    /// Number of failed requests, which the server may or may not have counted.
    pub(crate) uncertain: u64,
    /// Number of times that a request was sent again. The server may have counted the earlier attempt too.
    pub(crate) sent_again: u64,
    /// One more than the highest number of a request; 0 if none was started.
    pub(crate) numbers_end: u64,
}

impl Whole {
    /// Adds the totals of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.classes.iter_mut().zip(other.classes) {
            *mine += theirs;
        }
        self.successes += other.successes;
        self.requests += other.requests;
        self.uncertain += other.uncertain;
        self.sent_again += other.sent_again;
        self.numbers_end = self.numbers_end.max(other.numbers_end);
    }
}

/// Statistics that one thread shares with the thread that started it.
#[derive(Debug, Default)]
pub(super) struct SharedStatistics {
    pub(super) standing: Mutex<Option<ThreadProgress>>,
    pub(super) sums: Mutex<Sums>,
}

/// Signals to all client threads from the thread that started them.
#[derive(Debug)]
pub(super) struct Signals {
    /// Start of the measured part in nanoseconds, or [`NOT_KNOWN`].
    pub(super) measured_from_ns: AtomicU64,
    /// True when no more requests may start.
    pub(super) stop: AtomicBool,
}

/// A time that is not known yet.
pub(super) const NOT_KNOWN: u64 = u64::MAX;

impl Signals {
    pub(super) const fn new() -> Self {
        Self { measured_from_ns: AtomicU64::new(NOT_KNOWN), stop: AtomicBool::new(false) }
    }
}

/// The selection of requests, which all threads of a span share.
#[derive(Clone, Debug)]
pub(crate) struct RequestSelection {
    pub(crate) work: BenchRequests,
    pub(crate) seed: u64,
    pub(crate) step: u16,
}

impl RequestSelection {
    fn choose(&self, begin: &Begin, nth: u32) -> u32 {
        match &self.work {
            BenchRequests::Chosen(workload) if workload.entries.len() == 1 => 0,
            BenchRequests::Chosen(workload) => workload.choose(self.seed, begin.request + u64::from(nth)) as u32,
            BenchRequests::Replayed(replay) => {
                let index = begin.visit % replay.requests.len() as u64;
                replay.requests.get(index as usize).map_or(0, |request| request.entry)
            }
        }
    }

    fn class(&self, request: u32) -> u16 {
        self.work.workload().entries.get(request as usize).map_or(0, |entry| entry.class)
    }
}

/// One client thread's share of the schedule, with its record.
#[derive(Debug)]
pub(super) struct LabDrive {
    schedule: Schedule,
    recorder: Recorder,
    choice: RequestSelection,
    signals: Arc<Signals>,
    statistics: Arc<SharedStatistics>,
    sums: Sums,
    whole: Whole,
    loop_lag: Hdr,
    is_watched: bool,
    published_ns: u64,
    /// Duration of the name resolution in nanoseconds; 0 after it has been reported with the first connection.
    resolve_ns: u64,
}

/// The records of a client thread.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) recorder: Recorder,
    pub(super) tally: Tally,
    pub(super) whole: Whole,
    pub(super) loop_lag: Hdr,
}

impl LabDrive {
    pub(super) fn new(
        schedule: Schedule,
        recorder: Recorder,
        loop_lag: Hdr,
        choice: RequestSelection,
        (signals, statistics): (Arc<Signals>, Arc<SharedStatistics>),
        (is_watched, resolve_ns): (bool, u64),
    ) -> Self {
        Self {
            schedule,
            recorder,
            choice,
            signals,
            statistics,
            sums: Sums::default(),
            whole: Whole::default(),
            loop_lag,
            is_watched,
            published_ns: 0,
            resolve_ns,
        }
    }

    /// Returns the record so far.
    pub(super) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Records which requests were late, when the end of the span is known.
    pub(super) fn close_span(&mut self, until_ns: u64) {
        self.recorder.close_span(until_ns);
    }

    pub(super) fn finish(mut self, now_ns: u64) -> Driven {
        self.recorder.finish(now_ns);
        Driven { tally: self.schedule.tally(), whole: self.whole, recorder: self.recorder, loop_lag: self.loop_lag }
    }

    /// Acts on the signals.
    fn listen(&mut self) {
        let from_ns = self.signals.measured_from_ns.load(Ordering::Relaxed);
        if from_ns != NOT_KNOWN && self.schedule.measured_from_ns().is_none() {
            self.schedule.begin_measuring(from_ns);
            self.recorder.begin_measuring(from_ns);
        }
        if self.signals.stop.load(Ordering::Relaxed) {
            self.schedule.stop();
        }
    }
}

impl Drive for LabDrive {
    fn next(&mut self, now_ns: u64) -> Move {
        self.schedule.next(now_ns)
    }

    fn choose(&mut self, begin: &Begin, nth: u32) -> u32 {
        self.choice.choose(begin, nth)
    }

    fn visitor(&self, begin: &Begin) -> Option<Visitor> {
        Some(self.schedule.visitor(begin))
    }

    fn handle_begun(&mut self, begin: &Begin, now_ns: u64) -> bool {
        self.recorder.record_begun(begin.burst, begin.intended_ns, now_ns);
        let end = begin.request.saturating_add(u64::from(begin.burst));
        self.whole.numbers_end = self.whole.numbers_end.max(end);
        begin.intended_ns >= self.recorder.measured_from_ns
    }

    fn handle_ended(&mut self, ended: &RequestRecord) {
        let (result, detail) = match ended.result {
            Ok(status) => (Ok(status), ""),
            Err(failure) => {
                let (kind, detail) = kind_of(failure);
                (Err(kind), detail)
            }
        };
        let has_bytes = ended.head_bytes + ended.body_bytes > 0;
        let sample = Sample {
            class: self.choice.class(ended.request),
            step: self.choice.step,
            intended_ns: ended.begin.intended_ns,
            begun_ns: ended.begun_ns,
            sent_ns: if ended.is_sent { ended.sent_ns } else { 0 },
            first_byte_ns: if has_bytes { ended.first_byte_ns } else { 0 },
            ended_ns: ended.ended_ns,
            resolve_ns: if ended.made.is_some() { std::mem::take(&mut self.resolve_ns) } else { 0 },
            connect_ns: ended.made.map_or(0, |made| made.connect_ns),
            tls_ns: ended.made.map_or(0, |made| made.tls_ns),
            result,
            detail,
            head_bytes: ended.head_bytes,
            body_bytes: ended.body_bytes,
            sent_bytes: ended.sent_bytes,
            interim_responses: u16::try_from(ended.interim_responses).unwrap_or(u16::MAX),
            is_new_connection: ended.made.is_some(),
        };
        self.recorder.record(&sample);
        if ended.is_digested && matches!(ended.result, Ok(200) | Err(RequestFailure::WrongDigest)) {
            self.recorder.record_digest_checked();
        }
        self.whole.requests += 1;
        self.sums.ended += 1;
        match result {
            Ok(status) => self.whole.classes[usize::from(status / 100).clamp(1, 5) - 1] += 1,
            // The response arrived, whatever its body, so the server has counted its status.
            Err(FailureKind::WrongBody) => self.whole.classes[1] += 1,
            Err(_) => self.whole.uncertain += 1,
        }
        if result.is_ok() {
            self.sums.answers += 1;
            self.sums.service_ns = self.sums.service_ns.saturating_add(sample.service_ns());
        }
        if self.recorder.is_success(result) {
            self.whole.successes += 1;
            self.sums.successes += 1;
            self.sums.response_ns = self.sums.response_ns.saturating_add(sample.response_ns());
        }
    }

    fn handle_sent_again(&mut self, requests: u32, why: SentAgain) {
        self.recorder.record_sent_again(requests, why);
        self.whole.sent_again += u64::from(requests);
    }

    fn handle_unusable(&mut self, begin: &Begin, streams_max: u32) {
        self.schedule.handle_unusable(begin, streams_max);
    }

    fn handle_usable(&mut self, slot: u32, streams_max: u32, now_ns: u64) {
        self.schedule.handle_usable(slot, streams_max, now_ns);
    }

    fn intended_after_wait(&self, begin: &Begin, now_ns: u64) -> u64 {
        self.schedule.intended_after_wait(begin, now_ns)
    }

    fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin> {
        self.schedule.handle_answered(slot, now_ns, is_open)
    }

    fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool) {
        self.schedule.handle_failed(slot, now_ns, connected);
    }

    fn handle_connecting(&mut self, now_ns: u64) {
        self.recorder.record_connect_begun(now_ns);
    }

    fn handle_connected(&mut self, slot: u32, made: &Made, now_ns: u64) {
        self.schedule.handle_connected(slot);
        self.recorder.record_connected(now_ns, (made.tls_ns > 0).then_some(made.is_resumed));
    }

    fn handle_connection_end(&mut self, end: &ConnectionEnd) {
        self.recorder.record_connection_end(end);
    }

    fn handle_closed(&mut self, slot: u32) {
        self.schedule.handle_closed(slot);
    }

    fn handle_tick(&mut self, now_ns: u64, late_ns: u64, _connections: u32) {
        self.loop_lag.record(late_ns);
        self.listen();
        self.sums.has_begun_all = self.schedule.has_begun_all(now_ns);
        // The reader holds these locks only briefly. If an update is missed, the next one makes up for it.
        if let Ok(mut sums) = self.statistics.sums.try_lock() {
            *sums = self.sums;
        }
        if !self.is_watched || now_ns.saturating_sub(self.published_ns) < PUBLISH_INTERVAL_NS {
            return;
        }
        self.published_ns = now_ns;
        if let Ok(mut standing) = self.statistics.standing.try_lock() {
            *standing = Some(ThreadProgress {
                at_ns: now_ns,
                statuses: self.recorder.statuses.clone(),
                responses: self.recorder.counts.successes(),
                failures: self.recorder.counts.errors(),
                unanswered: self.recorder.counts.failures_total(),
                latency: self.recorder.response.histogram().into_owned(),
                lag: self.recorder.lag.histogram().into_owned(),
            });
        }
    }

    fn handle_interrupt(&mut self) {
        self.schedule.stop();
    }
}

/// Returns the kind of a failure, by httperf's name if it has one, and details.
pub(super) fn kind_of(failure: RequestFailure) -> (FailureKind, &'static str) {
    match failure {
        RequestFailure::TimedOut => (FailureKind::ClientTimo, ""),
        RequestFailure::ClosedEarly => (FailureKind::ClosedEarly, ""),
        RequestFailure::ShortBody => (FailureKind::ShortBody, ""),
        RequestFailure::Malformed(refusal) => (FailureKind::BadResponse, refusal.name()),
        RequestFailure::Surplus => (FailureKind::BadResponse, "surplus"),
        RequestFailure::WrongLength => (FailureKind::WrongBody, "length"),
        RequestFailure::WrongDigest => (FailureKind::WrongBody, "digest"),
        RequestFailure::Tls(tls) => (FailureKind::Tls, tls.name()),
        RequestFailure::NoHttp2 => (FailureKind::Http2, "not-spoken"),
        RequestFailure::Unprocessed(StreamVersion::Http2) => (FailureKind::Http2, "unprocessed"),
        RequestFailure::Unprocessed(StreamVersion::Http3) => (FailureKind::Http3, "unprocessed"),
        RequestFailure::StreamReset(code) => (FailureKind::Http2, http2_code(code, true)),
        RequestFailure::Http2(code) => (FailureKind::Http2, http2_code(code, false)),
        RequestFailure::NoHttp3 => (FailureKind::Http3, "not-spoken"),
        RequestFailure::Http3Reset(ErrorCode::NoError) => (FailureKind::Http3, "reset-no-error"),
        RequestFailure::Http3(ErrorCode::NoError) => (FailureKind::Http3, "closed-no-error"),
        RequestFailure::Http3Reset(code) | RequestFailure::Http3(code) => (FailureKind::Http3, code.name()),
        RequestFailure::Http3Violation(error) => (FailureKind::Http3, error.name()),
        RequestFailure::Quic(failure) => (FailureKind::Quic, failure.name()),
        RequestFailure::Abandoned => (FailureKind::Abandoned, ""),
        RequestFailure::System(errno) => match errno {
            Errno::TIMEDOUT => (FailureKind::SocketTimo, ""),
            Errno::CONNREFUSED => (FailureKind::ConnRefused, ""),
            Errno::CONNRESET => (FailureKind::ConnReset, ""),
            // The peer had reset the connection before the client sent.
            Errno::PIPE => (FailureKind::ConnReset, "epipe"),
            Errno::MFILE => (FailureKind::FdUnavail, ""),
            Errno::NFILE => (FailureKind::FtabFull, ""),
            Errno::ADDRNOTAVAIL => (FailureKind::AddrUnavail, ""),
            Errno::HOSTUNREACH => (FailureKind::Other, "host-unreachable"),
            Errno::NETUNREACH => (FailureKind::Other, "network-unreachable"),
            Errno::CONNABORTED => (FailureKind::Other, "aborted"),
            Errno::NOBUFS | Errno::NOMEM => (FailureKind::Other, "no-memory"),
            Errno::ACCESS | Errno::PERM => (FailureKind::Other, "not-permitted"),
            _ => (FailureKind::Other, ""),
        },
    }
}

/// Returns the name of an error code of RFC 9113 §7. Codes of streams have different names from codes of connections.
fn http2_code(code: u32, of_stream: bool) -> &'static str {
    match (code, of_stream) {
        (0x0, true) => "reset-no-error",
        (0x0, false) => "goaway-no-error",
        (0x1, _) => "protocol-error",
        (0x2, _) => "internal-error",
        (0x3, _) => "flow-control-error",
        (0x5, _) => "stream-closed",
        (0x6, _) => "frame-size-error",
        (0x7, _) => "refused-stream",
        (0x8, _) => "cancel",
        (0x9, _) => "compression-error",
        (0xb, _) => "enhance-your-calm",
        (0xd, _) => "http-1-1-required",
        _ => "unnamed-error",
    }
}

#[cfg(test)]
mod tests {
    use super::kind_of;
    use flatout_client::{QuicFailure, RequestFailure};
    use flatout_http::http3::error::{ConnectionError, ErrorCode};
    use flatout_http::refusal::Refusal;
    use flatout_load::FailureKind;
    use flatout_net::tls::ClientTlsFailure;
    use rustix::io::Errno;

    #[test]
    fn failures_keep_their_classic_names() {
        for (failure, kind, detail) in [
            (RequestFailure::TimedOut, FailureKind::ClientTimo, ""),
            (RequestFailure::System(Errno::CONNREFUSED), FailureKind::ConnRefused, ""),
            (RequestFailure::System(Errno::MFILE), FailureKind::FdUnavail, ""),
            (RequestFailure::System(Errno::NFILE), FailureKind::FtabFull, ""),
            (RequestFailure::System(Errno::ADDRNOTAVAIL), FailureKind::AddrUnavail, ""),
            (RequestFailure::System(Errno::XDEV), FailureKind::Other, ""),
            (RequestFailure::Malformed(Refusal::StatusLine), FailureKind::BadResponse, "status_line"),
            (RequestFailure::Surplus, FailureKind::BadResponse, "surplus"),
            (RequestFailure::WrongLength, FailureKind::WrongBody, "length"),
            (RequestFailure::Tls(ClientTlsFailure::Name), FailureKind::Tls, "tls-name"),
            (RequestFailure::StreamReset(7), FailureKind::Http2, "refused-stream"),
            (RequestFailure::Http2(0), FailureKind::Http2, "goaway-no-error"),
            (RequestFailure::NoHttp3, FailureKind::Http3, "not-spoken"),
            (RequestFailure::Http3Reset(ErrorCode::RequestRejected), FailureKind::Http3, "H3_REQUEST_REJECTED"),
            (RequestFailure::Http3(ErrorCode::NoError), FailureKind::Http3, "closed-no-error"),
            (
                RequestFailure::Http3Violation(ConnectionError::MissingSettings),
                FailureKind::Http3,
                "h3_missing_settings",
            ),
            (RequestFailure::Quic(QuicFailure::Silent), FailureKind::Quic, "quic-silent"),
        ] {
            assert_eq!(kind_of(failure), (kind, detail));
        }
    }
}
