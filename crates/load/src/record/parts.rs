//! Parts of a record: phases, sums, URL classes, connections.

use super::{CLASSES_MAX, Hdr, Moments, RecordError, Sample};
use crate::report::Percentiles;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Significant digits of the response times of a URL class, whose histogram takes 36 kB.
const CLASS_DIGITS: u8 = 2;

/// Durations of request phases. `connect` and `tls` have one value per connection, the other phases one per response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phases {
    /// Time to resolve the host name.
    pub resolve: Hdr,
    /// Time to establish the TCP connection.
    pub connect: Hdr,
    /// Time of the TLS handshake.
    pub tls: Hdr,
    /// Time from the last byte sent to the first byte received.
    pub wait: Hdr,
    /// Time from the first byte received to the last byte received.
    pub transfer: Hdr,
}

/// Sums for means and population standard deviations, for classic reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Time to establish connections, in nanoseconds.
    pub connect_ns: Moments,
    /// Response time from the intended start, in nanoseconds, of successful responses.
    pub response_ns: Moments,
    /// Service time from the actual start, including connect, in nanoseconds, of successful responses.
    pub service_ns: Moments,
    /// Time from the last byte sent to the first byte received, in nanoseconds.
    pub wait_ns: Moments,
    /// Time from the first byte received to the last byte received, in nanoseconds.
    pub transfer_ns: Moments,
    /// Bytes of the head and body of each successful response.
    pub response_bytes: Moments,
    /// Bytes of the body of each successful response.
    pub body_bytes: Moments,
    /// Bytes of each request sent.
    pub request_bytes: Moments,
    /// Time from the intended start to the end, in nanoseconds, of requests that failed or got an unexpected status.
    pub failed_ns: Moments,
}

/// Record of one URL class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassRecord {
    /// Finished requests.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Failed requests.
    pub failures: u64,
    /// Responses with an unexpected status.
    pub errors: u64,
    /// Sums over the responses of the class.
    pub sums: Sums,
    /// Response times of the successful responses of the class, to two significant digits.
    pub response: Hdr,
}

/// Record of closed connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// Lifetimes, from the start of connecting to the close, of connections with at least one response.
    pub lifetime: Hdr,
    /// Sums of the same lifetimes, in nanoseconds.
    pub lifetime_ns: Moments,
    /// Number of responses per connection, over connections with at least one response.
    pub replies: Moments,
    /// Maximum number of connections open at once, summed over threads.
    pub peak: u64,
    /// Number of connections open now.
    pub open: u64,
}

impl Phases {
    pub(super) fn new() -> Result<Self, RecordError> {
        Ok(Self {
            resolve: Hdr::new()?,
            connect: Hdr::new()?,
            tls: Hdr::new()?,
            wait: Hdr::new()?,
            transfer: Hdr::new()?,
        })
    }

    /// Records the phases of a new connection, whatever the result of the request.
    pub(super) fn record_connection(&mut self, sample: &Sample) {
        if !sample.is_new_connection {
            return;
        }
        for (histogram, value_ns) in [
            (&mut self.resolve, sample.resolve_ns),
            (&mut self.connect, sample.connect_ns),
            (&mut self.tls, sample.tls_ns),
        ] {
            if value_ns > 0 {
                histogram.record(value_ns);
            }
        }
    }

    pub(super) fn record_answer(&mut self, sample: &Sample) {
        if sample.sent_ns > 0 && sample.first_byte_ns > 0 {
            self.wait.record(sample.first_byte_ns.saturating_sub(sample.sent_ns));
            self.transfer.record(sample.ended_ns.saturating_sub(sample.first_byte_ns));
        }
    }

    pub(super) fn merge(&mut self, other: &Self) -> Result<(), RecordError> {
        self.resolve.merge(&other.resolve)?;
        self.connect.merge(&other.connect)?;
        self.tls.merge(&other.tls)?;
        self.wait.merge(&other.wait)?;
        self.transfer.merge(&other.transfer)
    }
}

impl Sums {
    pub(super) fn record(&mut self, sample: &Sample, is_success: bool) {
        if sample.is_new_connection && sample.connect_ns > 0 {
            self.connect_ns.record(sample.connect_ns);
        }
        if !is_success {
            self.failed_ns.record(sample.response_ns());
            return;
        }
        self.response_ns.record(sample.response_ns());
        self.service_ns.record(sample.service_ns());
        if sample.sent_ns > 0 && sample.first_byte_ns > 0 {
            self.wait_ns.record(sample.first_byte_ns.saturating_sub(sample.sent_ns));
            self.transfer_ns.record(sample.ended_ns.saturating_sub(sample.first_byte_ns));
        }
        self.response_bytes.record(sample.head_bytes + sample.body_bytes);
        self.body_bytes.record(sample.body_bytes);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.connect_ns.merge(&other.connect_ns);
        self.response_ns.merge(&other.response_ns);
        self.service_ns.merge(&other.service_ns);
        self.wait_ns.merge(&other.wait_ns);
        self.transfer_ns.merge(&other.transfer_ns);
        self.response_bytes.merge(&other.response_bytes);
        self.body_bytes.merge(&other.body_bytes);
        self.request_bytes.merge(&other.request_bytes);
        self.failed_ns.merge(&other.failed_ns);
    }
}

impl ClassRecord {
    pub(super) fn new() -> Result<Self, RecordError> {
        let response = Hdr::with_digits(CLASS_DIGITS)?;
        Ok(Self { requests: 0, responses: 0, failures: 0, errors: 0, sums: Sums::default(), response })
    }

    pub(super) fn record(&mut self, sample: &Sample, is_success: bool) {
        self.requests += 1;
        self.sums.record(sample, is_success);
        if sample.sent_ns > 0 {
            self.sums.request_bytes.record(sample.sent_bytes);
        }
        self.failures += u64::from(sample.result.is_err());
        self.responses += u64::from(sample.result.is_ok());
        self.errors += u64::from(sample.result.is_ok() && !is_success);
        if is_success {
            self.response.record(sample.response_ns());
        }
    }

    /// Returns the percentiles of the class's response times. Requests without a response count as slower than all
    /// others.
    pub fn percentiles(&self) -> Option<Percentiles> {
        self.response.percentiles(self.failures)
    }

    pub(super) fn merge(&mut self, other: &Self) -> Result<(), RecordError> {
        self.requests += other.requests;
        self.responses += other.responses;
        self.failures += other.failures;
        self.errors += other.errors;
        self.sums.merge(&other.sums);
        self.response.merge(&other.response)
    }
}

impl ConnectionRecord {
    pub(super) fn new() -> Result<Self, RecordError> {
        Ok(Self {
            lifetime: Hdr::new()?,
            lifetime_ns: Moments::default(),
            replies: Moments::default(),
            peak: 0,
            open: 0,
        })
    }

    /// Adds the sums of another record. The caller merges the peaks.
    pub(super) fn add(&mut self, other: &Self) -> Result<(), RecordError> {
        self.lifetime_ns.merge(&other.lifetime_ns);
        self.replies.merge(&other.replies);
        self.lifetime.merge(&other.lifetime)
    }
}

/// Parses classes. Stops at the first class beyond the limit, to bound memory.
pub(super) fn read_classes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ClassRecord>, D::Error> {
    struct Classes;

    impl<'de> Visitor<'de> for Classes {
        type Value = Vec<ClassRecord>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "at most {CLASSES_MAX} classes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
            let mut classes = Vec::new();
            while let Some(class) = sequence.next_element()? {
                if classes.len() == CLASSES_MAX {
                    return Err(serde::de::Error::invalid_length(CLASSES_MAX + 1, &self));
                }
                classes.push(class);
            }
            Ok(classes)
        }
    }

    deserializer.deserialize_seq(Classes)
}
