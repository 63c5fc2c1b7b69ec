//! A database file: opened once a process, asked by every worker.

use crate::limits::Limits;
use crate::pending::Pending;
use crate::reason::DataError;
use crate::rows::Rows;
use crate::transaction::Transaction;
use crate::value::{Parameters, Statement};
use std::path::Path;

/// A database file, as one holder asks it: cheap to clone, shared among threads. All that hold the same file share
/// its one writer and its readers; the file is closed when the last lets go.
#[derive(Clone, Debug)]
pub struct Database {}

/// What happened to a database since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Statements that readers ran.
    pub reads: u64,
    /// Statements, and transactions given whole, that the writer ran.
    pub writes: u64,
    /// Commits of them: several writes that wait at once share one.
    pub commits: u64,
    /// Transactions that were begun and led by a page.
    pub transactions: u64,
    /// Statements that failed, for whatever reason.
    pub failed: u64,
}

impl Database {
    /// Opens the file, or makes it when its folder exists, with at least `readers` threads that read. Blocks for as
    /// long as the disk takes, and at most `limits.wait_max_ms` for another process's lock: for a server's start, not
    /// for its event loop. A file that is open in this process already is not opened again.
    pub fn open(path: &Path, readers: usize, limits: Limits) -> Result<Self, DataError> {
        let _ = (path, readers, limits);
        unimplemented!()
    }

    /// Applies those files `NNN_name.sql` of a folder that have not been, in order, each in a transaction of its own.
    /// Returns the names of those applied now. Blocks, as `open` does.
    pub fn migrate(&self, folder: &Path) -> Result<Vec<String>, DataError> {
        let _ = folder;
        unimplemented!()
    }

    /// Runs a statement that reads, on a reader; one that turns out to write goes to the writer, at the price of a
    /// detour.
    pub fn query(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let _ = (sql, parameters);
        unimplemented!()
    }

    /// Runs a statement that writes, on the writer, in a transaction of its own as far as anybody can tell. It is
    /// committed when the answer is there.
    pub fn execute(&self, sql: &str, parameters: Parameters) -> Pending<Rows> {
        let _ = (sql, parameters);
        unimplemented!()
    }

    /// Runs statements in one transaction: all of them, or, as soon as one fails, none. The answer has one [`Rows`]
    /// for each.
    pub fn transaction(&self, statements: Vec<Statement>) -> Pending<Vec<Rows>> {
        let _ = statements;
        unimplemented!()
    }

    /// Begins a transaction, whose statements may depend on what those before them said. It holds the only writer
    /// until it ends: for a few statements, not for a conversation.
    pub fn begin(&self) -> Pending<Transaction> {
        unimplemented!()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        unimplemented!()
    }
}
