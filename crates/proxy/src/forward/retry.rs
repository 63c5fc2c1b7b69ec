//! Retry decision (RFC 9110 §9.2.2).

use flatout_http::request::is_idempotent;

/// How far a failed attempt had progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptProgress {
    /// The origin has certainly not started to process the request: no connection was established, or the origin sent
    /// REFUSED_STREAM.
    NotSent,
    /// The origin may have started to process the request, but no byte of a response arrived.
    Sent,
    /// Some of the response arrived.
    Answering,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Method of the request.
    pub method: &'a str,
    /// True if some of the request's content has been discarded after sending, so that it cannot be sent again.
    pub content_taken: bool,
    /// How far the attempt had progressed.
    pub progress: AttemptProgress,
    /// Number of attempts so far, including this one.
    pub attempts: u8,
}

/// The decision to retry a failed attempt, or the reason not to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retry the request.
    Again,
    /// Do not retry: a response has begun.
    AnswerBegun,
    /// Do not retry: some of the request's content has been discarded.
    ContentTaken,
    /// Do not retry: the method is not idempotent, and the origin may have processed the request.
    NotIdempotent,
    /// Do not retry: the maximum number of retries is reached.
    Spent,
}

impl Retry {
    /// Returns the stable name for logs.
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

/// Until when origins may respond to a request, in milliseconds: all attempts together share one head timeout, not one
/// per origin, since the client has waited since the first one at `first_ms`. Until its content has arrived from the
/// client, at `content_ms`, the origins wait for the client, so none of them is late; `None` while it is arriving.
pub fn head_deadline_ms(head_timeout_ms: u64, first_ms: u64, content_ms: Option<u64>) -> Option<u64> {
    Some(first_ms.max(content_ms?).saturating_add(head_timeout_ms))
}

#[cfg(test)]
mod tests {
    use super::{Attempt, AttemptProgress, Retry, decide, head_deadline_ms};

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

    #[test]
    fn the_time_in_which_a_client_sends_content_is_not_the_origins() {
        // Without content, and with content that came with the request.
        assert_eq!(head_deadline_ms(30, 1_000, Some(0)), Some(1_030));
        assert_eq!(head_deadline_ms(30, 1_000, Some(990)), Some(1_030));
        assert_eq!(head_deadline_ms(30, 1_000, Some(5_000)), Some(5_030));
        assert_eq!(head_deadline_ms(30, 1_000, None), None);
        assert_eq!(head_deadline_ms(u64::MAX, 1_000, Some(0)), Some(u64::MAX));
    }
}
