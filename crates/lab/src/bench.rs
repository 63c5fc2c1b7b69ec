//! `flatout bench`: load levels against a server, one after another, and beside them, when asked, the machine's own limit.
//!
//! A level is a plan; [`Bench`] runs one after another and keeps what each came to. A lone level with the limit has
//! three parts: half of it, the bare loop, the other half. The first half shows what to compare with (size of the answers,
//! busy threads of the server), and a machine that slowly becomes faster or slower does so for both alike. No request is
//! sent beyond those counted.
//!
//! What was measured is never lost: when a later level cannot be run, or the server's books can no longer be read, the
//! report has everything that came before, and is invalid for a reason of that name.

mod ask;
mod books;
mod drive;
mod error;
mod kernel;
mod levels;
mod limit;
mod note;
mod ports;
mod progress;
pub mod question;
mod span;

pub use ask::{Ask, Speech, Work};
pub use books::Books;
pub use error::BenchError;
pub use levels::Bench;
pub use limit::{Limit, MEMORY_REPLY_BYTES_MAX};
pub use note::ReportNote;
pub use ports::{Ports, PortsShort};
pub use progress::{Live, Phase, Progress, Unwatched};

use crate::machine::Machine;
use crate::target::TargetUnknown;
use flatout_load::report::RunReport;
pub(crate) use span::{Span, SpanPlan, run_span};
use std::net::SocketAddr;

/// The server, as far as it could be found on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFound {
    /// Short name of its first process.
    pub name: String,
    /// Its processes.
    pub processes: Vec<u32>,
    /// How many of its threads were busy.
    pub busy_threads: usize,
}

/// Everything a bench found.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// What was benched, as asked.
    pub asked: Ask,
    /// The figures, as every view reads them.
    pub run: RunReport,
    /// The address it came down to.
    pub address: SocketAddr,
    /// Threads really used.
    pub threads: usize,
    /// What this machine is.
    pub machine: Machine,
    /// The server, or why its CPU time is not known.
    pub server: Result<ServerFound, TargetUnknown>,
    /// The machine's limit, when it was asked for and the run came that far.
    pub limit: Option<Limit>,
    /// Whether somebody ended the run before its time.
    pub interrupted: bool,
}

impl BenchReport {
    /// Whether the figures of every level can be believed.
    pub fn is_valid(&self) -> bool {
        self.run.is_valid()
    }

    /// Whether nothing failed at any level.
    pub fn passed(&self) -> bool {
        self.run.steps.iter().all(|step| step.failing.is_empty())
    }
}

/// Runs every level that is asked for.
pub fn run(ask: Ask, books: Option<Books>, progress: &mut dyn Progress) -> Result<BenchReport, BenchError> {
    let plans = ask.plans.clone();
    let (with_limit, is_lone, overload) = (ask.with_limit, plans.len() == 1, ask.overload);
    let mut bench = Bench::prepare(ask, books)?;
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
