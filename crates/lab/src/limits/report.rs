//! What the probes found, and what a reader of it should know.

use super::{LimitsPlan, Measure, Readings};
use crate::cores::CorePair;
use crate::machine::Machine;
use crate::spread::Spread;
use flatout_load::judge::failing::OTHER_CPU_SHARE_MAX;
use flatout_load::judge::validity::CLIENT_BUSY_SHARE_MAX;

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
    /// Every measure with its readings, in the order of [`Measure::ALL`]; none where nothing was measured.
    pub measures: Vec<(Measure, Spread)>,
    /// How busy the two sides were, where known.
    pub roles: Vec<Roles>,
    /// Every probe that failed.
    pub gaps: Vec<Gap>,
    /// Whether somebody ended it early.
    pub interrupted: bool,
}

impl LimitsReport {
    /// Whether every probe was measured in every round.
    pub fn is_whole(&self) -> bool {
        self.gaps.is_empty() && !self.interrupted
    }

    /// Every note, for any view.
    pub fn notes(&self) -> Vec<LimitsNote<'_>> {
        let mut notes = Vec::new();
        if self.interrupted {
            notes.push(LimitsNote::Interrupted);
        }
        notes.extend(self.roles.iter().filter(|roles| roles.client_was_limit()).map(LimitsNote::ClientLimit));
        let crowded = self.other_cpu_share.filter(|share| *share > OTHER_CPU_SHARE_MAX);
        notes.extend(crowded.map(LimitsNote::Crowded));
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

/// How busy the two sides were while a rate was measured: whoever had no time left was its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Roles {
    /// The rate.
    pub measure: Measure,
    /// Share of its time that the server role was on a core, 0 to 1.
    pub server_busy: Spread,
    /// Share of its time that the client was on a core, or ready and waiting for one, 0 to 1.
    pub client_busy: Spread,
}

impl Roles {
    /// Whether the client was likely the limit: it had no time left, and the server role had.
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

/// A probe that failed, so that a round has no reading of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The round, from 1.
    pub round: u32,
    /// What was probed.
    pub probe: &'static str,
    /// Why there is nothing.
    pub cause: String,
}

impl std::fmt::Display for Gap {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "round {}, {}: {}", self.round, self.probe, self.cause)
    }
}

/// What a reader of a limits report should know.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitsNote<'a> {
    /// Somebody ended it early.
    Interrupted,
    /// A rate that the client and not the server role limited.
    ClientLimit(&'a Roles),
    /// Other work used the machine.
    Crowded(f64),
}

impl LimitsNote<'_> {
    /// The short name used in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::ClientLimit(_) => "client-limit",
            Self::Crowded(_) => "crowded",
        }
    }
}

impl std::fmt::Display for LimitsNote<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted => formatter.write_str("ended early: the figures cover the part that ran"),
            Self::ClientLimit(roles) => roles.fmt(formatter),
            Self::Crowded(share) => {
                let percent = 100.0 * share;
                write!(formatter, "other work used {percent:.0} % of the machine meanwhile; expect the figures to vary")
            }
        }
    }
}
