//! Limits on statements and their results.

/// Limits for one handle of a [`Database`](crate::Database). All are enforced; each has a separate
/// [`DataReason`](crate::DataReason).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum rows of one result.
    pub rows_max: usize,
    /// Maximum bytes of one result ([`Rows::bytes`](crate::Rows::bytes)).
    pub bytes_max: usize,
    /// Maximum run time of one statement, in milliseconds.
    pub statement_max_ms: u64,
    /// Maximum wait of a statement before it starts, in milliseconds: in the queue, and for another process's lock.
    pub wait_max_ms: u64,
    /// Maximum time from `begin` to the end of a transaction, in milliseconds: it holds the only writer.
    pub transaction_max_ms: u64,
    /// Maximum queued statements, for the readers and for the writer each.
    pub queue_max: usize,
}

impl Default for Limits {
    /// 10,000 rows, 16 MiB, 5 s per statement, 30 s of waiting, 5 s per transaction, 4,096 in each queue. Guesses, far
    /// above the needs of pages but low enough to protect the server.
    fn default() -> Self {
        Self {
            rows_max: 10_000,
            bytes_max: 16 << 20,
            statement_max_ms: 5_000,
            wait_max_ms: 30_000,
            transaction_max_ms: 5_000,
            queue_max: 4_096,
        }
    }
}
