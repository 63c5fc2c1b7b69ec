//! Limits on statements and their results.

flatout_reason::defaults! {
    /// Limits for one handle of a [`Database`](crate::Database). All of them are enforced, and exceeding each has a
    /// separate [`DataReason`](crate::DataReason). The defaults are estimates, far above what pages need but low enough
    /// to protect the server.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Maximum number of rows in a result.
        pub rows_max: usize = 10_000,
        /// Maximum size of a result, in bytes ([`Rows::bytes`](crate::Rows::bytes)).
        pub bytes_max: usize = 16 << 20,
        /// Maximum run time of a statement, in milliseconds.
        pub statement_max_ms: u64 = 5_000,
        /// Maximum time that a statement waits before it starts, in milliseconds: in the queue, and for another
        /// process's lock.
        pub wait_max_ms: u64 = 30_000,
        /// Maximum time from `begin` to the end of a transaction, in milliseconds. During this time, the transaction
        /// occupies the only writer.
        pub transaction_max_ms: u64 = 5_000,
        /// Maximum number of queued statements, separately for the readers and for the writer.
        pub queue_max: usize = 4_096,
    }
}
