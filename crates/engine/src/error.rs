//! Configuration errors that are detectable only on the machine that runs it.

use flatout_config::model::Place;
use std::fmt;

/// One reason why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Its place in the configuration.
    pub place: Place,
    /// The problem.
    pub what: String,
    /// The suggested remedy.
    pub advice: String,
}

impl SpecError {
    pub(crate) fn new(place: &Place, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: place.clone(), what: what.into(), advice: advice.into() }
    }
}

/// `file:line:column`, or `the command line` for flags.
pub(crate) fn show_place(place: &Place) -> String {
    if place.line == 0 {
        return "the command line".to_owned();
    }
    format!("{}:{}:{}", place.file, place.line, place.column)
}

impl fmt::Display for SpecError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}; {}", show_place(&self.place), self.what, self.advice)
    }
}

impl std::error::Error for SpecError {}
