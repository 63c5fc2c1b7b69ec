//! Retry decision (RFC 9110 §9.2.2).

use flatout_upstream::origin::request::is_idempotent;

/// Progress of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptProgress {
    /// The origin certainly has not started to process it: no connection was established, or it sent REFUSED_STREAM.
    NotSent,
    /// The origin may have started; no byte of a response arrived.
    Sent,
    /// A response began.
    Answering,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The method.
    pub method: &'a str,
    /// True if any content was read from the client, so that it cannot be sent again.
    pub content_taken: bool,
    /// Its progress.
    pub progress: AttemptProgress,
    /// Number of attempts, including this one.
    pub attempts: u8,
}

/// Retry decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retry.
    Again,
    /// Do not: a response began.
    AnswerBegun,
    /// Do not: some content was read from the client.
    ContentTaken,
    /// Do not: the method is not idempotent, and the origin may have processed the request.
    NotIdempotent,
    /// Do not: the retries are exhausted.
    Spent,
}

impl Retry {
    /// Stable name for logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Again => "retry_again",
            Self::AnswerBegun => "retry_answer_begun",
            Self::ContentTaken => "retry_content_taken",
            Self::NotIdempotent => "retry_not_idempotent",
            Self::Spent => "retry_spent",
        }
    }
}

/// Decides whether to retry. `retries` is the maximum number of retries.
pub fn decide(attempt: &Attempt<'_>, retries: u8) -> Retry {
    match attempt.progress {
        AttemptProgress::Answering => Retry::AnswerBegun,
        _ if attempt.content_taken => Retry::ContentTaken,
        AttemptProgress::Sent if !is_idempotent(attempt.method) => Retry::NotIdempotent,
        _ if attempt.attempts > retries => Retry::Spent,
        AttemptProgress::NotSent | AttemptProgress::Sent => Retry::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::{Attempt, AttemptProgress, Retry, decide};

    #[test]
    fn which_is_tried_again() {
        for (method, content_taken, progress, attempts, expected) in [
            ("GET", false, AttemptProgress::NotSent, 1, Retry::Again),
            ("GET", false, AttemptProgress::Sent, 1, Retry::Again),
            ("GET", false, AttemptProgress::Sent, 2, Retry::Again),
            ("GET", false, AttemptProgress::Sent, 3, Retry::Spent),
            ("GET", false, AttemptProgress::Answering, 1, Retry::AnswerBegun),
            ("POST", false, AttemptProgress::NotSent, 1, Retry::Again),
            ("POST", false, AttemptProgress::Sent, 1, Retry::NotIdempotent),
            ("POST", true, AttemptProgress::NotSent, 1, Retry::ContentTaken),
            ("PUT", false, AttemptProgress::Sent, 1, Retry::Again),
            ("PUT", true, AttemptProgress::Sent, 1, Retry::ContentTaken),
            ("PATCH", false, AttemptProgress::Sent, 1, Retry::NotIdempotent),
            ("get", false, AttemptProgress::Sent, 1, Retry::NotIdempotent),
            ("BREW", false, AttemptProgress::Sent, 1, Retry::NotIdempotent),
            ("BREW", false, AttemptProgress::NotSent, 1, Retry::Again),
        ] {
            let attempt = Attempt { method, content_taken, progress, attempts };
            assert_eq!(decide(&attempt, 2), expected, "{attempt:?}");
        }
        let attempt = Attempt { method: "GET", content_taken: false, progress: AttemptProgress::NotSent, attempts: 1 };
        assert_eq!(decide(&attempt, 0), Retry::Spent);
    }
}
