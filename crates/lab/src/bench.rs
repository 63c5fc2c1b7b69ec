//! `flatout bench`: runs load levels against a server, one after another, and optionally measures the machine's own
//! limit for comparison.
//!
//! A level is a plan; [`Bench`] runs the plans one after another and stores each result. A single level with the limit
//! has three parts: half of the level, the bare loop, and the other half. The first half determines the parameters of
//! the bare loop (size of the responses, busy threads of the server), and drift of the machine affects both alike.
//! Every request that is sent is counted.
//!
//! Results are never lost. If a later level fails, or the server's counters become unreadable, the report contains
//! everything measured before, and is invalid for the corresponding reason.

mod drive;
mod error;
mod levels;
mod limit;
mod note;
mod ports;
mod progress;
pub mod question;
mod server_counters;
mod span;
mod spec;
mod watchdog;

pub use error::BenchError;
pub use levels::Bench;
pub use limit::{Limit, MEMORY_REPLY_BYTES_MAX};
pub use note::ReportNote;
pub use ports::{Ports, PortsShort};
pub use progress::{Live, Phase, ProgressReceiver, Unwatched};
pub use server_counters::CounterSource;
pub use spec::{BenchRequests, BenchSpec, Speech};

use crate::target::TargetUnknown;
use flatout_load::report::RunReport;
pub(crate) use span::{SpanPlan, SpanResult, run_span};
use std::net::SocketAddr;

/// The server under test, whose processes were found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFound {
    /// Short name of the server's first process.
    pub name: String,
    /// IDs of the server's processes.
    pub processes: Vec<u32>,
    /// Number of the server's busy threads.
    pub busy_threads: usize,
}

/// The results of a bench.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// The specification of the bench.
    pub asked: BenchSpec,
    /// The figures, from which all views are made.
    pub run: RunReport,
    /// The addresses of the server that connections used, in turn.
    pub addresses_used: Vec<SocketAddr>,
    /// Number of client threads that were used.
    pub threads: usize,
    /// The server's processes, or the reason its CPU time is unknown.
    pub server: Result<ServerFound, TargetUnknown>,
    /// The machine's limit, if it was requested and could be measured.
    pub limit: Option<Limit>,
    /// True if the run was interrupted.
    pub interrupted: bool,
}

impl BenchReport {
    /// Returns whether the figures of every level are valid.
    pub fn is_valid(&self) -> bool {
        self.run.is_valid()
    }

    /// Returns whether no level has a failure, and every requirement is met.
    pub fn passed(&self) -> bool {
        self.run.steps.iter().all(|step| step.failing.is_empty())
            && self.run.thresholds.iter().all(|outcome| outcome.met && outcome.unsound.is_empty())
    }
}

/// Runs every level of the specification.
pub fn run(
    ask: BenchSpec,
    counter_source: Option<CounterSource>,
    progress: &mut dyn ProgressReceiver,
) -> Result<BenchReport, BenchError> {
    let plans = ask.plans.clone();
    let (with_limit, is_lone, overload) = (ask.with_limit, plans.len() == 1, ask.overload);
    let mut bench = Bench::prepare(ask, counter_source)?;
    for plan in plans {
        if bench.is_over() {
            break;
        }
        if with_limit && is_lone {
            bench.step_with_limit(&plan, progress);
        } else {
            bench.step(&plan, overload, progress);
        }
    }
    if with_limit && !is_lone {
        bench.measure_limit(progress);
    }
    bench.finish()
}

#[cfg(test)]
mod tests;
