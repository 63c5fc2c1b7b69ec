//! Configuration errors that can be detected only on the machine where the server runs.

use flatout_config::model::Place;

/// A reason why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}; {advice}", show_place(place))]
pub struct SpecError {
    /// Place of the problem in the configuration.
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

/// Formats a place as `file:line:column`, or as `the command line` for flags.
pub(crate) fn show_place(place: &Place) -> String {
    if place.line == 0 {
        return "the command line".to_owned();
    }
    format!("{}:{}:{}", place.file, place.line, place.column)
}
