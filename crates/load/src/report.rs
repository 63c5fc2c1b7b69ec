//! The result of a run as a versioned JSON document, which contains the data for all views.

mod evidence;
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

/// Name of the schema, which every document states.
pub const SCHEMA: &str = "flatout-run";

/// Version of the schema. It changes if a reader of the old version would misinterpret the new one; additional fields
/// do not change it.
///
/// In version 3, rates and times are those of successful responses, and a percentile is null if the request at its rank
/// never got a response. In version 2, they were those of all responses, whatever their status; rates refer to the
/// measured span, and late results are separate. In version 1, rates referred to the time until the end of the last
/// response.
pub const SCHEMA_VERSION: u32 = 3;

/// The version in which rates and times became those of successful responses.
const SCHEMA_VERSION_OF_SUCCESSES: u32 = 3;

/// The result of a run of one or more steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// Version of the document's schema. Readers reject a newer version.
    pub schema_version: u32,
    /// Name of the run: its label, or the URL if it has no label.
    pub label: String,
    /// Version of the program that wrote it.
    pub flatout_version: String,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Time at which the run started, in milliseconds since the epoch.
    pub begun_unix_ms: u64,
    /// The requested URL, or the first URL of the workload.
    pub url: String,
    /// The address that the client connected to.
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
    /// Number of agents that took part; 0 if this process ran alone.
    pub agents: u32,
    /// Name of the server's process, if the server runs on the client's machine.
    pub server_software: Option<String>,
    /// The machine that the client ran on.
    pub machine: MachineReport,
    /// Names of the URL classes, in the order of every step's classes.
    pub class_names: Vec<String>,
    /// One report for each load level, in order.
    pub steps: Vec<StepReport>,
    /// The limit of this machine, measured alongside the run, and the share of it that was reached.
    pub limit: Option<LimitReport>,
    /// The results of all requirements.
    pub thresholds: Vec<ThresholdOutcome>,
    /// Results of analyses by name (knee, overload, comparison, scalability fit), each of which is a separate document.
    #[serde(default)]
    pub findings: serde_json::Map<String, serde_json::Value>,
}

/// The machine's limit, measured alongside the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitReport {
    /// Name of the measurement in `flatout limits`.
    pub measure: String,
    /// Description of the measurement.
    pub words: String,
    /// Unit of the values: `1/s`, `bytes/s`.
    pub unit: String,
    /// The machine's limit, in `unit`.
    pub value: f64,
    /// Value of the run's best step, in `unit`.
    pub reached: f64,
    /// `reached / value`.
    pub share: f64,
}

/// The reason a document could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON, or fields are missing. Contains the parser's message.
    #[error("not a result of flatout bench: {}", visible(.0))]
    Malformed(String),
    /// The text is JSON of another schema. Contains the schema's name, or an empty string.
    #[error("not a result of flatout bench{}", other_schema(.0))]
    OtherSchema(String),
    /// The document was written by a newer version of the program. Contains its schema version.
    #[error("written by a newer flatout: its schema version is {0}, but this one reads only up to {SCHEMA_VERSION}")]
    Newer(u32),
}

/// Describes the name of another schema, for an error message.
fn other_schema(schema: &str) -> String {
    if schema.is_empty() { ": it has no schema".to_owned() } else { format!(" but {schema:?}") }
}

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
        // Documents written by this program normally contain no invisible characters, but an escape may stand for one.
        if !text.contains('\\') && !text.chars().any(|character| visible::is_unseen(character) && character != '\n') {
            return serde_json::from_str(text).map(Self::read).map_err(malformed);
        }
        let mut document: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(malformed)?;
        let command = document.remove("command");
        let mut document = serde_json::Value::Object(document);
        visible::make_visible(&mut document);
        if let (Some(fields), Some(command)) = (document.as_object_mut(), command) {
            fields.insert("command".to_owned(), command);
        }
        serde_json::from_value(document).map(Self::read).map_err(malformed)
    }

    /// Adds what a document of an earlier version does not have: which responses count as failed.
    fn read(mut self) -> Self {
        if !self.has_all_responses() {
            return self;
        }
        for step in &mut self.steps {
            let counts = &mut step.record.counts;
            let [.., client_errors, server_errors] = counts.status_classes;
            counts.unexpected_classes = [0, 0, 0, client_errors, server_errors];
            step.requests.failed = counts.failures_total();
            let (failed, never_begun) = (step.requests.failed, step.requests.never_begun);
            step.response = step.record.response.percentiles(failed.saturating_add(never_begun));
            step.service = step.record.service.percentiles(failed);
        }
        self
    }

    /// Returns whether rates and times are those of all responses, also of failed ones, because an earlier version
    /// wrote the document.
    pub const fn has_all_responses(&self) -> bool {
        self.schema_version < SCHEMA_VERSION_OF_SUCCESSES
    }

    /// Encodes the document with indentation.
    pub fn encode(&self) -> Result<String, ReadError> {
        serde_json::to_string_pretty(self).map_err(|error| ReadError::Malformed(error.to_string()))
    }

    /// Returns whether all figures of all steps are valid and everything requested was measured.
    pub fn is_valid(&self) -> bool {
        self.steps.iter().all(|step| step.invalid.is_empty())
    }

    /// Returns whether everything requested was measured, whether or not the figures are valid.
    pub fn is_whole(&self) -> bool {
        !self.steps.iter().flat_map(|step| &step.invalid).any(|invalid| invalid.reason.is_of_a_part())
    }

    /// Returns whether at least one figure of any step is valid.
    pub fn has_sound(&self) -> bool {
        self.steps.iter().any(StepReport::has_sound)
    }

    /// Evaluates requirements on every step, and moves permitted failures from `failing` to the notes.
    pub fn require(&mut self, thresholds: &[Threshold]) {
        for step in &mut self.steps {
            self.thresholds.extend(thresholds.iter().map(|threshold| step.judge_among(threshold, thresholds)));
            step.allow(thresholds);
        }
    }
}

#[cfg(test)]
mod tests;
