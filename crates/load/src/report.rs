//! Result of a run as a versioned JSON document, with the data for all views.

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
use serde::{Deserialize, Serialize};

/// Name of the schema, in every document.
pub const SCHEMA: &str = "flatout-run";

/// Version of the schema. It changes if a reader of the old one would misinterpret the new one; additional fields do
/// not change it.
///
/// 2: rates refer to the measured span, and late results are separate. In 1 they referred to the time to the end of
/// the last response.
pub const SCHEMA_VERSION: u32 = 2;

/// The result of a run of one or more steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the schema.
    pub schema_version: u32,
    /// Name of the run: its label, or the URL.
    pub label: String,
    /// Version of the program that wrote it.
    pub flatout_version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// When it began, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// The requested URL, or the first of the workload.
    pub url: String,
    /// The address connected to.
    pub address: String,
    /// HTTP version and transport, for users: `HTTP/1.1`, `HTTP/2 over TLS 1.3`.
    pub protocol: String,
    /// The workload in words: `one URL`, `filelist x (5 files)`, `web96-like, λ 4`.
    pub workload: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Timeout of a request, in nanoseconds.
    pub request_timeout_ns: u64,
    /// Client threads used.
    pub threads: u32,
    /// Agents that took part; 0 if this process ran alone.
    pub agents: u32,
    /// Name of the server's process, if it runs on the client's machine.
    pub server_software: Option<String>,
    /// The machine of the client.
    pub machine: MachineReport,
    /// Names of the classes of URLs, in the order of every step's classes.
    pub class_names: Vec<String>,
    /// One for each load level, in order.
    pub steps: Vec<StepReport>,
    /// Maximum of this machine, measured beside the run, and the share reached.
    pub limit: Option<LimitReport>,
    /// Result of every requirement.
    pub thresholds: Vec<ThresholdOutcome>,
    /// Results of analyses: the knee, overload, comparison, scalability fit; each a separate document by name.
    #[serde(default)]
    pub findings: serde_json::Map<String, serde_json::Value>,
}

/// The machine's limit beside the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitReport {
    /// Name of the measure in `flatout limits`.
    pub measure: String,
    /// Its description.
    pub words: String,
    /// Its unit: `1/s`, `bytes/s`.
    pub unit: String,
    /// Its value, in its unit.
    pub value: f64,
    /// Value of the run's best step, in the same unit.
    pub reached: f64,
    /// `reached / value`.
    pub share: f64,
}

/// Error of reading a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// Not JSON, or fields are missing: the parser's message.
    Malformed(String),
    /// JSON of another schema, with its name if any.
    OtherSchema(String),
    /// Written by a newer version of the program: its schema version.
    Newer(u32),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(what) => write!(formatter, "not a result of flatout bench: {}", visible(what)),
            Self::OtherSchema(schema) if schema.is_empty() => {
                write!(formatter, "not a result of flatout bench: it has no schema")
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
    /// Parses a document. It may come from an untrusted source, so invisible characters are escaped for display
    /// ([`mod@visible`]), except in the command.
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
        // Documents of this program normally contain none; an escape may represent one.
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

    /// Encodes the document with indentation.
    pub fn encode(&self) -> Result<String, ReadError> {
        serde_json::to_string_pretty(self).map_err(|error| ReadError::Malformed(error.to_string()))
    }

    /// Returns whether all figures of all steps are valid, and everything requested was measured.
    pub fn is_valid(&self) -> bool {
        self.steps.iter().all(|step| step.invalid.is_empty())
    }

    /// Returns whether everything requested was measured, regardless of validity.
    pub fn is_whole(&self) -> bool {
        !self.steps.iter().flat_map(|step| &step.invalid).any(|invalid| invalid.reason.is_of_a_part())
    }

    /// Returns whether at least one figure of a step is valid.
    pub fn has_sound(&self) -> bool {
        self.steps.iter().any(StepReport::has_sound)
    }

    /// Evaluates requirements on every step, and removes permitted failures from `failing`.
    pub fn require(&mut self, thresholds: &[Threshold]) {
        for step in &mut self.steps {
            self.thresholds.extend(thresholds.iter().map(|threshold| step.judge_among(threshold, thresholds)));
            step.allow(thresholds);
        }
    }
}

#[cfg(test)]
mod tests;
