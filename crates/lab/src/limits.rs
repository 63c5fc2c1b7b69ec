//! `flatout limits`: the limits of this machine, measured over loopback by built-in probes.
//!
//! Every probe plays both sides: a server on one core and a client on another core, if there are two. Probes run in
//! rounds, each probe once per round, so that drift of the machine affects all of them. The result is the median over
//! the rounds, with minimum and maximum.

mod connect;
mod http;
mod report;
pub mod responder;
mod roundtrip;
mod stream;

pub use report::{Gap, LimitsNote, LimitsReport, Roles};

use crate::bench::BenchError;
use crate::cores::CorePair;
use crate::cpu_roles::CrowdWatch;
use crate::machine;
use crate::spread::Spread;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

/// Body length of large responses, in bytes.
pub const LARGE_BODY_BYTES: u64 = 10 * 1024 * 1024;

/// Duration and number of rounds of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitsPlan {
    /// Duration of one probe in one round, at least [`PROBE_MIN`].
    pub probe: Duration,
    /// Number of rounds, at least 1.
    pub rounds: u32,
    /// Body length of small HTTP responses, in bytes.
    pub body_bytes: u64,
}

/// Shortest duration of a probe. In a shorter probe, its start and end would weigh too much.
pub const PROBE_MIN: Duration = Duration::from_millis(50);

flatout_reason::reasons! {
    /// The unit of a measure.
    pub enum Unit { name, }
    /// Operations per second.
    PerSecond, "1/s";
    /// Bytes per second.
    BytesPerSecond, "bytes/s";
    /// Nanoseconds.
    Nanoseconds, "ns";
    /// Nanoseconds of CPU per mebibyte.
    NanosecondsPerMebibyte, "ns/MiB";
}

flatout_reason::reasons! {
    /// A quantity that the probes measure.
    #[derive(PartialOrd, Ord)]
    pub enum Measure {
        name,
        /// The unit of its values.
        unit: Unit,
        text,
    }
    RoundTrips, "roundtrips_per_s", Unit::PerSecond, "TCP round trips of 1 byte";
    RoundTripP50, "roundtrip_ns_p50", Unit::Nanoseconds, "  p50";
    RoundTripP99, "roundtrip_ns_p99", Unit::Nanoseconds, "  p99";
    Connections, "connections_per_s", Unit::PerSecond, "TCP connect, accept, close";
    Send, "send_bytes_per_s", Unit::BytesPerSecond, "TCP stream by send";
    SendCpu, "send_cpu_ns_per_mib", Unit::NanosecondsPerMebibyte, "  sender's CPU time per MiB";
    SendFile, "sendfile_bytes_per_s", Unit::BytesPerSecond, "TCP stream by sendfile";
    SendFileCpu, "sendfile_cpu_ns_per_mib", Unit::NanosecondsPerMebibyte, "  sender's CPU time per MiB";
    Http, "http_requests_per_s", Unit::PerSecond, "HTTP bare loop, kept alive";
    HttpCpu, "http_cpu_ns_per_request", Unit::Nanoseconds, "  its CPU time per request";
    HttpClose, "http_close_requests_per_s", Unit::PerSecond, "HTTP bare loop, one connection each";
    HttpCloseCpu, "http_close_cpu_ns_per_request", Unit::Nanoseconds, "  its CPU time per request";
    HttpLarge, "http_large_bytes_per_s", Unit::BytesPerSecond, "HTTP bare loop, 10 MiB by sendfile";
    HttpLargeCpu, "http_large_cpu_ns_per_mib", Unit::NanosecondsPerMebibyte, "  its CPU time per MiB";
}

/// The readings of one probe in one round.
#[derive(Debug)]
struct Readings {
    measures: Vec<(Measure, f64)>,
    /// CPU load of both sides, if the probe can determine it.
    roles: Option<RolesBusy>,
}

/// Shares of time that the two sides of a probe were busy, 0 to 1.
#[derive(Clone, Copy, Debug)]
struct RolesBusy {
    server: f64,
    /// Share of time that the client was on a core, or runnable and waiting for one.
    client: f64,
}

impl From<Vec<(Measure, f64)>> for Readings {
    fn from(measures: Vec<(Measure, f64)>) -> Self {
        Self { measures, roles: None }
    }
}

/// The reason the limits could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// A probe's socket or thread failed.
    #[error("the probe of {probe} failed: {cause}")]
    Probe {
        /// Name of the probe.
        probe: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// The bench's client, which measures the bare loop, failed.
    #[error("{0}")]
    Client(BenchError),
}

/// The settings of a probe.
#[derive(Clone, Copy, Debug)]
struct Setting {
    cores: CorePair,
    duration: Duration,
    body_bytes: u64,
}

/// A probe, and its name in progress messages.
struct Probe {
    name: &'static str,
    run: fn(Setting) -> Result<Readings, LimitsError>,
}

const PROBES: [Probe; 7] = [
    Probe { name: "TCP round trips", run: |setting| named("TCP round trips", roundtrip::measure(setting)) },
    Probe { name: "connections", run: |setting| named("connections", connect::measure(setting)) },
    Probe { name: "send", run: |setting| named("send", stream::measure_send(setting)) },
    Probe { name: "sendfile", run: |setting| named("sendfile", stream::measure_sendfile(setting)) },
    Probe { name: "the bare loop, kept alive", run: http::measure_kept },
    Probe { name: "the bare loop, one connection each", run: http::measure_close },
    Probe { name: "the bare loop, 10 MiB", run: http::measure_large },
];

fn named(probe: &'static str, outcome: io::Result<Readings>) -> Result<Readings, LimitsError> {
    outcome.map_err(|cause| LimitsError::Probe { probe, cause })
}

/// Runs all probes. Before each probe, `progress` receives the round, from 1, and the name of the probe. If it returns
/// `Break`, the run stops, and the results so far are reported.
pub fn run(plan: LimitsPlan, progress: &mut dyn FnMut(u32, &str) -> ControlFlow<()>) -> LimitsReport {
    let cores = CorePair::choose();
    let setting = Setting { cores, duration: plan.probe.max(PROBE_MIN), body_bytes: plan.body_bytes };
    let crowd = CrowdWatch::begin();
    let mut report = LimitsReport {
        plan,
        machine: machine::here(),
        cores,
        other_cpu_share: None,
        measures: Measure::ALL.iter().map(|measure| (*measure, Spread::default())).collect(),
        roles: Vec::new(),
        gaps: Vec::new(),
        interrupted: false,
    };
    'rounds: for round in 1..=plan.rounds.max(1) {
        for probe in &PROBES {
            if progress(round, probe.name).is_break() {
                report.interrupted = true;
                break 'rounds;
            }
            match (probe.run)(setting) {
                Ok(readings) => report.add(readings),
                Err(error) => report.gaps.push(Gap { round, probe: probe.name, cause: error.to_string() }),
            }
        }
    }
    report.other_cpu_share = crowd.other_cpu_share(0);
    report
}

#[cfg(test)]
mod tests {
    use super::{LimitsPlan, Measure, PROBE_MIN, run};
    use std::collections::BTreeSet;
    use std::ops::ControlFlow;

    #[test]
    fn every_measure_is_read_in_every_round() {
        let mut probes = Vec::new();
        let plan = LimitsPlan { probe: PROBE_MIN, rounds: 2, body_bytes: 1024 };
        let report = run(plan, &mut |round, probe| {
            probes.push((round, probe.to_owned()));
            ControlFlow::Continue(())
        });
        assert_eq!(probes.len(), 14);
        for (measure, spread) in &report.measures {
            assert_eq!(spread.readings().len(), 2, "{measure:?}");
            assert!(spread.min() > 0.0, "{measure:?} {spread:?}");
        }
        assert!(report.is_whole() && report.roles.len() == 3);
        assert!(report.roles.iter().all(|roles| roles.server_busy.min() > 0.0 && roles.client_busy.min() > 0.0));
    }

    #[test]
    fn what_was_measured_before_an_interruption_is_kept() {
        let plan = LimitsPlan { probe: PROBE_MIN, rounds: 9, body_bytes: 1024 };
        let mut probes_left = 2;
        let report = run(plan, &mut |_, _| {
            probes_left -= 1;
            if probes_left < 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let read = |wanted| report.measures.iter().find(|(measure, _)| *measure == wanted).unwrap().1.readings().len();
        assert!(report.interrupted && !report.is_whole());
        assert_eq!((read(Measure::RoundTrips), read(Measure::Connections), read(Measure::Http)), (1, 1, 0));
    }

    #[test]
    fn a_probe_that_fails_leaves_a_gap_and_the_others_run() {
        // A response of this length does not fit in any memory.
        let plan = LimitsPlan { probe: PROBE_MIN, rounds: 1, body_bytes: u64::MAX };
        let report = run(plan, &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(report.gaps.len(), 2, "{:?}", report.gaps);
        assert!(report.gaps[0].to_string().starts_with("round 1, the bare loop, kept alive: "));
        let gaps = report.measures.iter().filter(|(_, spread)| spread.readings().is_empty());
        assert_eq!(
            gaps.map(|(measure, _)| *measure).collect::<Vec<_>>(),
            [Measure::Http, Measure::HttpCpu, Measure::HttpClose, Measure::HttpCloseCpu]
        );
    }

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let names: BTreeSet<_> = Measure::ALL.iter().map(|measure| measure.name()).collect();
        assert_eq!(names.len(), Measure::ALL.len());
        assert!(names.iter().all(|name| name.contains("_per_") || name.contains("_ns_")));
    }
}
