//! The notes of a report, collected once for all views.

use super::{BenchReport, BenchRequests};
use crate::target::TargetUnknown;
use flatout_load::report::Reason;
use flatout_units::show;

/// A note about a report: its figures, or their comparison.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportNote {
    /// About the figures of a level, which is named if there are several.
    Run(Reason),
    /// Lines of the log that were skipped: the number and the reason.
    LogLinesPassedOver(u64, &'static str),
    /// The client was probably the bottleneck of the bare loop's rate.
    LimitClient,
    /// The bare loop ran here, but the server elsewhere.
    LimitOverLoopback,
    /// The number of the server's busy threads is unknown.
    LimitThreadsUnknown,
    /// The bare loop was requested but not measured.
    LimitMissing,
}

impl ReportNote {
    /// The short name used in JSON.
    pub fn name(&self) -> &str {
        match self {
            Self::Run(note) => &note.name,
            Self::LogLinesPassedOver(..) => "log-lines-passed-over",
            Self::LimitClient => "limit-client-limit",
            Self::LimitOverLoopback => "limit-over-loopback",
            Self::LimitThreadsUnknown => "limit-threads-unknown",
            Self::LimitMissing => "limit-missing",
        }
    }
}

impl ReportNote {
    /// The key of notes of one kind: the name, and the reason for skipped log lines.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::LogLinesPassedOver(_, why) => format!("{}: {why}", self.name()),
            note => note.name().to_owned(),
        }
    }
}

impl std::fmt::Display for ReportNote {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Run(note) => &note.text,
            Self::LogLinesPassedOver(lines, why) => {
                let lines = show::plural(*lines, "line of the log was", "lines of the log were");
                return write!(formatter, "{lines} not replayed: {why}");
            }
            Self::LimitClient => {
                "the client was likely the limit of the bare loop's rate as well; compare the CPU figures"
            }
            Self::LimitOverLoopback => "the limit was measured over loopback, the run over a network",
            Self::LimitThreadsUnknown => "the number of the server's threads is unknown, so the bare loop had one",
            Self::LimitMissing => "the machine's limit was not measured, because the run ended before that",
        })
    }
}

impl BenchReport {
    /// All notes, those about the run's own figures first.
    pub fn notes(&self) -> Vec<ReportNote> {
        let mut notes: Vec<_> =
            self.run.steps.iter().flat_map(|step| &step.notes).cloned().map(ReportNote::Run).collect();
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
