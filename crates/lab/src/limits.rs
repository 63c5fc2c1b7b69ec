//! `flatout limits`: the upper limits of this machine, measured over loopback by built-in probes.
//!
//! Every probe plays both sides: a server role on one core and a client role on another, if there are two. Probes run
//! in rounds, each probe once per round, so that drift of the machine affects all of them; the result is the median
//! of the rounds, with minimum and maximum.

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

/// Body length of large transfers, in bytes.
pub const LARGE_BODY_BYTES: u64 = 10 * 1024 * 1024;

/// Duration and number of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitsPlan {
    /// Duration of one probe in one round, at least [`PROBE_MIN`].
    pub probe: Duration,
    /// Rounds, at least 1.
    pub rounds: u32,
    /// Body length of small HTTP responses, in bytes.
    pub body_bytes: u64,
}

/// Lower bound of a probe's duration: below it, start and end weigh too much.
pub const PROBE_MIN: Duration = Duration::from_millis(50);

/// The unit of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Operations per second.
    PerSecond,
    /// Bytes per second.
    BytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Nanoseconds of CPU per mebibyte.
    NanosecondsPerMebibyte,
}

impl Unit {
    /// The short name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "1/s",
            Self::BytesPerSecond => "bytes/s",
            Self::Nanoseconds => "ns",
            Self::NanosecondsPerMebibyte => "ns/MiB",
        }
    }
}

/// Declares measures: the name in JSON, the unit, and the display text.
macro_rules! measures {
    ($($variant:ident, $name:literal, $unit:ident, $words:literal;)*) => {
        /// One quantity that the probes measure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Measure {
            $(#[doc = $words] $variant,)*
        }

        impl Measure {
            /// All measures, in report order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its unit.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit,)* }
            }

            /// The display text.
            pub const fn words(self) -> &'static str {
                match self { $(Self::$variant => $words,)* }
            }
        }
    };
}

measures! {
    RoundTrips,        "roundtrips_per_s",           PerSecond,              "TCP round trips of 1 byte";
    RoundTripP50,      "roundtrip_ns_p50",           Nanoseconds,            "  p50";
    RoundTripP99,      "roundtrip_ns_p99",           Nanoseconds,            "  p99";
    Connections,       "connections_per_s",          PerSecond,              "TCP connect, accept, close";
    Send,              "send_bytes_per_s",           BytesPerSecond,         "TCP stream by send";
    SendCpu,           "send_cpu_ns_per_mib",        NanosecondsPerMebibyte, "  sender's CPU for each MiB";
    SendFile,          "sendfile_bytes_per_s",       BytesPerSecond,         "TCP stream by sendfile";
    SendFileCpu,       "sendfile_cpu_ns_per_mib",    NanosecondsPerMebibyte, "  sender's CPU for each MiB";
    Http,              "http_requests_per_s",        PerSecond,              "HTTP bare loop, kept alive";
    HttpCpu,           "http_cpu_ns_per_request",    Nanoseconds,            "  its CPU for each request";
    HttpClose,         "http_close_requests_per_s",  PerSecond,              "HTTP bare loop, a connection each";
    HttpCloseCpu,      "http_close_cpu_ns_per_request", Nanoseconds,         "  its CPU for each request";
    HttpLarge,         "http_large_bytes_per_s",     BytesPerSecond,         "HTTP bare loop, 10 MiB by sendfile";
    HttpLargeCpu,      "http_large_cpu_ns_per_mib",  NanosecondsPerMebibyte, "  its CPU for each MiB";
}

/// The result of one probe.
#[derive(Debug)]
struct Readings {
    measures: Vec<(Measure, f64)>,
    /// The load of the two roles, if the probe can determine it.
    roles: Option<RolesBusy>,
}

/// Shares of time that the two sides of a probe were busy, 0 to 1.
#[derive(Clone, Copy, Debug)]
struct RolesBusy {
    server: f64,
    /// On a core, or ready and waiting for one.
    client: f64,
}

impl From<Vec<(Measure, f64)>> for Readings {
    fn from(measures: Vec<(Measure, f64)>) -> Self {
        Self { measures, roles: None }
    }
}

/// Why measuring the limits failed.
#[derive(Debug)]
pub enum LimitsError {
    /// A probe's socket or thread failed.
    Probe {
        /// The probe.
        probe: &'static str,
        /// The error.
        cause: io::Error,
    },
    /// The client of the bare loop failed.
    Client(BenchError),
}

impl std::fmt::Display for LimitsError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Probe { probe, cause } => write!(formatter, "the probe of {probe} failed: {cause}"),
            Self::Client(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for LimitsError {}

/// The cores and the duration of a probe.
#[derive(Clone, Copy, Debug)]
struct Setting {
    cores: CorePair,
    duration: Duration,
    body_bytes: u64,
}

/// A probe and its name in progress messages.
struct Probe {
    name: &'static str,
    run: fn(Setting) -> Result<Readings, LimitsError>,
}

const PROBES: [Probe; 7] = [
    Probe { name: "TCP round trips", run: |setting| told("TCP round trips", roundtrip::measure(setting)) },
    Probe { name: "connections", run: |setting| told("connections", connect::measure(setting)) },
    Probe { name: "send", run: |setting| told("send", stream::measure_send(setting)) },
    Probe { name: "sendfile", run: |setting| told("sendfile", stream::measure_sendfile(setting)) },
    Probe { name: "the bare loop, kept alive", run: http::measure_kept },
    Probe { name: "the bare loop, a connection each", run: http::measure_close },
    Probe { name: "the bare loop, 10 MiB", run: http::measure_large },
];

fn told(probe: &'static str, outcome: io::Result<Readings>) -> Result<Readings, LimitsError> {
    outcome.map_err(|cause| LimitsError::Probe { probe, cause })
}

/// Runs all probes. Before each, `progress` receives the round, from 1, and the probe; it may stop the run there, and
/// the results so far are retained.
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
        let mut told = Vec::new();
        let plan = LimitsPlan { probe: PROBE_MIN, rounds: 2, body_bytes: 1024 };
        let report = run(plan, &mut |round, probe| {
            told.push((round, probe.to_owned()));
            ControlFlow::Continue(())
        });
        assert_eq!(told.len(), 14);
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
        // No memory holds such an answer.
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
