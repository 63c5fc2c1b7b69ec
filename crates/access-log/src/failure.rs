//! Failures to open a log.

use flatout_http::access::LogDestination;
use std::io;

/// A log that could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the access log {target}: {error}")]
pub struct OpenError {
    /// The log's target.
    pub target: LogDestination,
    /// The reason.
    pub error: io::Error,
}
