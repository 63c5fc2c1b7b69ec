//! Database errors: one table defines the name for pages, logs and counters, and the description.

use std::error::Error;
use std::fmt;

flatout_reason::reasons! {
    /// Kind of database error.
    pub enum DataReason { name, text, }
    SqlInvalid, "db_sql_invalid", "The statement is not SQL that this database understands.";
    SqlEmpty, "db_sql_empty", "The text holds no statement.";
    SqlMultiple, "db_sql_multiple", "The text holds more than one statement: give them one by one, or as a transaction.";
    SqlForbidden, "db_sql_forbidden", "The statement does what a page may not: ATTACH, DETACH, PRAGMA, VACUUM, BEGIN, COMMIT, ROLLBACK, SAVEPOINT, load_extension, fts3_tokenizer or a temporary table.";
    SqlTooLong, "db_sql_too_long", "The statement's text is too long.";
    ParametersMismatch, "db_parameters_mismatch", "The parameters given are not those that the statement has.";
    ConstraintUnique, "db_constraint_unique", "The row would be a second with a value that must be unique.";
    ConstraintForeignKey, "db_constraint_foreign_key", "The row would refer to one that does not exist, or is referred to.";
    ConstraintNotNull, "db_constraint_not_null", "The row would lack a value that it must have.";
    ConstraintCheck, "db_constraint_check", "The row does not satisfy a CHECK of its table.";
    ConstraintOther, "db_constraint_other", "The row violates another rule of its table, or a trigger refused it.";
    ValueType, "db_value_type", "A value is of a type that does not fit its place.";
    ValueTooBig, "db_value_too_big", "A text, a blob or a row is larger than this database allows.";
    RowsMax, "db_rows_max", "The answer has more rows than are allowed: ask for a part of them with LIMIT, and for the next part with a WHERE that begins behind the last row.";
    BytesMax, "db_bytes_max", "The answer has more bytes than are allowed: ask for fewer rows or columns, or for a part of a value with substr.";
    StatementTimeout, "db_statement_timeout", "The statement ran for longer than is allowed, and was stopped without effect.";
    QueueFull, "db_queue_full", "Too many statements wait for the database already.";
    QueueTimeout, "db_queue_timeout", "The statement waited for its turn for longer than is allowed, and was not begun.";
    LockTimeout, "db_lock_timeout", "Another process held the database locked for longer than is allowed.";
    TransactionTimeout, "db_transaction_timeout", "The transaction took longer than is allowed, and was rolled back.";
    TransactionEnded, "db_transaction_ended", "The transaction has ended already: it was rolled back by what went wrong in it.";
    FileMissing, "db_file_missing", "The database's folder does not exist: make it, or name another.";
    FileForbidden, "db_file_forbidden", "The database's file or folder may not be opened: let this process's user read and write both.";
    FileReadOnly, "db_file_read_only", "The database cannot be written: its file, its folder or its file system is read-only for this process.";
    FileNotDatabase, "db_file_not_database", "The file is not a SQLite database.";
    FileCorrupt, "db_file_corrupt", "The database file is damaged: restore it from a backup.";
    DiskFull, "db_disk_full", "The disk is full.";
    DiskFailed, "db_disk_failed", "The operating system could not read or write the database.";
    MemoryFull, "db_memory_full", "There was not enough memory.";
    MigrationName, "db_migration_name", "A migration's file name is not a number, an underscore, a name and .sql, as in 001_start.sql.";
    MigrationUnreadable, "db_migration_unreadable", "The folder of migrations, or a file in it, could not be read.";
    MigrationChanged, "db_migration_changed", "A migration that was applied has another text now: put the old text back, and write what is to change as a new migration.";
    MigrationMissing, "db_migration_missing", "A migration that was applied is no longer in the folder: put its file back.";
    MigrationOrder, "db_migration_order", "A new migration comes before one that was applied, or two have one number: give it the next free number.";
    MigrationFailed, "db_migration_failed", "A migration failed and left nothing behind; those before it are applied.";
    Stopped, "db_stopped", "The database is being closed.";
    Failed, "db_failed", "SQLite failed for a reason that has no name here.";
}

/// Database error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    /// Its kind.
    pub reason: DataReason,
    /// Details, if known: SQLite's message, a file name. Not for visitors of a site.
    pub detail: String,
}

impl DataError {
    /// An error with details.
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
