//! The result of a suite as a versioned JSON document, which contains everything that a report needs.
//!
//! The document is stored as `suite.json` in the bundle. The results of single measurements are separate files. Paths
//! are relative to the bundle's folder.

use crate::measure::Measure;
use crate::why::LEFT_OUT_BY_ONLY;
use flatout_load::judge::{Figure as RunFigure, FigureVerdict, InvalidReason, Soundness};
use flatout_load::report::MachineReport;
use flatout_load::stats::responses::Responses;
use serde::{Deserialize, Serialize};

/// The name and version of the schema.
pub const SCHEMA: &str = "flatout-suite/1";

/// The result of a suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Name of the suite.
    pub suite: String,
    /// The purpose of the suite.
    pub about: String,
    /// Path of the suite's file, as given on the command line.
    pub file: String,
    /// Version of flatout that ran the suite.
    pub flatout_version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Time at which the suite was first started, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// Time at which the suite ended, in milliseconds since the epoch.
    pub ended_unix_ms: u64,
    /// True if the suite ran with `--quick`; its figures must then not be quoted.
    pub quick: bool,
    /// True if the run was interrupted.
    pub interrupted: bool,
    /// Number of repetitions of each measurement.
    pub repetitions: u32,
    /// Duration of a measurement, in seconds.
    pub seconds: f64,
    /// The machine that the suite ran on.
    pub machine: MachineReport,
    /// Cores of the servers; empty if the kernel chose.
    pub server_cores: Vec<usize>,
    /// Cores of the clients; empty if the kernel chose.
    pub client_cores: Vec<usize>,
    /// Properties of the machine that the user specified.
    pub given: Given,
    /// Tables of earlier figures from other hardware.
    pub seeds: Vec<SeedTable>,
    /// The variables, with the values that were used.
    pub variables: Vec<VariableValues>,
    /// The servers, including servers that were left out.
    pub servers: Vec<ServerEntry>,
    /// The testbeds, including testbeds that were left out.
    pub testbeds: Vec<TestbedEntry>,
    /// The steps, in order.
    pub steps: Vec<StepEntry>,
    /// The checks, in order.
    pub checks: Vec<CheckEntry>,
    /// Problems, in the order in which they occurred.
    pub troubles: Vec<Trouble>,
}

/// Properties of the machine that only the user knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Price of the machine, in dollars.
    pub dollars: Option<f64>,
    /// Power of the machine under load, in watts.
    pub watts: Option<f64>,
}

/// A table of earlier figures from other hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedTable {
    /// Name of the file, without `.csv`.
    pub name: String,
    /// The source of the figures: the lines of the file that begin with `#`, without the `#`.
    pub source: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, as written.
    pub rows: Vec<Vec<String>>,
}

/// A variable and the values that were used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableValues {
    /// Name of the variable.
    pub name: String,
    /// The values that were used.
    pub values: Vec<String>,
}

/// The reason something is missing or failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Name of the reason, from [`crate::why`].
    pub name: String,
    /// The reason in a sentence.
    pub text: String,
}

/// A server of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Name of the server in the suite.
    pub name: String,
    /// Description of the server.
    pub about: String,
    /// Path of the server's program; empty if the program was not found.
    pub program: String,
    /// Version output of the program, in one line.
    pub version: Option<String>,
    /// The Debian package that contains the program.
    pub package: Option<String>,
    /// Command line of the server, program first; empty if the server was never started.
    pub command: Vec<String>,
    /// The server's files, exactly as they were used.
    pub configs: Vec<ConfigEntry>,
    /// Paths of the server's logs in the bundle.
    pub logs: Vec<String>,
    /// The reason the server was left out, if it was.
    pub absent: Option<Why>,
}

/// A file that a server read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// Path of the file in the bundle.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// A testbed of the suite.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestbedEntry {
    /// Name of the testbed.
    pub name: String,
    /// Description of the testbed.
    pub about: String,
    /// The MTU, as written in the suite.
    pub mtu: Option<String>,
    /// The rate, as written in the suite.
    pub rate: Option<String>,
    /// The delay, as written in the suite.
    pub delay: Option<String>,
    /// The kernel settings of both hosts, as written in the suite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<String>,
    /// The share of a core that servers may use, as written in the suite.
    #[serde(default)]
    pub cpu: Option<String>,
    /// Number of hosts, 1 or 2.
    pub hosts: u8,
    /// The reason the testbed was left out, if it was.
    pub absent: Option<Why>,
}

/// A step of the suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepEntry {
    /// Name of the step.
    pub name: String,
    /// The purpose of the step.
    pub about: String,
    /// The classic view in which the report shows it.
    pub view: Option<String>,
    /// The testbed in which the step ran, if any.
    pub testbed: Option<String>,
    /// Names of the step's variables, in the order of every cell's values.
    pub variables: Vec<String>,
    /// Names of the step's servers, in the order in which they took turns.
    pub servers: Vec<String>,
    /// The arguments of `flatout bench`, as written in the suite.
    pub bench: Vec<String>,
    /// The command line and version of each client other than `flatout bench`.
    #[serde(default)]
    pub clients: Vec<String>,
    /// Names of the servers with which the report compares the others. If empty, this is the first server.
    #[serde(default)]
    pub compare: Vec<String>,
    /// The measurements. For each combination of the variables' values, in order, there is one cell per server.
    pub cells: Vec<Cell>,
    /// The reason the whole step was left out, if it was.
    pub absent: Option<Why>,
}

/// The measurements of one server with one combination of values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the server.
    pub server: String,
    /// Names and values of the variables, in the order of the step's variables.
    pub values: Vec<(String, String)>,
    /// Names and values that were computed from figures of earlier steps.
    pub taken: Vec<(String, String)>,
    /// The figures of all measures that are valid in at least one run.
    pub figures: Vec<Figure>,
    /// The runs, one for each completed repetition.
    pub runs: Vec<RunEntry>,
    /// The reason runs are missing, if any are.
    pub absent: Option<Why>,
}

/// A figure of a cell: one value for each repetition in which it is valid, and a summary of the values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name of the measure; see [`crate::measure`].
    pub measure: String,
    /// Unit of the values.
    pub unit: String,
    /// The values, in the order of the repetitions.
    pub values: Vec<f64>,
    /// The repetition in which each value was measured, from 0.
    #[serde(default)]
    pub repetitions: Vec<u32>,
    /// Median of the values.
    pub median: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
}

/// A run: one measurement of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// The repetition, from 0.
    pub repetition: u32,
    /// Path of the result of `flatout bench` in the bundle.
    pub path: String,
    /// The reasons figures of the run are invalid, each with its numbers; empty if all figures are valid.
    pub invalid: Vec<String>,
    /// The verdict on each figure that is not valid. If `invalid` has entries and this list is empty, no figure of the
    /// run is valid.
    #[serde(default)]
    pub figures: Vec<FigureVerdict>,
    /// Names of the measures that are the time of a request that never got a response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<String>,
    /// Failures during the run, as text.
    pub failing: Vec<String>,
    /// The statuses and sizes of the responses, if the client reports statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responses: Option<Responses>,
    /// The costs of every running server, including origins and application servers, from before the bench until after
    /// it.
    pub processes: Vec<ProcessCost>,
}

/// The cost of a server's processes during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCost {
    /// Name of the server.
    pub server: String,
    /// CPU time of all the server's processes, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory of all the server's processes after the measurement, in bytes. Shared pages count once for each
    /// process.
    pub memory_bytes: u64,
    /// Number of the server's processes.
    pub processes: u32,
}

/// A check of the suite, with its result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckEntry {
    /// Name of the check.
    pub name: String,
    /// Name of the step with the judged figure.
    pub step: String,
    /// Name of the judged measure.
    pub measure: String,
    /// Name of the server with the judged figure.
    pub of: String,
    /// The worst verdict of the findings. From worst to best: missed, not judged, not shown, met.
    pub verdict: Verdict,
    /// One finding for each combination of variables.
    pub findings: Vec<CheckFinding>,
}

/// The result of a check for one combination of variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// Names and values of the variables.
    pub values: Vec<(String, String)>,
    /// The verdict for this combination.
    pub verdict: Verdict,
    /// The result in one sentence, in the same form for every outcome.
    pub sentence: String,
    /// The measure that was judged instead, because the client was saturated. `bound` and `is_at_most` then apply to
    /// it.
    #[serde(default)]
    pub instead: Option<String>,
    /// The judged figure, which is a median.
    pub ours: Option<f64>,
    /// The value with which the figure is compared: another figure's median, or the bound itself.
    pub theirs: Option<f64>,
    /// Name of the server with the figure in `theirs`; empty if `theirs` is the bound.
    pub than: String,
    /// `ours / theirs`, if the figure is compared with another figure.
    pub ratio: Option<f64>,
    /// The interval of the ratio, if the servers took turns: the 95 % confidence interval or, with too few turns for
    /// it, the range over the turns.
    #[serde(default)]
    pub ratio_range: Option<(f64, f64)>,
    /// The bound of the ratio, or of the figure itself.
    pub bound: f64,
    /// True if the bound is a maximum, false if it is a minimum.
    pub is_at_most: bool,
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The condition holds.
    Met,
    /// The interval of the ratio includes the bound, so no difference was shown.
    NotShown,
    /// The check could not be judged.
    #[default]
    NotJudged,
    /// The condition does not hold.
    Missed,
}

impl Verdict {
    /// Returns whether the check is undecided.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::NotShown | Self::NotJudged)
    }

    /// Returns the word for the verdict in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotShown => "inconclusive",
            Self::NotJudged => "not judged",
            Self::Missed => "missed",
        }
    }
}

/// A problem during the run. Measurements that the problem did not affect continued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The reason, with a sentence.
    pub why: Why,
    /// Place in the suite's file, as `file:line`.
    pub place: String,
    /// Name of the affected server.
    pub server: Option<String>,
    /// Name of the step in which the problem occurred.
    pub step: Option<String>,
    /// The last lines of the server's log.
    pub log_tail: Vec<String>,
}

impl SuiteReport {
    /// Returns the step with this name.
    pub fn step(&self, name: &str) -> Option<&StepEntry> {
        self.steps.iter().find(|step| step.name == name)
    }
}

impl StepEntry {
    /// Returns whether `--only` leaves the step out. If so, reports for people also leave it out.
    pub fn is_left_out_by_only(&self) -> bool {
        self.absent.as_ref().is_some_and(|why| why.text == LEFT_OUT_BY_ONLY)
    }
}

impl StepEntry {
    /// Returns the cell of a server with these values. Variables that the step does not have are ignored.
    pub fn cell(&self, server: &str, values: &[(String, String)]) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            cell.server == server
                && cell.values.iter().all(|(name, value)| {
                    values.iter().find(|(other, _)| other == name).is_none_or(|(_, wanted)| wanted == value)
                })
        })
    }
}

impl Cell {
    /// Returns the figure of a measure.
    pub fn figure(&self, measure: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.measure == measure)
    }

    /// Returns the responses of all runs of the cell.
    pub fn responses(&self) -> Responses {
        self.runs.iter().filter_map(|run| run.responses.as_ref()).fold(Responses::default(), Responses::and)
    }

    /// Returns whether any run of the cell has no valid figure.
    pub fn has_worthless(&self) -> bool {
        self.runs.iter().any(|run| !run.has_sound())
    }

    /// Returns whether any run of the cell has an invalid figure.
    pub fn has_invalid(&self) -> bool {
        self.runs.iter().any(|run| !run.invalid.is_empty())
    }
}

impl RunEntry {
    /// Returns the verdict on a figure of the run.
    pub fn verdict(&self, figure: RunFigure) -> FigureVerdict {
        let found = self.figures.iter().find(|verdict| verdict.figure == figure).cloned();
        let mut verdict = found.unwrap_or_else(|| FigureVerdict::sound(figure));
        if self.figures.is_empty() && !self.invalid.is_empty() {
            verdict.soundness = Soundness::Unknown;
        }
        // Runs are short, and other processes affect all servers alike because the servers take turns.
        if verdict.reasons == [InvalidReason::CpuContentionUnknown] { FigureVerdict::sound(figure) } else { verdict }
    }

    /// Returns the verdicts on the figures of a measure that are not valid.
    pub fn unsound(&self, measure: Measure) -> Vec<FigureVerdict> {
        let verdicts = measure.figures().iter().map(|figure| self.verdict(*figure));
        verdicts.filter(|verdict| !verdict.soundness.is_sound()).collect()
    }

    /// Returns the reason a measure is invalid in the run, with its numbers; `None` if it is valid.
    pub fn why_unsound(&self, measure: Measure) -> Option<&str> {
        let reasons = self.unsound(measure).into_iter().flat_map(|verdict| verdict.reasons);
        let names: Vec<&str> = reasons.map(InvalidReason::name).collect();
        let is_named =
            |text: &&String| names.is_empty() || text.split_once(": ").is_some_and(|(name, _)| names.contains(&name));
        let is_unsound = !self.unsound(measure).is_empty();
        self.invalid.iter().find(is_named).map(String::as_str).filter(|_| is_unsound)
    }

    /// Returns whether any figure of the run is valid. Counts do not suffice, because they do not show a server's
    /// speed.
    pub fn has_sound(&self) -> bool {
        let counted = RunFigure::ALL.iter().filter(|figure| **figure != RunFigure::Counts);
        counted.into_iter().any(|figure| self.verdict(*figure).soundness.is_sound())
    }
}
