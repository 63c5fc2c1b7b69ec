//! What a run must meet: `p99<20ms`, `errors<0.1%`, `rate>=1000`.

use serde::{Deserialize, Serialize};

/// A requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Threshold {
    text: String,
}

/// Why a requirement cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    /// What was given.
    pub text: String,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for ThresholdError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}: {}", self.text, self.what)
    }
}

impl std::error::Error for ThresholdError {}

/// What came of a requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdOutcome {
    /// The requirement, as given.
    pub text: String,
    /// Step it was judged on, from 0.
    pub step: u16,
    /// The value found, in the requirement's own unit, for people: `17.3 ms`. Absent when there is no such value.
    pub found: Option<String>,
    /// Whether it was met. A value that is not there is a requirement missed.
    pub met: bool,
}

impl Threshold {
    /// Reads a requirement.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        Ok(Self { text: text.to_owned() })
    }

    /// Judges a finished record whose measured part lasted `elapsed_ns`.
    pub fn judge(&self, recorder: &crate::record::Recorder, elapsed_ns: u64, step: u16) -> ThresholdOutcome {
        let _ = (recorder, elapsed_ns);
        ThresholdOutcome { text: self.text.clone(), step, found: None, met: false }
    }

    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl TryFrom<String> for Threshold {
    type Error = ThresholdError;

    fn try_from(text: String) -> Result<Self, ThresholdError> {
        Self::parse(&text)
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> Self {
        threshold.text
    }
}
