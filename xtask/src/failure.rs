//! One error type for all tasks: a sentence for a person, with what was being done in front of the cause.

use std::fmt;

/// Why a task stopped.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// What every task returns.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Puts what was being done in front of an error that does not say it.
pub(crate) trait Context<T> {
    /// `what` completes the sentence "cannot …".
    fn cannot(self, what: &str) -> Outcome<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn cannot(self, what: &str) -> Outcome<T> {
        self.map_err(|cause| Failure(format!("cannot {what}: {cause}")))
    }
}

impl<T> Context<T> for Option<T> {
    fn cannot(self, what: &str) -> Outcome<T> {
        self.ok_or_else(|| Failure(format!("cannot {what}")))
    }
}
