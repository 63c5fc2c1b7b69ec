//! The result of a suite as a document: everything a report needs, versioned, as JSON.
//!
//! It is `suite.json` in the bundle; the results of the single measurements are separate files, with paths relative
//! to the bundle's folder.

use crate::measure::Measure;
use flatout_load::judge::{Figure as RunFigure, FigureVerdict, InvalidReason, Soundness};
use flatout_load::report::MachineReport;
use serde::{Deserialize, Serialize};

/// Name and number of the schema.
pub const SCHEMA: &str = "flatout-suite/1";

/// The result of a suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The suite's name.
    pub suite: String,
    /// Its question.
    pub about: String,
    /// The suite's file, as it was named.
    pub file: String,
    /// Version of the program.
    pub flatout_version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it (first) started, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// When it ended, in milliseconds since the epoch.
    pub ended_unix_ms: u64,
    /// True if it ran with `--quick`: its figures prove that it works and must not be quoted.
    pub quick: bool,
    /// True if it was interrupted.
    pub interrupted: bool,
    /// Repetitions of a measurement.
    pub repetitions: u32,
    /// Seconds of a measurement.
    pub seconds: f64,
    /// The machine.
    pub machine: MachineReport,
    /// Cores of servers; empty when the kernel chose.
    pub server_cores: Vec<usize>,
    /// Cores of clients; empty when the kernel chose.
    pub client_cores: Vec<usize>,
    /// The user's description of the machine.
    pub given: Given,
    /// Earlier figures, on other hardware.
    pub seeds: Vec<SeedTable>,
    /// The variables with the values that were run.
    pub variables: Vec<VariableValues>,
    /// The servers, those that were left out too.
    pub servers: Vec<ServerEntry>,
    /// The testbeds, those that were left out too.
    pub testbeds: Vec<TestbedEntry>,
    /// The steps, in order.
    pub steps: Vec<StepEntry>,
    /// The checks, in order.
    pub checks: Vec<CheckEntry>,
    /// Problems, in order of occurrence.
    pub troubles: Vec<Trouble>,
}

/// Properties of the machine that only the user knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// Its price, in dollars.
    pub dollars: Option<f64>,
    /// Its power under load, in watts.
    pub watts: Option<f64>,
}

/// A table of earlier figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedTable {
    /// The file's name without `.csv`.
    pub name: String,
    /// The source of the figures: the lines that begin with `#`, without it.
    pub source: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, as they are written.
    pub rows: Vec<Vec<String>>,
}

/// A variable and the values that were run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariableValues {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

/// Why something is missing, or went wrong: a name from a table, and a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The name.
    pub name: String,
    /// The sentence.
    pub text: String,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerEntry {
    /// Its name in the suite.
    pub name: String,
    /// Its description.
    pub about: String,
    /// The path of its program; empty when it was not found.
    pub program: String,
    /// The program's version output, in one line.
    pub version: Option<String>,
    /// The Debian package that brings it.
    pub package: Option<String>,
    /// Its command line, program first; empty if it never started.
    pub command: Vec<String>,
    /// Its files, exactly as they were used.
    pub configs: Vec<ConfigEntry>,
    /// Its logs, by their paths in the bundle.
    pub logs: Vec<String>,
    /// Why it was left out.
    pub absent: Option<Why>,
}

/// A file that a server read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// Its path in the bundle.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// A testbed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestbedEntry {
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// Largest packet, as the suite has it.
    pub mtu: Option<String>,
    /// Rate, as the suite has it.
    pub rate: Option<String>,
    /// Delay, as the suite has it.
    pub delay: Option<String>,
    /// Share of a core's time that servers have, as the suite has it.
    #[serde(default)]
    pub cpu: Option<String>,
    /// Hosts.
    pub hosts: u8,
    /// Why it was left out.
    pub absent: Option<Why>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepEntry {
    /// Its name.
    pub name: String,
    /// Its question.
    pub about: String,
    /// The classic view it is to be shown in.
    pub view: Option<String>,
    /// The testbed it ran in.
    pub testbed: Option<String>,
    /// The variables it has, in order: keys of every cell's values.
    pub variables: Vec<String>,
    /// Its servers, in the order in which they took turns.
    pub servers: Vec<String>,
    /// Arguments of the bench, as the suite has them.
    pub bench: Vec<String>,
    /// Other clients than `flatout bench`: the command line and version of each.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The servers beside which the report shows the others; without any, the first one.
    #[serde(default)]
    pub compare: Vec<String>,
    /// The measurements: combinations of the variables' values in order, and within each the servers.
    pub cells: Vec<Cell>,
    /// Why the whole step was left out.
    pub absent: Option<Why>,
}

/// One server with one value of each variable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The server.
    pub server: String,
    /// Values of the variables, in the order of the step's.
    pub values: Vec<(String, String)>,
    /// Values that were made of figures of earlier steps.
    pub taken: Vec<(String, String)>,
    /// The figures: every measure that its runs have.
    pub figures: Vec<Figure>,
    /// Its runs, one for each repetition that came to an end.
    pub runs: Vec<RunEntry>,
    /// Why runs are missing.
    pub absent: Option<Why>,
}

/// A figure of a cell: one value for each repetition in whose run it holds, and what they come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The measure's name, see [`crate::measure`].
    pub measure: String,
    /// Its unit.
    pub unit: String,
    /// The values, in the order of the repetitions.
    pub values: Vec<f64>,
    /// The repetition of each value, from 0.
    #[serde(default)]
    pub repetitions: Vec<u32>,
    /// Their median.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Which repetition it was, from 0.
    pub repetition: u32,
    /// The result of `flatout bench`, by its path in the bundle.
    pub path: String,
    /// Why figures of it do not hold, each reason by its name and with its numbers; none when all hold.
    pub invalid: Vec<String>,
    /// The verdict on each figure that does not hold. A run that is invalid and has none of them has no figure that holds.
    #[serde(default)]
    pub figures: Vec<FigureVerdict>,
    /// Its failures, as text.
    pub failing: Vec<String>,
    /// The costs of every running server, including upstream ones, from before the bench to after it.
    pub processes: Vec<ProcessCost>,
}

/// The cost of a server's processes during a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCost {
    /// The server.
    pub server: String,
    /// On-CPU time of all its processes, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory of all its processes afterwards, in bytes, shared pages counted in each.
    pub memory_bytes: u64,
    /// Number of its processes.
    pub processes: u32,
}

/// A check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckEntry {
    /// Its name.
    pub name: String,
    /// The step its figure is of.
    pub step: String,
    /// Its measure.
    pub measure: String,
    /// The server its figure is of.
    pub of: String,
    /// The worst of its findings' verdicts: missed, then not judged, then met.
    pub verdict: Verdict,
    /// One for each combination of variables.
    pub findings: Vec<CheckFinding>,
}

/// The result of a check for one combination of variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckFinding {
    /// The combination.
    pub values: Vec<(String, String)>,
    /// The verdict.
    pub verdict: Verdict,
    /// One sentence, of the same form whichever way it came out.
    pub sentence: String,
    /// The measure judged instead of the check's, where the client was the limit; `bound` and `is_at_most` are of it then.
    #[serde(default)]
    pub instead: Option<String>,
    /// The figure judged, a median.
    pub ours: Option<f64>,
    /// The value it is compared with: another figure's median, or the bound itself.
    pub theirs: Option<f64>,
    /// The server of `theirs`; empty for a number.
    pub than: String,
    /// `ours / theirs`, where it is held against a figure.
    pub ratio: Option<f64>,
    /// The lowest and the highest that the ratio may be, where the servers took turns: a 95 % confidence interval, or the
    /// range of the turns where they are too few for one.
    #[serde(default)]
    pub ratio_range: Option<(f64, f64)>,
    /// The bound: of the ratio, or of the figure itself.
    pub bound: f64,
    /// True if the bound is a maximum; else it is a minimum.
    pub is_at_most: bool,
}

/// The verdict of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Met,
    /// The ratio's interval includes the bound: no difference was shown.
    NotShown,
    /// It could not be judged.
    #[default]
    NotJudged,
    /// It does not hold.
    Missed,
}

impl Verdict {
    /// Returns whether it is undecided.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::NotShown | Self::NotJudged)
    }

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotShown => "not shown",
            Self::NotJudged => "not judged",
            Self::Missed => "missed",
        }
    }
}

/// Something that went wrong. What was not touched by it went on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The reason.
    pub why: Why,
    /// Its place in the suite's file: `file:line`.
    pub place: String,
    /// The server it concerns.
    pub server: Option<String>,
    /// The step in which it happened.
    pub step: Option<String>,
    /// The end of the server's log.
    pub log_tail: Vec<String>,
}

impl SuiteReport {
    /// The step of this name.
    pub fn step(&self, name: &str) -> Option<&StepEntry> {
        self.steps.iter().find(|step| step.name == name)
    }
}

impl StepEntry {
    /// The cell of a server at these values; values of variables the step does not have are left aside.
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
    /// The figure of a measure.
    pub fn figure(&self, measure: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.measure == measure)
    }

    /// Returns whether any of its runs has no valid figure.
    pub fn has_worthless(&self) -> bool {
        self.runs.iter().any(|run| !run.has_sound())
    }

    /// Returns whether any of its runs has an invalid figure.
    pub fn has_invalid(&self) -> bool {
        self.runs.iter().any(|run| !run.invalid.is_empty())
    }
}

impl RunEntry {
    /// The verdict on a figure of the run.
    pub fn verdict(&self, figure: RunFigure) -> FigureVerdict {
        let found = self.figures.iter().find(|verdict| verdict.figure == figure).cloned();
        let mut verdict = found.unwrap_or_else(|| FigureVerdict::sound(figure));
        if self.figures.is_empty() && !self.invalid.is_empty() {
            verdict.soundness = Soundness::Unknown;
        }
        // Runs are short, and other processes take from all servers alike, whose runs are interleaved.
        if verdict.reasons == [InvalidReason::CpuContentionUnknown] { FigureVerdict::sound(figure) } else { verdict }
    }

    /// The verdicts on a measure's invalid figures.
    pub fn unsound(&self, measure: Measure) -> Vec<FigureVerdict> {
        let verdicts = measure.figures().iter().map(|figure| self.verdict(*figure));
        verdicts.filter(|verdict| !verdict.soundness.is_sound()).collect()
    }

    /// Why a measure does not hold in the run, with its numbers; `None` where it holds.
    pub fn why_unsound(&self, measure: Measure) -> Option<&str> {
        let reasons = self.unsound(measure).into_iter().flat_map(|verdict| verdict.reasons);
        let names: Vec<&str> = reasons.map(InvalidReason::name).collect();
        let is_named =
            |text: &&String| names.is_empty() || text.split_once(": ").is_some_and(|(name, _)| names.contains(&name));
        let is_unsound = !self.unsound(measure).is_empty();
        self.invalid.iter().find(is_named).map(String::as_str).filter(|_| is_unsound)
    }

    /// Returns whether any figure of the run is valid. Counts alone do not indicate a server's speed.
    pub fn has_sound(&self) -> bool {
        let counted = RunFigure::ALL.iter().filter(|figure| **figure != RunFigure::Counts);
        counted.into_iter().any(|figure| self.verdict(*figure).soundness.is_sound())
    }
}
