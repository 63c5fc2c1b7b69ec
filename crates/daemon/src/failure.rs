//! Failures of the process: what happened, a suggested remedy, and the exit code.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::process::ExitCode;

/// Exit code for a failure at run time.
pub const EXIT_FAILED: u8 = 1;
/// Exit code for a command line or configuration that is invalid or cannot be satisfied.
pub const EXIT_USAGE: u8 = 2;
/// Exit code for a drain in which connections had to be closed before their requests were complete.
pub const EXIT_UNCLEAN: u8 = 3;

/// A message of one or more lines, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{text}")]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The message, without a line end after the last line.
    pub text: String,
    /// True if the message consists of diagnostics, each of which has its own `error:` prefix.
    pub diagnostics: bool,
}

impl Failure {
    /// Creates a failure for a command or configuration that cannot be satisfied, with exit code 2.
    pub fn usage(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string(), diagnostics: false }
    }

    /// Creates a failure at run time, with exit code 1.
    pub fn runtime(text: impl fmt::Display) -> Self {
        Self { code: EXIT_FAILED, text: text.to_string(), diagnostics: false }
    }

    /// Creates a failure for an invalid configuration from its diagnostics, with exit code 2.
    pub fn diagnostics(text: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, text: text.to_string().trim_end().to_owned(), diagnostics: true }
    }

    /// Truncates the message so that it fits in one message to the supervisor; see [`SENT_TEXT_BYTES_MAX`].
    pub(crate) fn shortened(self) -> Self {
        Self { text: shorten(self.text, SENT_TEXT_BYTES_MAX), ..self }
    }

    /// Prints the message, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        say(&if self.diagnostics { self.text.clone() } else { format!("error: {}", self.text) });
        ExitCode::from(self.code)
    }
}

/// Maximum size of a text that is sent to the supervisor, in bytes of JSON.
pub(crate) const SENT_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Truncates `lines` so that they fit in one message to the supervisor.
pub(crate) fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let mut bytes = 0;
    for line in &mut lines {
        *line = shorten(std::mem::take(line), SENT_TEXT_BYTES_MAX / 4);
        bytes += line.len();
    }
    while bytes > SENT_TEXT_BYTES_MAX / 2 {
        bytes -= lines.pop().map_or(bytes, |line| line.len());
    }
    lines
}

/// Truncates `text` to at most `bytes_max` bytes of JSON, and appends "…" if anything was removed.
pub(crate) fn shorten(mut text: String, bytes_max: usize) -> String {
    let mut bytes = 0;
    let cut = text.char_indices().find_map(|(at, character)| {
        bytes += match character {
            '"' | '\\' | '\n' => 2,
            // `\u0001`
            '\0'..='\u{1f}' => 6,
            _ => character.len_utf8(),
        };
        (bytes > bytes_max).then_some(at)
    });
    if let Some(at) = cut {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// Writes a line to standard error. Errors are ignored, for example if the stream is closed.
pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    // The line is written with one call, so that lines of different processes and threads are not interleaved.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{Failure, SENT_TEXT_BYTES_MAX, shorten};

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (text, bytes_max, expected) in [
            ("", 0, ""),
            ("abc", 3, "abc"),
            ("abc", 2, "ab…"),
            ("aäb", 2, "a…"),
            ("aäb", 3, "aä…"),
            ("a\nb", 2, "a…"),
            ("\u{1}b", 6, "\u{1}…"),
            ("\u{1}b", 5, "…"),
        ] {
            assert_eq!(shorten(text.to_owned(), bytes_max), expected, "{text:?} {bytes_max}");
        }
        for character in ["x", "ä", "\"", "\n", "\u{1}", "\u{7f}"] {
            let failure = Failure::runtime(character.repeat(100_000)).shortened();
            assert!(serde_json::to_string(&failure).unwrap().len() < SENT_TEXT_BYTES_MAX + 100, "{character:?}");
        }
    }
}
