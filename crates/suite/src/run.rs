//! Running a suite. Servers take turns in every repetition, completed measurements are stored, and a failure affects no
//! other measurement.

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

/// Options for running a suite.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// True if the suite's `quick` settings apply.
    pub quick: bool,
    /// Folder of the bundle.
    pub out: PathBuf,
    /// Names of the steps to measure. If empty, all steps are measured.
    pub only: Vec<String>,
    /// True if an earlier result in the folder is discarded.
    pub fresh: bool,
    /// Properties of the machine that the user specified.
    pub given: Given,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Path of the flatout executable, which makes every measurement.
    pub own: PathBuf,
}

/// A request to stop the suite early. Counts the requests.
#[derive(Debug, Default)]
pub struct StopRequest(AtomicU32);

impl StopRequest {
    /// Creates the value without a request.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Requests that the suite stop.
    pub fn ask(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// The reason a suite could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The bundle cannot be used.
    #[error("{0}")]
    Bundle(BundleError),
    /// No step has this name. Contains the name, and the names that exist.
    #[error("the suite has no step {0:?}; use one of: {known}", known = .1.join(", "))]
    StepUnknown(String, Vec<String>),
    /// These cores do not exist, or this process may not use them. Contains their numbers.
    #[error("the suite uses cores that this process is not allowed to use: {}", .0.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))]
    Cores(Vec<usize>),
}
