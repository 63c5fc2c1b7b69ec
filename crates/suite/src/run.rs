//! Running a suite: servers take turns in every repetition, completed measurements are retained, and a failure
//! affects nothing else.

mod bench;
mod cell;
mod engine;
mod expect;
mod fill;
mod host;
pub mod progress;
mod step;

pub(crate) use bench::words;
pub use engine::{measurements_of, run, seconds_of_step};
pub use progress::SuiteReporter;

use crate::bundle::BundleError;
use crate::document::Given;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Options of a suite's run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// As the suite's `quick` says.
    pub quick: bool,
    /// The bundle's folder.
    pub out: PathBuf,
    /// The steps that are measured; all when empty.
    pub only: Vec<String>,
    /// True to discard an earlier result in the folder.
    pub fresh: bool,
    /// The user's description of the machine.
    pub given: Given,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// This program: it makes every measurement.
    pub own: PathBuf,
}

/// A request to end early: 0 until there is one.
#[derive(Debug, Default)]
pub struct StopRequest(AtomicU32);

impl StopRequest {
    /// No request yet.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Requests it.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether it was requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Why a suite could not be run at all.
#[derive(Debug)]
pub enum RunError {
    /// The bundle.
    Bundle(BundleError),
    /// No step is called so.
    StepUnknown(String, Vec<String>),
    /// These cores are not there, or this process may not use them.
    Cores(Vec<usize>),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bundle(error) => error.fmt(formatter),
            Self::StepUnknown(name, known) => {
                write!(formatter, "the suite has no step {name:?}; there are: {}", known.join(", "))
            }
            Self::Cores(missing) => {
                let missing: Vec<String> = missing.iter().map(usize::to_string).collect();
                let words = "the suite pins to cores that this process may not use";
                write!(formatter, "{words}: {}", missing.join(", "))
            }
        }
    }
}

impl std::error::Error for RunError {}

/// Now, in milliseconds since the epoch.
pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
