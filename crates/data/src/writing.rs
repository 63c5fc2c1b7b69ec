//! The transaction commands of the writer, which are prepared once.

use crate::connection::{Session, Trust};
use crate::reason::DataError;
use rusqlite::Statement;
use std::cell::{Cell, RefCell};

/// A connection that writes, with prepared commands that statements of pages cannot use.
pub(crate) struct Writing<'a> {
    pub(crate) session: &'a Session,
    statements: [RefCell<Statement<'a>>; Command::ALL.len()],
    schema_version: RefCell<Statement<'a>>,
    /// A schema version, and whether writes under this version may share a commit.
    shares: Cell<Option<(i64, bool)>>,
}

/// A transaction command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Begins a transaction with the write lock, because getting the lock later could fail.
    Begin,
    /// Ends the transaction and keeps its changes.
    Commit,
    /// Rolls back the transaction.
    Rollback,
    /// Begins a savepoint.
    Part,
    /// Rolls back to the savepoint.
    UndoPart,
    /// Releases the savepoint.
    EndPart,
}

impl Command {
    const ALL: [Self; 6] = [Self::Begin, Self::Commit, Self::Rollback, Self::Part, Self::UndoPart, Self::EndPart];

    const fn sql(self) -> &'static str {
        match self {
            Self::Begin => "BEGIN IMMEDIATE",
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
            Self::Part => "SAVEPOINT part",
            Self::UndoPart => "ROLLBACK TO part",
            Self::EndPart => "RELEASE part",
        }
    }
}

impl<'a> Writing<'a> {
    /// Prepares the commands.
    pub(crate) fn new(session: &'a Session) -> Result<Self, DataError> {
        let prepare = |sql: &str| {
            // `trusted` cannot be used because its closure cannot return borrows from the session.
            session.bounds.trust(Trust::Ours);
            let statement = session.connection.prepare(sql).map(RefCell::new);
            session.bounds.trust(Trust::Page);
            statement.map_err(|error| session.failure(&error))
        };
        let [begin, commit, rollback, part, undo_part, end_part] = Command::ALL.map(|command| prepare(command.sql()));
        let statements = [begin?, commit?, rollback?, part?, undo_part?, end_part?];
        let schema_version = prepare("PRAGMA main.schema_version")?;
        Ok(Self { session, statements, schema_version, shares: Cell::new(None) })
    }

    /// Runs a command.
    pub(crate) fn command(&self, command: Command) -> Result<(), DataError> {
        let mut statement = self.statements[command as usize].borrow_mut();
        let done = self.session.trusted(Trust::Ours, |_| statement.raw_query().next().map(drop));
        done.map_err(|error| self.session.failure(&error))
    }

    /// Ends the transaction that is open, if any, by rolling it back.
    pub(crate) fn undo(&self) {
        if !self.is_over() {
            // A failed rollback still ends the transaction: SQLite discards the end of the log, not of the file.
            let _ = self.command(Command::Rollback);
        }
    }

    /// Returns whether no transaction is open. Some failures end a transaction silently.
    pub(crate) fn is_over(&self) -> bool {
        self.session.connection.is_autocommit()
    }

    /// Runs `work` in a savepoint, so that only the changes of `work` are undone if it fails.
    pub(crate) fn part<T>(&self, work: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
        self.command(Command::Part)?;
        let outcome = work();
        if self.is_over() {
            return outcome;
        }
        if outcome.is_err() {
            self.command(Command::UndoPart)?;
        }
        self.command(Command::EndPart)?;
        outcome
    }

    /// Returns whether several writes may share the open transaction. They may not if a foreign key is deferred until
    /// the commit: a row that one write lacks might come from another write, although each write alone would have
    /// failed.
    pub(crate) fn can_share(&self) -> bool {
        let Some(version) = self.number(&mut self.schema_version.borrow_mut()) else { return false };
        match self.shares.get() {
            Some((known, shares)) if known == version => shares,
            _ => {
                let deferred = "SELECT count(*) FROM main.sqlite_schema WHERE sql LIKE '%deferred%'";
                let Ok(mut statement) = self.session.connection.prepare(deferred) else { return false };
                let shares = self.number(&mut statement) == Some(0);
                self.shares.set(Some((version, shares)));
                shares
            }
        }
    }

    fn number(&self, statement: &mut Statement<'a>) -> Option<i64> {
        self.session.trusted(Trust::Ours, |_| {
            let mut rows = statement.raw_query();
            rows.next().ok().flatten().and_then(|row| row.get(0).ok())
        })
    }
}
