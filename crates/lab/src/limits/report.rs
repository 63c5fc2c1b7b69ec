//! The results of the probes, and their notes.

use super::{LimitsPlan, Measure, Readings};
use crate::cores::CorePair;
use crate::spread::Spread;
use flatout_load::judge::failing::OTHER_CPU_SHARE_MAX;
use flatout_load::judge::validity::CLIENT_BUSY_SHARE_MAX;
use flatout_load::report::MachineReport;

/// The results of the probes.
#[derive(Clone, Debug)]
pub struct LimitsReport {
    /// The plan of the measurement.
    pub plan: LimitsPlan,
    /// The machine.
    pub machine: MachineReport,
    /// The cores of the two roles.
    pub cores: CorePair,
    /// Share of the machine's CPU used by others, 0 to 1, if known.
    pub other_cpu_share: Option<f64>,
    /// Each measure with its readings, in the order of [`Measure::ALL`], without unmeasured ones.
    pub measures: Vec<(Measure, Spread)>,
    /// The load of the two sides, if known.
    pub roles: Vec<Roles>,
    /// Failed probes.
    pub gaps: Vec<Gap>,
    /// True if it was interrupted.
    pub interrupted: bool,
}

impl LimitsReport {
    /// Returns whether every probe has a reading in every round.
    pub fn is_whole(&self) -> bool {
        self.gaps.is_empty() && !self.interrupted
    }

    /// All notes, for any view.
    pub fn notes(&self) -> Vec<LimitsNote<'_>> {
        let mut notes = Vec::new();
        if self.interrupted {
            notes.push(LimitsNote::Interrupted);
        }
        notes.extend(self.roles.iter().filter(|roles| roles.client_was_limit()).map(LimitsNote::ClientLimit));
        let crowded = self.other_cpu_share.filter(|share| *share > OTHER_CPU_SHARE_MAX);
        notes.extend(crowded.map(LimitsNote::CpuContention));
        notes
    }

    pub(super) fn add(&mut self, readings: Readings) {
        let rate = readings.measures.first().map(|(measure, _)| *measure);
        for (measure, reading) in readings.measures {
            if let Some((_, spread)) = self.measures.iter_mut().find(|(known, _)| *known == measure) {
                spread.add(reading);
            }
        }
        let (Some(measure), Some(busy)) = (rate, readings.roles) else { return };
        let index = self.roles.iter().position(|roles| roles.measure == measure).unwrap_or_else(|| {
            self.roles.push(Roles { measure, server_busy: Spread::default(), client_busy: Spread::default() });
            self.roles.len() - 1
        });
        self.roles[index].server_busy.add(busy.server);
        self.roles[index].client_busy.add(busy.client);
    }
}

/// The load of the two sides during a rate measurement; a saturated side was the bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub struct Roles {
    /// The rate.
    pub measure: Measure,
    /// Share of time that the server role was on a core, 0 to 1.
    pub server_busy: Spread,
    /// Share of time that the client was on a core, or ready and waiting for one, 0 to 1.
    pub client_busy: Spread,
}

impl Roles {
    /// Returns whether the client was probably the bottleneck: it was saturated, and the server role was not.
    pub fn client_was_limit(&self) -> bool {
        self.client_busy.median() > CLIENT_BUSY_SHARE_MAX && self.server_busy.median() <= CLIENT_BUSY_SHARE_MAX
    }
}

impl std::fmt::Display for Roles {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (server, client) = (100.0 * self.server_busy.median(), 100.0 * self.client_busy.median());
        write!(
            formatter,
            "the client was likely the limit of \"{}\": it was busy {client:.0} % of the time, the server role \
             {server:.0} %; it could do more, and its CPU figure holds",
            self.measure.words().trim_start()
        )
    }
}

/// A failed probe, which leaves a round without its reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The round, from 1.
    pub round: u32,
    /// The probe.
    pub probe: &'static str,
    /// The error.
    pub cause: String,
}

impl std::fmt::Display for Gap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "round {}, {}: {}", self.round, self.probe, self.cause)
    }
}

/// A note of a limits report.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitsNote<'a> {
    /// It was interrupted.
    Interrupted,
    /// The client, not the server role, limited a rate.
    ClientLimit(&'a Roles),
    /// Other processes used the machine.
    CpuContention(f64),
}

impl LimitsNote<'_> {
    /// The short name used in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::ClientLimit(_) => "client-limit",
            Self::CpuContention(_) => "cpu-contention",
        }
    }
}

impl std::fmt::Display for LimitsNote<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted => formatter.write_str("ended early: the figures cover the part that ran"),
            Self::ClientLimit(roles) => roles.fmt(formatter),
            Self::CpuContention(share) => {
                let percent = 100.0 * share;
                write!(formatter, "other work used {percent:.0} % of the machine meanwhile; expect the figures to vary")
            }
        }
    }
}
