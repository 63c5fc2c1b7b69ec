//! Failures of the process: what happened, the suggested remedy, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// Exit code of a failure at run time.
pub const EXIT_FAILED: u8 = 1;
/// Exit code of an invalid command line or configuration, or of one that cannot be satisfied.
pub const EXIT_USAGE: u8 = 2;
/// Exit code of a drain that had to cut connections.
pub const EXIT_UNCLEAN: u8 = 3;

/// A message of one or more lines, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The lines, without a trailing line end.
    pub text: String,
    /// True if the lines are diagnostics, which have their own error prefix.
    pub diagnostics: bool,
}

impl Failure {
    /// An unsatisfiable request: exit code 2.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string(), diagnostics: false }
    }

    /// A failure at run time: exit code 1.
    pub fn runtime(text: impl fmt::Display) -> Self {
        Self { code: EXIT_FAILED, text: text.to_string(), diagnostics: false }
    }

    /// An invalid configuration, with its diagnostics: exit code 2.
    pub fn diagnostics(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string().trim_end().to_owned(), diagnostics: true }
    }

    /// Prints the message and returns the exit code.
    pub fn report(&self) -> ExitCode {
        say(&if self.diagnostics { self.text.clone() } else { format!("error: {}", self.text) });
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

/// Writes a line to standard error. A closed stream is ignored.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    // One write, so that lines of several processes and threads do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}
