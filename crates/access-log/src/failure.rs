//! Failures to open a log.

use flatout_http::access::LogDestination;
use std::fmt;
use std::io;

/// A log that could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// The log's target.
    pub target: LogDestination,
    /// The reason.
    pub error: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot write the access log {}: {}", self.target, self.error)
    }
}

impl std::error::Error for OpenError {}
