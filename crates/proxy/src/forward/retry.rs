//! Which request may be tried again (RFC 9110 §9.2.2).

/// How far an attempt came before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The origin certainly has not begun to work on it: no connection, or it said so (REFUSED_STREAM, GOAWAY).
    NotSent,
    /// It may have; no byte of a final answer came.
    Sent,
    /// The final answer began.
    Answering,
}

/// What is known of a request whose attempt failed.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The method.
    pub method: &'a str,
    /// Whether any of its content was taken from the client; it cannot be had again.
    pub content_taken: bool,
    /// How far it came.
    pub progress: Progress,
    /// Attempts so far, this one included.
    pub attempts: u8,
}

/// Whether it is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Yes.
    Again,
    /// No: the answer began.
    AnswerBegun,
    /// No: content was taken.
    ContentTaken,
    /// No: doing it twice may not be the same as once.
    NotIdempotent,
    /// No: tried often enough.
    Spent,
}

/// Decides. `retries` as in the settings.
pub fn decide(_attempt: &Attempt<'_>, _retries: u8) -> Retry {
    unimplemented!()
}

/// Whether doing it twice is as good as once (RFC 9110 §9.2.2).
pub fn is_idempotent(_method: &str) -> bool {
    unimplemented!()
}
