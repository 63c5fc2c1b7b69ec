//! What the writer says itself: the bounds of transactions, prepared once.

use crate::connection::{Session, Trust};
use crate::reason::DataError;
use rusqlite::Statement;
use std::cell::{Cell, RefCell};

/// A connection that writes, and its own statements, which no page's text can reach.
pub(crate) struct Writing<'a> {
    pub(crate) session: &'a Session,
    statements: [RefCell<Statement<'a>>; Command::ALL.len()],
    schema_version: RefCell<Statement<'a>>,
    /// The schema's version, and whether writes under it may share a commit.
    shares: Cell<Option<(i64, bool)>>,
}

/// A bound of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The transaction begins, with the lock that writing needs: later it might be had no more.
    Begin,
    /// It becomes lasting.
    Commit,
    /// It is undone.
    Rollback,
    /// A part of it begins.
    Part,
    /// The part is undone.
    UndoPart,
    /// The part ends.
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
    /// Prepares what there is to say.
    pub(crate) fn new(session: &'a Session) -> Result<Self, DataError> {
        let prepare = |sql: &str| {
            // Not `trusted`, whose closure cannot return what borrows from the session.
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

    /// Says it.
    pub(crate) fn command(&self, command: Command) -> Result<(), DataError> {
        let mut statement = self.statements[command as usize].borrow_mut();
        let done = self.session.trusted(Trust::Ours, |_| statement.raw_query().next().map(drop));
        done.map_err(|error| self.session.failure(&error))
    }

    /// Leaves no transaction open, whatever went wrong in it.
    pub(crate) fn undo(&self) {
        if !self.is_over() {
            // A rollback that fails has rolled back: SQLite gives up the log's tail, not the file.
            let _ = self.command(Command::Rollback);
        }
    }

    /// True: no transaction is open. Some failures end one without a word.
    pub(crate) fn is_over(&self) -> bool {
        self.session.connection.is_autocommit()
    }

    /// Runs `work` as a part of the transaction, so that its failure undoes it and nothing else.
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

    /// True: several writes may share the transaction that is open. Not where a foreign key is checked only at the
    /// commit: one's missing row might be another's, though each of them alone would have failed.
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
