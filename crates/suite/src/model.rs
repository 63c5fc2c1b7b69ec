//! The contents of a suite's file as values, with their positions in the file, for errors that are found later.
//!
//! Nothing is resolved here: strings contain `{names}` until a run replaces them.

mod check;
mod fixture;
mod server;
mod step;
mod testbed;

pub use check::{Against, Bound, Check, Where};
pub use fixture::{Fixture, FixturePart};
pub use server::{ConfigFile, Program, Ready, Server, VersionAsked};
pub use step::{Client, Expectation, ExpectedField, Reach, Step, Take};
pub use testbed::Testbed;

use flatout_config::model::Place;
use std::path::PathBuf;

/// A string with its place in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The string, with its `{names}`.
    pub text: String,
    /// Place of the string in the file.
    pub place: Place,
}

/// A suite, which describes one experiment.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name of the suite: lower-case letters, digits, hyphens and underscores.
    pub name: String,
    /// Path of the suite's file, as given on the command line.
    pub file: PathBuf,
    /// The file's content, unchanged.
    pub source: String,
    /// Purpose of the suite, in one or a few sentences.
    pub about: String,
    /// Names of tables of earlier figures, which are shown with the new figures. Each table is a file in `history/` in
    /// the folder of the suite's file; the names lack `.csv`.
    pub seeds: Vec<Placed>,
    /// Number of repetitions of every measurement.
    pub repetitions: u32,
    /// Default duration of a measurement, in seconds.
    pub seconds: f64,
    /// Overrides for `--quick`.
    pub quick: Quick,
    /// The cores that servers and clients use.
    pub cores: Cores,
    /// Files for servers, in the order in which they are created.
    pub fixtures: Vec<Fixture>,
    /// Variables, in the order of the file.
    pub variables: Vec<Variable>,
    /// Servers, in the order of the file.
    pub servers: Vec<Server>,
    /// Testbeds, in the order of the file.
    pub testbeds: Vec<Testbed>,
    /// Steps, in the order in which they run.
    pub steps: Vec<Step>,
    /// Conditions on the results.
    pub checks: Vec<Check>,
}

/// A variable and its values. A step that names it in braces runs once for each value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Values of the variable, as written.
    pub values: Vec<String>,
    /// Place of the variable in the file.
    pub place: Place,
}

/// Overrides for `--quick`, which only verifies that a suite works.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// Number of repetitions of every measurement.
    pub repetitions: Option<u32>,
    /// Duration of a measurement in seconds, which also replaces the duration of a step.
    pub seconds: Option<f64>,
    /// Variables with the values to use. Other variables keep all their values.
    pub keep: Vec<Variable>,
    /// Steps that are left out.
    pub skip: Vec<Placed>,
}

/// Cores, by the kernel's numbers. If a list is empty, the kernel chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// Cores of the servers.
    pub server: Vec<usize>,
    /// Cores of the clients.
    pub client: Vec<usize>,
}

impl Suite {
    /// Returns the server with this name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Returns the step with this name.
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// Returns the testbed with this name.
    pub fn testbed(&self, name: &str) -> Option<&Testbed> {
        self.testbeds.iter().find(|testbed| testbed.name == name)
    }

    /// Returns the variable with this name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }
}
