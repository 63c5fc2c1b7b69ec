//! A suite file as values, with the source position of each for later errors.
//!
//! Nothing is resolved here: texts contain their `{names}` until a run substitutes values.

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

/// A text of the file, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// The text, with its `{names}` as they stand.
    pub text: String,
    /// Its place in the file.
    pub place: Place,
}

/// A suite: one experiment.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Its name: letters, digits and hyphens.
    pub name: String,
    /// The file, as it was named.
    pub file: PathBuf,
    /// The file's text, byte by byte.
    pub source: String,
    /// Its question, in one or a few sentences.
    pub about: String,
    /// Tables of earlier figures that are shown beside today's: names of files in `history/` beside the suite's file,
    /// without `.csv`.
    pub seeds: Vec<Placed>,
    /// Measurements of every step with every server.
    pub repetitions: u32,
    /// Default duration of a measurement, in seconds.
    pub seconds: f64,
    /// Changes by `--quick`.
    pub quick: Quick,
    /// The cores of servers and clients.
    pub cores: Cores,
    /// Files for servers, in order of creation.
    pub fixtures: Vec<Fixture>,
    /// Variables, in the order of the file.
    pub variables: Vec<Variable>,
    /// Servers, in the order of the file.
    pub servers: Vec<Server>,
    /// Testbeds, in the order of the file.
    pub testbeds: Vec<Testbed>,
    /// Steps, in the order in which they run.
    pub steps: Vec<Step>,
    /// Conditions on the figures.
    pub checks: Vec<Check>,
}

/// A variable and its values. A step that names it in braces runs once for every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its values, as they are written.
    pub values: Vec<String>,
    /// Its place in the file.
    pub place: Place,
}

/// Changes by `--quick`: enough to see that a suite works, and nothing to quote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quick {
    /// Repetitions instead.
    pub repetitions: Option<u32>,
    /// Seconds of a measurement instead; also of steps that have a time of their own.
    pub seconds: Option<f64>,
    /// The values retained of a variable; other variables retain all.
    pub keep: Vec<Variable>,
    /// The steps that are left out.
    pub skip: Vec<Placed>,
}

/// Cores, by the numbers of the kernel. Empty lists leave it to the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cores {
    /// Of servers.
    pub server: Vec<usize>,
    /// Of clients.
    pub client: Vec<usize>,
}

impl Suite {
    /// A server by its name.
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// A step by its name.
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// A testbed by its name.
    pub fn testbed(&self, name: &str) -> Option<&Testbed> {
        self.testbeds.iter().find(|testbed| testbed.name == name)
    }

    /// A variable by its name.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }
}
