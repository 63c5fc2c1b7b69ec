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
    /// The cores of server and client.
    pub cores: CorePair,
    /// Share of the machine's CPU used by other processes, 0 to 1, if known.
    pub other_cpu_share: Option<f64>,
    /// The readings of each measure, in the order of [`Measure::ALL`]. Measures without readings are left out.
    pub measures: Vec<(Measure, Spread)>,
    /// CPU load of both sides, for each rate where it is known.
    pub roles: Vec<Roles>,
    /// Probes that failed.
    pub gaps: Vec<Gap>,
    /// True if the run was interrupted.
    pub interrupted: bool,
}

impl LimitsReport {
    /// Returns whether every probe has a reading in every round.
    pub fn is_whole(&self) -> bool {
        self.gaps.is_empty() && !self.interrupted
    }

    /// Returns all notes, for any view.
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

/// CPU load of both sides while a rate was measured. A saturated side was the bottleneck.
#[derive(Clone, Debug, PartialEq)]
pub struct Roles {
    /// The measured rate.
    pub measure: Measure,
    /// Share of time that the server was on a core, 0 to 1.
    pub server_busy: Spread,
    /// Share of time that the client was on a core, or runnable and waiting for one, 0 to 1.
    pub client_busy: Spread,
}

impl Roles {
    /// Returns whether the client was probably the bottleneck: it was saturated, and the server was not.
    pub fn client_was_limit(&self) -> bool {
        self.client_busy.median() > CLIENT_BUSY_SHARE_MAX && self.server_busy.median() <= CLIENT_BUSY_SHARE_MAX
    }
}

impl std::fmt::Display for Roles {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (server, client) = (100.0 * self.server_busy.median(), 100.0 * self.client_busy.median());
        write!(
            formatter,
            "the client was likely the bottleneck of \"{}\": it was busy {client:.0} % of the time, the server role \
             {server:.0} %; the server role could do more, and its CPU figure is valid",
            self.measure.text().trim_start()
        )
    }
}

/// A failed probe, because of which a round lacks a reading.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("round {round}, {probe}: {cause}")]
pub struct Gap {
    /// The round, from 1.
    pub round: u32,
    /// Name of the probe.
    pub probe: &'static str,
    /// The error, as text.
    pub cause: String,
}

/// A note on a limits report.
#[derive(Clone, Debug, PartialEq, derive_more::Display)]
pub enum LimitsNote<'a> {
    /// The run was interrupted.
    #[display("the run ended early: the figures cover only the part that ran")]
    Interrupted,
    /// The client, not the server, limited a rate.
    #[display("{_0}")]
    ClientLimit(&'a Roles),
    /// Other processes used this share of the machine's CPU, 0 to 1.
    #[display("other processes used {:.0} % of the machine during the run; expect the figures to vary", 100.0 * _0)]
    CpuContention(f64),
}

impl LimitsNote<'_> {
    /// Returns the short name used in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::ClientLimit(_) => "client-limit",
            Self::CpuContention(_) => "cpu-contention",
        }
    }
}
