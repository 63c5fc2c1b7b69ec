//! Database errors: one table defines their names for pages, logs and counters, and their descriptions.

use std::error::Error;
use std::fmt;

flatout_reason::reasons! {
    /// The kind of a database error.
    pub enum DataReason { name, text, }
    SqlInvalid, "db_sql_invalid", "The statement is not valid SQL for this database.";
    SqlEmpty, "db_sql_empty", "The string contains no statement.";
    SqlMultiple, "db_sql_multiple", "The string contains more than one statement: run them one by one, or as a transaction.";
    SqlForbidden, "db_sql_forbidden", "The statement uses something that pages must not use: ATTACH, DETACH, PRAGMA, VACUUM, BEGIN, COMMIT, ROLLBACK, SAVEPOINT, load_extension, fts3_tokenizer or a temporary table.";
    SqlTooLong, "db_sql_too_long", "The statement is too long.";
    ParametersMismatch, "db_parameters_mismatch", "The passed parameters do not match the statement's parameters.";
    ConstraintUnique, "db_constraint_unique", "The row would duplicate a value that must be unique.";
    ConstraintForeignKey, "db_constraint_foreign_key", "The row would refer to a row that does not exist, or another row still refers to it.";
    ConstraintNotNull, "db_constraint_not_null", "The row lacks a required value.";
    ConstraintCheck, "db_constraint_check", "The row violates a CHECK of its table.";
    ConstraintOther, "db_constraint_other", "The row violates another constraint of its table, or a trigger rejected it.";
    ValueType, "db_value_type", "A value has the wrong type.";
    ValueTooBig, "db_value_too_big", "A string, a blob or a row is larger than the limit.";
    RowsMax, "db_rows_max", "The result has more rows than the limit: read a part with LIMIT, and the next part with a WHERE clause that starts after the last row.";
    BytesMax, "db_bytes_max", "The result has more bytes than the limit: read fewer rows or columns, or part of a value with substr.";
    StatementTimeout, "db_statement_timeout", "The statement exceeded its time limit and was stopped without effect.";
    QueueFull, "db_queue_full", "The queue of the database is full.";
    QueueTimeout, "db_queue_timeout", "The statement waited in the queue until the timeout expired, and did not run.";
    LockTimeout, "db_lock_timeout", "Another process kept the database locked until the timeout expired.";
    TransactionTimeout, "db_transaction_timeout", "The transaction exceeded its time limit and was rolled back.";
    TransactionEnded, "db_transaction_ended", "The transaction has already ended: an error in it rolled it back.";
    FileMissing, "db_file_missing", "The database's folder does not exist: create it, or use another folder.";
    FileForbidden, "db_file_forbidden", "flatout has no permission to open the database's file or folder: give its user permission to read and write both.";
    FileReadOnly, "db_file_read_only", "The database cannot be written: its file, its folder or its file system is read-only for this process.";
    FileNotDatabase, "db_file_not_database", "The file is not a SQLite database.";
    FileCorrupt, "db_file_corrupt", "The database file is damaged: restore it from a backup.";
    DiskFull, "db_disk_full", "The disk is full.";
    DiskFailed, "db_disk_failed", "The operating system could not read or write the database.";
    MemoryFull, "db_memory_full", "There was not enough memory.";
    MigrationName, "db_migration_name", "A migration's file name does not have the form 001_start.sql: a number, an underscore, a name and .sql.";
    MigrationUnreadable, "db_migration_unreadable", "The migrations folder, or a file in it, could not be read.";
    MigrationChanged, "db_migration_changed", "An applied migration has changed: restore its text, and make the change in a new migration.";
    MigrationMissing, "db_migration_missing", "An applied migration is missing from the folder: restore its file.";
    MigrationOrder, "db_migration_order", "A new migration precedes an applied one, or two migrations have the same number: give the new one the next free number.";
    MigrationFailed, "db_migration_failed", "A migration failed and had no effect; the migrations before it were applied.";
    Stopped, "db_stopped", "The database is being closed.";
    Failed, "db_failed", "SQLite failed for another reason.";
}

/// A database error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    /// The kind of the error.
    pub reason: DataReason,
    /// Details, if known, such as SQLite's message or a file name. Visitors of a site must not see them.
    pub detail: String,
}

impl DataError {
    /// Creates an error with details.
    pub(crate) fn new(reason: DataReason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

impl From<DataReason> for DataError {
    fn from(reason: DataReason) -> Self {
        Self { reason, detail: String::new() }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason.text())?;
        if self.detail.is_empty() { Ok(()) } else { write!(formatter, " ({})", self.detail) }
    }
}

impl Error for DataError {}

#[cfg(test)]
mod tests {
    use super::{DataError, DataReason};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_sentences_end() {
        let names: HashSet<_> = DataReason::NAMES.iter().collect();
        assert_eq!(names.len(), DataReason::ALL.len());
        for (index, reason) in DataReason::ALL.iter().enumerate() {
            assert_eq!((*reason as usize, reason.name()), (index, DataReason::NAMES[index]));
            assert!(reason.text().ends_with('.'), "{}", reason.name());
        }
    }

    #[test]
    fn an_error_says_what_is_known() {
        assert_eq!(DataError::from(DataReason::DiskFull).to_string(), "The disk is full.");
        assert_eq!(DataError::new(DataReason::DiskFull, "x.db").to_string(), "The disk is full. (x.db)");
    }
}
