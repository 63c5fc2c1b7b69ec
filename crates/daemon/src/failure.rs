//! Why the process could not start, or ended: what happened, what to do, and the exit code.

use std::fmt;
use std::process::ExitCode;

/// Something failed while running.
pub const EXIT_FAILED: u8 = 1;
/// The command line or the configuration makes no sense, or what it asks for cannot be.
pub const EXIT_USAGE: u8 = 2;
/// A drain had to cut connections.
pub const EXIT_UNCLEAN: u8 = 3;

/// What happened, in one or more lines for people, and the exit code it earns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The lines, without a line end behind the last.
    pub text: String,
    /// Whether the lines are diagnostics, which say themselves that they are errors.
    pub diagnostics: bool,
}

impl Failure {
    /// What is asked for cannot be: exit code 2.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string(), diagnostics: false }
    }

    /// It failed while running: exit code 1.
    pub fn runtime(text: impl fmt::Display) -> Self {
        Self { code: EXIT_FAILED, text: text.to_string(), diagnostics: false }
    }

    /// A configuration that makes no sense, as its diagnostics say: exit code 2.
    pub fn diagnostics(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string().trim_end().to_owned(), diagnostics: true }
    }

    /// Prints it and gives the exit code.
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

/// A line on standard error. Nobody to read it is no reason to stop.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    // One write, so that lines of several processes and threads do not mix.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}
