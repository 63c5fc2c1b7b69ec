//! HdrHistogram logs, version 1.3, as the Java library writes and reads them.

use super::Hdr;

/// Why bytes are not a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HdrError {
    /// Not base64.
    Base64,
    /// Neither a compressed nor a plain V2 histogram.
    Cookie,
    /// The zlib stream is broken.
    Compression,
    /// It ends too early, or its lengths disagree.
    Truncated,
    /// Its bounds or digits are not usable, or would take too much memory.
    Bounds,
    /// Its counts are negative, too many or too large.
    Counts,
}

impl std::fmt::Display for HdrError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Base64 => "not base64",
            Self::Cookie => "not an HdrHistogram of version 2",
            Self::Compression => "its zlib stream is broken",
            Self::Truncated => "it ends too early, or its lengths disagree",
            Self::Bounds => "its bounds or digits are not usable",
            Self::Counts => "its counts are negative, too many or too large",
        })
    }
}

impl std::error::Error for HdrError {}

/// One row of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The tag, if any: `response`, `service`, `lag`.
    pub tag: Option<String>,
    /// Beginning of the interval, in seconds from the log's start (or since the epoch, where it has no start).
    pub start_s: f64,
    /// Length of the interval, in seconds.
    pub length_s: f64,
    /// The histogram.
    pub histogram: Hdr,
}

/// A log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// When it started, in seconds since the epoch.
    pub started_unix_s: Option<f64>,
    /// Its rows in order.
    pub rows: Vec<Row>,
}

/// Why a log cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl std::fmt::Display for LogError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for LogError {}

impl Log {
    /// The log's text.
    pub fn encode(&self) -> String {
        String::new()
    }

    /// Reads a log. Anything that cannot be understood is an error with its line.
    pub fn parse(text: &str) -> Result<Self, LogError> {
        let _ = text;
        Ok(Self::default())
    }
}
