//! What is wrong with a configuration that only a look at the machine can tell.

use flatout_config::model::Place;
use std::fmt;

/// One reason why a configuration cannot be put to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Where it was asked for.
    pub place: Place,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl SpecError {
    pub(crate) fn new(place: &Place, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { place: place.clone(), what: what.into(), advice: advice.into() }
    }
}

/// `file:line:column`, or `the command line` for what came from flags.
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
