//! How long, how many and how large: the bounds of everything that is asked of a database.

/// The bounds of what one holder of a [`Database`](crate::Database) asks of it. Every one is enforced, and reaching
/// it has a [`DataReason`](crate::DataReason) of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows of one answer at the most.
    pub rows_max: usize,
    /// Bytes of one answer at the most ([`Rows::bytes`](crate::Rows::bytes)).
    pub bytes_max: usize,
    /// Milliseconds that one statement may run, once it has begun.
    pub statement_max_ms: u64,
    /// Milliseconds that a statement waits for its turn at the most: in the queue, and for a lock that another process
    /// holds.
    pub wait_max_ms: u64,
    /// Milliseconds from `begin` to the end of a transaction: it holds the only writer meanwhile.
    pub transaction_max_ms: u64,
    /// Statements that wait for the readers, and that wait for the writer, at the most.
    pub queue_max: usize,
}

impl Default for Limits {
    /// 10,000 rows, 16 MiB, 5 s a statement, 30 s of waiting, 5 s a transaction, 4,096 in each queue. Guesses, meant
    /// to be far from what pages need and near enough to protect the rest.
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
