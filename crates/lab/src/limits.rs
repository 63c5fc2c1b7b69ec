//! `flatout limits`: what this machine can do at most, measured now, over loopback, by probes of our own.
//!
//! Every probe plays both sides: a server role on one core and a client role on another, where there are two. Probes run
//! in rounds, each probe once a round, so that a machine that changes its speed meanwhile changes it for all of them; what
//! is told is the median of the rounds, with the least and the most.

mod connect;
mod http;
pub mod responder;
mod roundtrip;
mod stream;

use crate::bench::BenchError;
use crate::cores::CorePair;
use crate::crowd::CrowdWatch;
use crate::machine::Machine;
use crate::spread::Spread;
use std::io;
use std::time::Duration;

/// Length of the body that large transfers carry.
pub const LARGE_BODY_BYTES: u64 = 10 * 1024 * 1024;

/// How long and how often to probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitsPlan {
    /// Time for one probe in one round, at least [`PROBE_MIN`].
    pub probe: Duration,
    /// Rounds, at least 1.
    pub rounds: u32,
    /// Length of the body that the small HTTP answers carry.
    pub body_bytes: u64,
}

/// Below this the start and the end of a probe weigh too much.
pub const PROBE_MIN: Duration = Duration::from_millis(50);

/// The unit of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many things a second.
    PerSecond,
    /// Bytes a second.
    BytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Nanoseconds of CPU for each mebibyte.
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

/// Declares what is measured: the name in JSON, its unit, and the words people read.
macro_rules! measures {
    ($($variant:ident, $name:literal, $unit:ident, $words:literal;)*) => {
        /// One quantity that the probes measure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Measure {
            $(#[doc = $words] $variant,)*
        }

        impl Measure {
            /// Every measure, in the order reports show them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Its unit.
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit,)* }
            }

            /// What it is, for people.
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

/// Readings that one probe took.
type Readings = Vec<(Measure, f64)>;

/// Why the limits could not be measured.
#[derive(Debug)]
pub enum LimitsError {
    /// A probe's socket or thread failed.
    Probe {
        /// Which probe.
        probe: &'static str,
        /// What failed.
        cause: io::Error,
    },
    /// The client that asks the bare loop failed.
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

/// Where a probe runs and for how long.
#[derive(Clone, Copy, Debug)]
struct Setting {
    cores: CorePair,
    duration: Duration,
    body_bytes: u64,
}

/// A probe and what it is called while it runs.
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

/// Everything the probes found.
#[derive(Clone, Debug)]
pub struct LimitsReport {
    /// How it was measured.
    pub plan: LimitsPlan,
    /// What this machine is.
    pub machine: Machine,
    /// The cores the two roles were pinned to.
    pub cores: CorePair,
    /// Share of the machine's CPU that others used meanwhile, 0 to 1, where known.
    pub other_cpu_share: Option<f64>,
    /// Every measure with its readings, in the order of [`Measure::ALL`].
    pub measures: Vec<(Measure, Spread)>,
}

/// Runs all probes, telling `progress` what is under way: the round from 1, and the probe.
pub fn run(plan: LimitsPlan, progress: &mut dyn FnMut(u32, &str)) -> Result<LimitsReport, LimitsError> {
    let cores = CorePair::choose();
    let setting = Setting { cores, duration: plan.probe.max(PROBE_MIN), body_bytes: plan.body_bytes };
    let mut measures: Vec<_> = Measure::ALL.iter().map(|measure| (*measure, Spread::default())).collect();
    let crowd = CrowdWatch::begin();
    for round in 1..=plan.rounds.max(1) {
        for probe in &PROBES {
            progress(round, probe.name);
            for (measure, reading) in (probe.run)(setting)? {
                if let Some((_, spread)) = measures.iter_mut().find(|(known, _)| *known == measure) {
                    spread.add(reading);
                }
            }
        }
    }
    Ok(LimitsReport { plan, machine: Machine::here(), cores, other_cpu_share: crowd.other_cpu_share(0), measures })
}

#[cfg(test)]
mod tests {
    use super::{LimitsPlan, Measure, PROBE_MIN, run};
    use std::collections::BTreeSet;

    #[test]
    fn every_measure_is_read_in_every_round() {
        let mut told = Vec::new();
        let plan = LimitsPlan { probe: PROBE_MIN, rounds: 2, body_bytes: 1024 };
        let report = run(plan, &mut |round, probe| told.push((round, probe.to_owned()))).unwrap();
        assert_eq!(told.len(), 14);
        for (measure, spread) in &report.measures {
            assert_eq!(spread.readings().len(), 2, "{measure:?}");
            assert!(spread.min() > 0.0, "{measure:?} {spread:?}");
        }
    }

    #[test]
    fn names_are_unique_and_end_in_their_unit() {
        let names: BTreeSet<_> = Measure::ALL.iter().map(|measure| measure.name()).collect();
        assert_eq!(names.len(), Measure::ALL.len());
        assert!(names.iter().all(|name| name.contains("_per_") || name.contains("_ns_")));
    }
}
