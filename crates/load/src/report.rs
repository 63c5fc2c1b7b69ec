//! The result of a run as a document: everything any view needs, versioned, written and read as JSON.

pub mod goodput;
pub mod percentiles;
pub mod step;
pub mod visible;

pub use percentiles::Percentiles;
pub use step::{
    AgentReport, ClientReport, Cpu, CpuClock, KernelReport, MachineReport, Offered, PhasesReport, Reason,
    RequestsReport, ServerReport, StepFacts, StepReport, Times, WarmUpReport,
};
pub use visible::visible;

use crate::judge::threshold::{Threshold, ThresholdOutcome};
use crate::plan::Plan;
use serde::{Deserialize, Serialize};

/// Name of the schema, in every document.
pub const SCHEMA: &str = "flatout-run";

/// Version of the schema this program writes. It grows when a reader of the old one would misunderstand the new one;
/// fields that are only added do not change it.
///
/// 2: rates are of the measured span, and what came after its end is told apart. In 1 they were of the time to the end of
/// the last response.
pub const SCHEMA_VERSION: u32 = 2;

/// The result of a run of one or more steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the schema.
    pub schema_version: u32,
    /// What people call this run: its label, or the URL.
    pub label: String,
    /// Version of the program that wrote it.
    pub flatout_version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it began, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// What was asked: the URL, or the first of the workload.
    pub url: String,
    /// The address connected to.
    pub address: String,
    /// HTTP version and transport, for people and views: `HTTP/1.1`, `HTTP/2 over TLS 1.3`.
    pub protocol: String,
    /// The workload in words: `one URL`, `filelist x (5 files)`, `web96-like, λ 4`.
    pub workload: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Timeout of a request, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Client threads used.
    pub threads: u32,
    /// Agents that took part; 0 when the run was made by this process alone.
    pub agents: u32,
    /// Name of the server's process, where it runs on the client's machine.
    pub server_software: Option<String>,
    /// The machine of the client.
    pub machine: MachineReport,
    /// Names of the classes of URLs, in the order of every step's classes.
    pub class_names: Vec<String>,
    /// One for each load level, in order.
    pub steps: Vec<StepReport>,
    /// What this machine could do at most, measured beside the run, and what share of it the run reached.
    pub limit: Option<LimitReport>,
    /// What came of every requirement.
    pub thresholds: Vec<ThresholdOutcome>,
    /// What a question asked of the run found: the knee, the overload analysis, the comparison, the scalability fit; by
    /// name, each a document of its own.
    #[serde(default)]
    pub findings: serde_json::Map<String, serde_json::Value>,
}

/// The machine's limit beside the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitReport {
    /// Name of the measure, as `flatout limits` has it.
    pub measure: String,
    /// What it is, in words.
    pub words: String,
    /// Its unit: `1/s`, `bytes/s`.
    pub unit: String,
    /// Its value, in its unit.
    pub value: f64,
    /// What the run's best step reached, in the same unit.
    pub reached: f64,
    /// `reached / value`.
    pub share: f64,
}

/// Why a document is not a run's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Not JSON, or without the fields of the schema: what the reader said.
    Malformed(String),
    /// JSON of another schema, which is named; empty when it names none.
    OtherSchema(String),
    /// Written by a newer program: the version found.
    Newer(u32),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(what) => write!(formatter, "not a result of flatout bench: {}", visible(what)),
            Self::OtherSchema(schema) if schema.is_empty() => {
                write!(formatter, "not a result of flatout bench: it names no schema")
            }
            Self::OtherSchema(schema) => write!(formatter, "not a result of flatout bench but {schema:?}"),
            Self::Newer(version) => write!(
                formatter,
                "written by a newer flatout: its schema version is {version}, and this one reads up to {SCHEMA_VERSION}"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

impl RunReport {
    /// Reads a document. It may come from elsewhere, and is made to be shown: what cannot be seen in a text stands there in
    /// letters ([`mod@visible`]), but for the command.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        #[derive(Deserialize)]
        struct Head {
            #[serde(default)]
            schema: String,
            #[serde(default)]
            schema_version: u32,
        }
        let malformed = |error: serde_json::Error| ReadError::Malformed(error.to_string());
        let head: Head = serde_json::from_str(text).map_err(malformed)?;
        if head.schema != SCHEMA {
            return Err(ReadError::OtherSchema(head.schema));
        }
        if head.schema_version > SCHEMA_VERSION {
            return Err(ReadError::Newer(head.schema_version));
        }
        // A document of our own has nothing of the kind, as a rule; an escape may be one.
        if !text.contains('\\') && !text.chars().any(|character| visible::is_unseen(character) && character != '\n') {
            return serde_json::from_str(text).map_err(malformed);
        }
        let mut document: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(malformed)?;
        let command = document.remove("command");
        let mut document = serde_json::Value::Object(document);
        visible::make_visible(&mut document);
        if let (Some(fields), Some(command)) = (document.as_object_mut(), command) {
            fields.insert("command".to_owned(), command);
        }
        serde_json::from_value(document).map_err(malformed)
    }

    /// Writes the document, indented for people.
    pub fn encode(&self) -> Result<String, ReadError> {
        serde_json::to_string_pretty(self).map_err(|error| ReadError::Malformed(error.to_string()))
    }

    /// Whether every figure of every step holds, and all that was asked for was measured.
    pub fn is_valid(&self) -> bool {
        self.steps.iter().all(|step| step.invalid.is_empty())
    }

    /// Whether all that was asked for was measured, whatever its figures are worth.
    pub fn is_whole(&self) -> bool {
        !self.steps.iter().flat_map(|step| &step.invalid).any(|invalid| invalid.reason.is_of_a_part())
    }

    /// Whether at least one figure of a step holds.
    pub fn has_sound(&self) -> bool {
        self.steps.iter().any(StepReport::has_sound)
    }

    /// Judges every step by requirements, and takes what they allow for out of what failed.
    pub fn require(&mut self, thresholds: &[Threshold]) {
        for step in &mut self.steps {
            self.thresholds.extend(thresholds.iter().map(|threshold| step.judge_among(threshold, thresholds)));
            step.allow(thresholds);
        }
    }

    /// Whether every requirement was met.
    pub fn meets_thresholds(&self) -> bool {
        self.thresholds.iter().all(|outcome| outcome.met)
    }

    /// Plans of the steps, for a run again.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        self.steps.iter().map(|step| &step.plan)
    }
}

#[cfg(test)]
mod tests;
