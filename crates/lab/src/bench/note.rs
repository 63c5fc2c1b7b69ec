//! The notes on a report, collected in one place for all views.

use super::{BenchReport, BenchRequests};
use crate::resolve::list_addresses;
use crate::target::TargetUnknown;
use flatout_load::report::Reason;
use flatout_units::show;

/// A note on a report: on its figures, or on their comparison.
#[derive(Clone, Debug, PartialEq, derive_more::Display)]
pub enum ReportNote {
    /// A note on the figures of a level. If there are several levels, the text names the level.
    #[display("{}", _0.text)]
    Run(Reason),
    /// Connections used several addresses of the server. Contains them as a list.
    #[display("connections were opened to these addresses in turn: {_0}")]
    Addresses(String),
    /// Connections were over a Unix socket. Contains its path.
    #[display("connections were opened to the Unix socket {_0}")]
    UnixSocket(String),
    /// Some lines of the log were skipped. Contains their number and the reason.
    #[display("{} not replayed: {_1}", show::plural(*_0, "line of the log was", "lines of the log were"))]
    LogLinesPassedOver(u64, &'static str),
    /// The client was probably the bottleneck of the bare loop's rate.
    #[display("the client likely also limited the bare loop's rate; compare the CPU figures")]
    LimitClient,
    /// The bare loop ran on this machine, but the server on another.
    #[display("the limit was measured over loopback, but the run over a network")]
    LimitOverLoopback,
    /// The number of the server's busy threads is unknown, so the bare loop used one thread.
    #[display("the number of the server's threads is unknown, so the bare loop used one")]
    LimitThreadsUnknown,
    /// The bare loop was requested but not measured.
    #[display("the machine's limit was not measured, because the run ended first")]
    LimitMissing,
}

impl ReportNote {
    /// Returns the short name used in JSON.
    pub fn name(&self) -> &str {
        match self {
            Self::Run(note) => &note.name,
            Self::Addresses(_) => "addresses",
            Self::UnixSocket(_) => "unix-socket",
            Self::LogLinesPassedOver(..) => "log-lines-passed-over",
            Self::LimitClient => "limit-client-limit",
            Self::LimitOverLoopback => "limit-over-loopback",
            Self::LimitThreadsUnknown => "limit-threads-unknown",
            Self::LimitMissing => "limit-missing",
        }
    }
}

impl ReportNote {
    /// Returns a key that is equal for notes of the same kind: the name, and for skipped log lines also the reason.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::LogLinesPassedOver(_, why) => format!("{}: {why}", self.name()),
            note => note.name().to_owned(),
        }
    }
}

impl BenchReport {
    /// Returns all notes, beginning with those on the run's own figures.
    pub fn notes(&self) -> Vec<ReportNote> {
        let mut notes: Vec<_> =
            self.run.steps.iter().flat_map(|step| &step.notes).cloned().map(ReportNote::Run).collect();
        if self.addresses_used.len() > 1 {
            notes.push(ReportNote::Addresses(list_addresses(&self.addresses_used)));
        }
        if let Some(path) = &self.asked.unix_socket {
            notes.push(ReportNote::UnixSocket(path.display().to_string()));
        }
        if let BenchRequests::Replayed(replay) = &self.asked.work {
            let passed_over = replay.passed_over.iter();
            notes.extend(passed_over.map(|(skip, lines)| ReportNote::LogLinesPassedOver(*lines, skip.text())));
        }
        if let Some(limit) = &self.limit {
            if limit.client_was_limit {
                notes.push(ReportNote::LimitClient);
            }
            match &self.server {
                Ok(_) => {}
                Err(TargetUnknown::NotLocal) => notes.push(ReportNote::LimitOverLoopback),
                Err(_) => notes.push(ReportNote::LimitThreadsUnknown),
            }
        } else if self.asked.with_limit {
            notes.push(ReportNote::LimitMissing);
        }
        notes
    }
}
