//! The arithmetic behind a decision, for `flatout explain`.

use crate::stored::Stored;
use std::fmt;

/// How an answer's freshness comes about.
#[derive(Clone, Copy, Debug)]
pub struct Explanation<'a> {
    /// The answer.
    pub stored: &'a Stored,
    /// For which second.
    pub now_s: i64,
}

impl fmt::Display for Explanation<'_> {
    /// A line for each step, as in RFC 9111 §4.2: where the lifetime comes from, how the age is calculated, what is
    /// left, and what may be done when it is stale.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _ = formatter;
        unimplemented!()
    }
}
