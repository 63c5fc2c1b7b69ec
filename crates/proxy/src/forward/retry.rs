//! Which request may be tried again (RFC 9110 §9.2.2).

use flatout_net::origin::request::is_idempotent;

/// How far an attempt came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The origin certainly has not begun to work on it: no connection was made, or it said so (REFUSED_STREAM).
    NotSent,
    /// It may have; no byte of an answer came.
    Sent,
    /// An answer began.
    Answering,
}

/// What is known of a request whose attempt failed.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The method.
    pub method: &'a str,
    /// Whether any of its content was taken from the client: it cannot be had again.
    pub content_taken: bool,
    /// How far it came.
    pub progress: Progress,
    /// Attempts so far, this one included.
    pub attempts: u8,
}

/// Whether a request is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is.
    Again,
    /// It is not: an answer began.
    AnswerBegun,
    /// It is not: some of its content was taken.
    ContentTaken,
    /// It is not: doing it twice may not be the same as once, and it may have been done.
    NotIdempotent,
    /// It is not: it was tried often enough.
    Spent,
}

impl Retry {
    /// The stable name, for the log.
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

/// Decides. `retries` is how often a request is tried again at the most.
pub fn decide(attempt: &Attempt<'_>, retries: u8) -> Retry {
    match attempt.progress {
        Progress::Answering => Retry::AnswerBegun,
        _ if attempt.content_taken => Retry::ContentTaken,
        Progress::Sent if !is_idempotent(attempt.method) => Retry::NotIdempotent,
        _ if attempt.attempts > retries => Retry::Spent,
        Progress::NotSent | Progress::Sent => Retry::Again,
    }
}

#[cfg(test)]
mod tests {
    use super::{Attempt, Progress, Retry, decide};

    #[test]
    fn which_is_tried_again() {
        for (method, content_taken, progress, attempts, expected) in [
            ("GET", false, Progress::NotSent, 1, Retry::Again),
            ("GET", false, Progress::Sent, 1, Retry::Again),
            ("GET", false, Progress::Sent, 2, Retry::Again),
            ("GET", false, Progress::Sent, 3, Retry::Spent),
            ("GET", false, Progress::Answering, 1, Retry::AnswerBegun),
            ("POST", false, Progress::NotSent, 1, Retry::Again),
            ("POST", false, Progress::Sent, 1, Retry::NotIdempotent),
            ("POST", true, Progress::NotSent, 1, Retry::ContentTaken),
            ("PUT", false, Progress::Sent, 1, Retry::Again),
            ("PUT", true, Progress::Sent, 1, Retry::ContentTaken),
            ("PATCH", false, Progress::Sent, 1, Retry::NotIdempotent),
            ("get", false, Progress::Sent, 1, Retry::NotIdempotent),
            ("BREW", false, Progress::Sent, 1, Retry::NotIdempotent),
            ("BREW", false, Progress::NotSent, 1, Retry::Again),
        ] {
            let attempt = Attempt { method, content_taken, progress, attempts };
            assert_eq!(decide(&attempt, 2), expected, "{attempt:?}");
        }
        let attempt = Attempt { method: "GET", content_taken: false, progress: Progress::NotSent, attempts: 1 };
        assert_eq!(decide(&attempt, 0), Retry::Spent);
    }
}
