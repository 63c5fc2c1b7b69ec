//! Errors in lines of a list or a log: a table of kinds, and a collection of errors with line numbers.

use std::fmt;

flatout_reason::reasons! {
    /// The kind of error in a line.
    pub enum FaultKind { name, text, }
    LineTooLong, "line-too-long", "the line is too long";
    NotText, "not-text", "the line is not UTF-8, or contains a control character";
    NoAddress, "no-address", "there is no URL: write a path that begins with /, or a complete http:// or https:// URL";
    SchemeUnknown, "scheme-unknown", "the scheme is neither http nor https";
    HostInvalid, "host-invalid", "the host is missing or contains an invalid character";
    PortInvalid, "port-invalid", "the port is not a number from 1 to 65535";
    TargetInvalid, "target-invalid", "the path contains characters that must be percent-encoded";
    TargetTooLong, "target-too-long", "the path is longer than 8,192 bytes";
    WeightInvalid, "weight-invalid", "the weight is not a whole number up to 1,000,000,000,000";
    TooManyWords, "too-many-words", "the line has more than a URL and a weight; put other information after #";
    MethodInvalid, "method-invalid", "CONNECT is for proxies; a bench cannot send it";
    ContentInvalid, "content-invalid", "after @, write the name of the file with the content of the request";
    SizeInvalid, "size-invalid", "the size after # is too large";
    DigestInvalid, "digest-invalid", "a digest must be #sha256= and 64 hexadecimal digits";
    WebStone1, "webstone-1", "this is a list of WebStone 1.x, which counts pages and groups files; write a URL and a weight on each line";
    TooMany, "too-many", "the workload has too many lines or URL bytes; the rest was not read";
    Empty, "empty", "it contains no requests";
    LogForm, "log-form", "the line has an unknown format; use common, combined or flatout's JSON";
    LogTime, "log-time", "the time is missing or has an unknown format";
    LogField, "log-field", "the line has a missing field: time, method, target and status are required";
    LogStatus, "log-status", "the status is not a number from 0 to 999";
    LogBytes, "log-bytes", "the size of the body is not a number";
}

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFault {
    /// Line number from 1; 0 if the error concerns the whole text.
    pub line: u64,
    /// The kind of error.
    pub kind: FaultKind,
    /// Beginning of the line, with unprintable bytes escaped.
    pub excerpt: String,
}

impl fmt::Display for LineFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(formatter, "line {}: ", self.line)?;
        }
        formatter.write_str(self.kind.text())?;
        if self.excerpt.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.excerpt) }
    }
}

/// The errors in a list or a log: the first few, and their total number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The first errors in order, at most [`FAULTS_KEPT`].
    pub first: Vec<LineFault>,
    /// Total number of errors.
    pub count: u64,
}

/// Maximum number of stored errors. Further errors are only counted.
pub const FAULTS_KEPT: usize = 20;

/// Maximum length of an excerpt from a line, in bytes.
const EXCERPT_BYTES: usize = 60;

impl Faults {
    /// Adds an error in a line.
    pub fn add(&mut self, line: u64, kind: FaultKind, text: &[u8]) {
        self.count += 1;
        if self.first.len() < FAULTS_KEPT {
            let cut = if text.len() > EXCERPT_BYTES { "…" } else { "" };
            let excerpt = format!("{}{cut}", text[..text.len().min(EXCERPT_BYTES)].escape_ascii());
            self.first.push(LineFault { line, kind, excerpt });
        }
    }

    /// Creates a single error that concerns the whole text.
    pub fn of_text(kind: FaultKind) -> Self {
        let mut faults = Self::default();
        faults.add(0, kind, b"");
        faults
    }

    /// Returns whether there are no errors.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.first.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{fault}")?;
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            1 => write!(formatter, "\nand one more line"),
            more => write!(formatter, "\nand {more} more lines"),
        }
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::{FAULTS_KEPT, FaultKind, Faults};
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_texts_are_there() {
        let names: HashSet<_> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), FaultKind::ALL.len());
        assert!(FaultKind::ALL.iter().all(|kind| !kind.text().is_empty()));
    }

    #[test]
    fn faults_are_bounded_and_counted() {
        let mut faults = Faults::default();
        for line in 1..=50 {
            faults.add(line, FaultKind::WeightInvalid, &[b'\x1b'; 1000]);
        }
        assert_eq!((faults.first.len(), faults.count), (FAULTS_KEPT, 50));
        let text = faults.to_string();
        assert!(text.starts_with("line 1: the weight is not a whole number"), "{text}");
        assert!(text.ends_with("\nand 30 more lines"), "{text}");
        assert!(!text.contains('\x1b') && text.len() < FAULTS_KEPT * 400, "{text}");
        assert_eq!(Faults::of_text(FaultKind::Empty).to_string(), "it contains no requests");
    }
}
