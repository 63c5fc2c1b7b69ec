//! Measures: the figures of one measurement, in a table with name, unit and description.
//!
//! A measure is taken from the last level of the run's result, except for the knee and the behaviour under overload,
//! which are findings of the run. The cost of a server is that of the server's process if the client could find it.
//! Otherwise it is that of all processes of the suite's server during the bench.

use crate::document::ProcessCost;
use flatout_load::judge::Figure;
use flatout_load::report::goodput::sustained_per_s;
use flatout_load::report::{Percentiles, RunReport, StepReport};
use flatout_reason::reasons;
use serde_json::Value;

/// Response time up to which a response counts towards goodput, in nanoseconds. A later response is considered useless.
pub const IN_TIME_NS: u64 = 1_000_000_000;

reasons! {
    /// A figure of one measurement.
    pub enum Measure {
        name,
        /// The unit, as shown in reports.
        unit: &'static str,
        /// True if a larger value is better.
        is_more_better: bool,
        text,
    }
    RequestsPerS, "requests-per-s", "1/s", true, "Successful responses per second.";
    BytesPerS, "bytes-per-s", "B/s", true, "Bytes of successful responses per second.";
    BytesPerSPeak, "bytes-per-s-peak", "B/s", true, "Bytes of successful responses in the best whole second.";
    ConnectionsPerS, "connections-per-s", "1/s", true, "Connections established per second.";
    OfferedPerS, "offered-per-s", "1/s", true, "Requests offered per second, in an open loop.";
    GoodputPerS, "goodput-per-s", "1/s", true, "Correct responses per second that arrived within a second of the time when they were due, over the whole seconds in which load was offered.";
    SustainedPerS, "sustained-per-s", "1/s", true, "Correct responses per second within the timeout, over the whole seconds in which load was offered.";
    KneePerS, "knee-per-s", "1/s", true, "The highest arrival rate that met the requirement.";
    KeptShare, "kept-share", "", true, "The lowest goodput beyond the peak, as a share of the peak.";
    ServerCpuPerRequest, "server-cpu-per-request", "ns", false, "CPU time of the server per successful response.";
    ServerCpuPerMib, "server-cpu-per-mib", "ns", false, "CPU time of the server per MiB received.";
    RequestsPerCpuS, "requests-per-cpu-s", "1/s", true, "Successful responses per second of the server's CPU time.";
    AllCpuPerRequest, "all-cpu-per-request", "ns", false, "CPU time per successful response of all servers involved, including upstreams and the warm-up.";
    RequestsPerAllCpuS, "requests-per-all-cpu-s", "1/s", true, "Successful responses per second of CPU time of all servers involved, including the warm-up.";
    ClientCpuPerRequest, "client-cpu-per-request", "ns", false, "CPU time of the client per successful response.";
    ResponseMean, "response-mean", "ns", false, "Mean response time, from the time a request was due.";
    ResponseP50, "response-p50", "ns", false, "Median response time, from the time a request was due.";
    ResponseP99, "response-p99", "ns", false, "99th percentile of the response time.";
    UnexpectedP99, "unexpected-p99", "ns", false, "99th percentile of the response time of responses with an unexpected status.";
    ServiceP50, "service-p50", "ns", false, "Median service time, from the time the client started the request.";
    ServiceP99, "service-p99", "ns", false, "99th percentile of the service time.";
    ConnectMean, "connect-mean", "ns", false, "Mean time to establish a connection.";
    ErrorShare, "error-share", "", false, "Share of requests that got no complete response, or one with an unexpected status.";
    Memory, "memory", "B", false, "Resident memory of the server at the end of the measurement.";
    MemoryPeak, "memory-peak", "B", false, "Peak resident memory of the server.";
    AllMemory, "all-memory", "B", false, "Resident memory of all processes of all servers involved; shared pages count in each process.";
}

impl Measure {
    /// Returns the measure with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|measure| measure.name() == name)
    }

    /// Returns the figures of a run that must be valid for the measure to be valid. There are none for the knee,
    /// because a search judges its own trials.
    pub const fn figures(self) -> &'static [Figure] {
        match self {
            Self::RequestsPerS | Self::BytesPerS | Self::BytesPerSPeak | Self::ConnectionsPerS => &[Figure::Rate],
            // If the client delays a response, it may arrive too late to count.
            Self::GoodputPerS | Self::SustainedPerS | Self::KeptShare => &[Figure::Rate, Figure::Tail],
            Self::KneePerS => &[],
            // Memory is also a cost, for the number of connections that were requested.
            Self::ServerCpuPerRequest
            | Self::ServerCpuPerMib
            | Self::RequestsPerCpuS
            | Self::AllCpuPerRequest
            | Self::RequestsPerAllCpuS
            | Self::Memory
            | Self::MemoryPeak
            | Self::AllMemory => &[Figure::ServerCpu],
            Self::ClientCpuPerRequest => &[Figure::ClientCpu],
            Self::ResponseMean | Self::ResponseP50 | Self::ServiceP50 | Self::ConnectMean => &[Figure::Median],
            Self::ResponseP99 | Self::UnexpectedP99 | Self::ServiceP99 => &[Figure::Tail],
            Self::OfferedPerS | Self::ErrorShare => &[Figure::Counts],
        }
    }

    /// Returns whether the measure is a percentile of a run, and the request at its rank never got a response.
    pub fn is_never(self, run: &RunReport) -> bool {
        let Some(step) = run.steps.last() else { return false };
        let percentile = |times: Option<Percentiles>, pick: fn(&Percentiles) -> Option<u64>| {
            times.is_some_and(|times| pick(&times).is_none())
        };
        match self {
            Self::ResponseP50 => percentile(step.response, |times| times.p50_ns),
            Self::ResponseP99 => percentile(step.response, |times| times.p99_ns),
            Self::ServiceP50 => percentile(step.service, |times| times.p50_ns),
            Self::ServiceP99 => percentile(step.service, |times| times.p99_ns),
            _ => false,
        }
    }

    /// Returns whether servers are compared by this measure only if their requests failed in the same share. Goodput and
    /// the knee take failures into account, and the others do not depend on them.
    pub const fn depends_on_failures(self) -> bool {
        !matches!(
            self,
            Self::OfferedPerS
                | Self::GoodputPerS
                | Self::SustainedPerS
                | Self::KneePerS
                | Self::KeptShare
                | Self::UnexpectedP99
                | Self::ErrorShare
                | Self::Memory
                | Self::MemoryPeak
                | Self::AllMemory
        )
    }

    /// Returns whether servers are compared by this measure only if their responses have the same statuses. The others
    /// do not depend on what the server sent.
    pub const fn depends_on_statuses(self) -> bool {
        !matches!(
            self,
            Self::OfferedPerS
                | Self::UnexpectedP99
                | Self::ErrorShare
                | Self::Memory
                | Self::MemoryPeak
                | Self::AllMemory
        )
    }

    /// Returns whether the measure is a cost per response. Costs are valid even if the client was the bottleneck,
    /// because a faster client would not change them.
    pub const fn is_cost(self) -> bool {
        matches!(self.figures(), [Figure::ServerCpu])
    }

    /// Returns the value of the measure in a run, if the run has one. `server` is the measured server, and `processes`
    /// are the costs of all servers.
    pub fn value(self, run: &RunReport, server: &str, processes: &[ProcessCost]) -> Option<f64> {
        let step = run.steps.last()?;
        let seconds = step.elapsed_ns.max(1) as f64 / 1e9;
        let counts = &step.record.counts;
        let found = match self {
            Self::RequestsPerS => Some(step.responses_per_s),
            Self::BytesPerS => Some(step.bytes_in_per_s),
            Self::BytesPerSPeak => bytes_peak(step),
            Self::ConnectionsPerS => Some(counts.connections as f64 / seconds),
            Self::OfferedPerS => step.offered.rate_per_s,
            Self::GoodputPerS => Some(sustained_per_s(step, IN_TIME_NS)),
            Self::SustainedPerS => Some(sustained_per_s(step, run.request_timeout_ns)),
            Self::KneePerS => number(run, &["knee", "search", "met_per_s"]),
            Self::KeptShare => number(run, &["overload", "overload", "kept_share"]),
            Self::ServerCpuPerRequest => cpu_per_request(step, server, processes),
            Self::ServerCpuPerMib => {
                let cpu_ns = cpu_per_request(step, server, processes)? * counts.successes() as f64;
                let bytes = counts.bytes_in() as f64;
                (bytes > 0.0).then(|| cpu_ns / (bytes / 1_048_576.0))
            }
            Self::RequestsPerCpuS => rate_of(cpu_per_request(step, server, processes)?),
            Self::AllCpuPerRequest => all_cpu_per_request(run, processes),
            Self::RequestsPerAllCpuS => rate_of(all_cpu_per_request(run, processes)?),
            Self::ClientCpuPerRequest => step.client.cpu_ns_per_response,
            Self::ResponseMean => step.response.map(|times| times.mean_ns),
            Self::ResponseP50 => step.response.and_then(|times| times.p50_ns).map(|ns| ns as f64),
            Self::ResponseP99 => step.response.and_then(|times| times.p99_ns).map(|ns| ns as f64),
            Self::UnexpectedP99 => step.unexpected.and_then(|times| times.p99_ns).map(|ns| ns as f64),
            Self::ServiceP50 => step.service.and_then(|times| times.p50_ns).map(|ns| ns as f64),
            Self::ServiceP99 => step.service.and_then(|times| times.p99_ns).map(|ns| ns as f64),
            Self::ConnectMean => step.phases.connect.map(|times| times.mean_ns),
            Self::ErrorShare => Some(step.error_share),
            Self::Memory => {
                step.server.and_then(|cost| cost.memory_bytes).map(|bytes| bytes as f64).or_else(|| {
                    processes.iter().find(|cost| cost.server == server).map(|cost| cost.memory_bytes as f64)
                })
            }
            Self::MemoryPeak => step.server.and_then(|cost| cost.memory_bytes_peak).map(|bytes| bytes as f64),
            Self::AllMemory => {
                (!processes.is_empty()).then(|| processes.iter().map(|cost| cost.memory_bytes as f64).sum())
            }
        };
        found.filter(|value| value.is_finite())
    }
}

/// Returns the bytes per second in the best second. The last second is rarely complete and is left out; for a run of
/// less than two seconds, this is the mean. Bytes are counted when their response is complete, so the figure is
/// meaningful only if responses take less than a second.
fn bytes_peak(step: &StepReport) -> Option<f64> {
    let (points, length_s) = (step.record.series.points(), step.record.series.step_s.max(1));
    let whole = points.len().saturating_sub(1).max(1);
    let whole = points.get(..whole)?;
    if whole.iter().any(|point| point.responses == 0) {
        return None;
    }
    let best = whole.iter().map(|point| point.bytes_in).max()?;
    Some((best as f64 / length_s as f64).max(step.bytes_in_per_s))
}

/// Returns the CPU time of the server per request, in nanoseconds. If the client could not read the server's processes,
/// as in a testbed, the suite's own reading is used.
fn cpu_per_request(step: &StepReport, server: &str, processes: &[ProcessCost]) -> Option<f64> {
    step.server.and_then(|cost| cost.cpu_ns_per_response).or_else(|| {
        let cost = processes.iter().find(|cost| cost.server == server)?;
        let answers = step.record.counts.successes() + step.record.warm_up_samples;
        (answers > 0).then(|| cost.cpu_ns as f64 / answers as f64)
    })
}

fn all_cpu_per_request(run: &RunReport, processes: &[ProcessCost]) -> Option<f64> {
    let answers: u64 = run.steps.iter().map(|step| step.record.counts.successes() + step.record.warm_up_samples).sum();
    let cpu_ns: u64 = processes.iter().map(|cost| cost.cpu_ns).sum();
    (answers > 0 && !processes.is_empty()).then(|| cpu_ns as f64 / answers as f64)
}

fn rate_of(ns: f64) -> Option<f64> {
    (ns > 0.0).then(|| 1e9 / ns)
}

fn number(run: &RunReport, path: &[&str]) -> Option<f64> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(run.findings.get(*first)?, |value, name| value.get(name)).and_then(Value::as_f64)
}
