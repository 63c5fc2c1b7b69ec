//! Migrations: a folder of numbered schema changes, each of which is applied once.
//!
//! Files are named `NNN_name.sql`, with any number of digits and each number once. Other names that end in `.sql` are
//! errors, and other files are ignored. Each migration runs in a transaction together with the record that it was
//! applied, so after a crash it is either applied or not started. Foreign keys are not enforced during a migration, as
//! SQLite's procedure for rebuilding a table requires (<https://www.sqlite.org/lang_altertable.html#otheralter>), but
//! all of them are checked before the commit.

use crate::connection::{Session, Trust, failure};
use crate::reason::{DataError, DataReason};
use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use rusqlite::Connection;
use rusqlite::fallible_iterator::FallibleIterator as _;
use std::collections::BTreeMap;
use std::path::Path;

/// The table of applied migrations.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS flatout_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT";

/// Maximum size of a migration, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A migration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The number at the beginning of the file name.
    pub number: u32,
    /// The file name.
    pub name: String,
    /// The SQL statements.
    pub sql: String,
}

impl Migration {
    /// The SHA-256 digest of the SQL text, in hexadecimal.
    pub fn digest(&self) -> String {
        HEXLOWER.encode(digest::digest(&digest::SHA256, self.sql.as_bytes()).as_ref())
    }
}

/// Reads the migrations in a folder. Returns them in the order of their numbers.
pub fn read_folder(folder: &Path) -> Result<Vec<Migration>, DataError> {
    let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
        DataError::new(DataReason::MigrationUnreadable, format!("{}: {error}", path.display()))
    };
    let mut found = BTreeMap::<u32, Migration>::new();
    for entry in std::fs::read_dir(folder).map_err(|error| unreadable(folder, &error))? {
        let path = entry.map_err(|error| unreadable(folder, &error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_sql = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("sql"));
        if !is_sql || name.starts_with('.') {
            continue;
        }
        let number = number(&name).ok_or_else(|| DataError::new(DataReason::MigrationName, name.clone()))?;
        let size = std::fs::metadata(&path).map_err(|error| unreadable(&path, &error))?.len();
        if size > FILE_BYTES_MAX {
            return Err(unreadable(&path, &format!("more than {FILE_BYTES_MAX} bytes")));
        }
        let sql = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        if let Some(other) = found.insert(number, Migration { number, name: name.clone(), sql }) {
            return Err(DataError::new(DataReason::MigrationOrder, format!("{} and {name}", other.name)));
        }
    }
    Ok(found.into_values().collect())
}

/// Parses the number in a file name `NNN_name.sql`.
fn number(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".sql")?;
    let (digits, rest) = stem.split_once('_')?;
    if rest.is_empty() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Applies pending migrations. Returns their names.
pub(crate) fn apply(session: &Session, folder: &Path) -> Result<Vec<String>, DataError> {
    let migrations = read_folder(folder)?;
    session.command("PRAGMA foreign_keys = OFF")?;
    session.allow_long_texts(true)?;
    let applied = apply_all(session, &migrations);
    if !session.connection.is_autocommit() {
        let _ = session.command("ROLLBACK");
    }
    session.allow_long_texts(false)?;
    session.command("PRAGMA foreign_keys = ON")?;
    applied
}

fn apply_all(session: &Session, migrations: &[Migration]) -> Result<Vec<String>, DataError> {
    let mut names = Vec::new();
    // Each round checks again while holding the lock, because another process may be migrating too.
    loop {
        session.command("BEGIN IMMEDIATE")?;
        session.command(TABLE)?;
        let applied = session.trusted(Trust::Ours, applied).map_err(|error| failure(&error))?;
        let Some(migration) = next(migrations, &applied)? else {
            return session.command("COMMIT").map(|()| names);
        };
        let failed = |error: DataError| {
            let reason = match error.reason {
                // The migration does not cause these errors.
                DataReason::DiskFull | DataReason::DiskFailed | DataReason::LockTimeout => error.reason,
                _ => DataReason::MigrationFailed,
            };
            DataError::new(reason, format!("{}: {}", migration.name, error.detail))
        };
        session.trusted(Trust::Migration, |connection| run(session, connection, &migration.sql)).map_err(failed)?;
        session.trusted(Trust::Ours, |connection| note(connection, migration)).map_err(failed)?;
        session.command("COMMIT").map_err(failed)?;
        names.push(migration.name.clone());
    }
}

/// Returns the names and digests of applied migrations, by number.
fn applied(connection: &Connection) -> rusqlite::Result<BTreeMap<u32, (String, String)>> {
    let mut statement = connection.prepare("SELECT number, name, digest FROM flatout_migrations")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    rows.collect()
}

/// Returns the first pending migration, or an error if the folder does not match the applied migrations.
fn next<'a>(
    migrations: &'a [Migration],
    applied: &BTreeMap<u32, (String, String)>,
) -> Result<Option<&'a Migration>, DataError> {
    for (number, (name, digest)) in applied {
        let Some(migration) = migrations.iter().find(|migration| migration.number == *number) else {
            return Err(DataError::new(DataReason::MigrationMissing, name.clone()));
        };
        if migration.digest() != *digest {
            return Err(DataError::new(DataReason::MigrationChanged, migration.name.clone()));
        }
    }
    let last = applied.last_key_value().map_or(0, |(number, _)| *number);
    match migrations.iter().find(|migration| !applied.contains_key(&migration.number)) {
        Some(migration) if !applied.is_empty() && migration.number < last => {
            let detail = format!("{} comes before {last}, which has been applied", migration.name);
            Err(DataError::new(DataReason::MigrationOrder, detail))
        }
        found => Ok(found),
    }
}

/// Runs the statements of a migration in an open transaction.
fn run(session: &Session, connection: &Connection, sql: &str) -> Result<(), DataError> {
    let explain = |error| {
        let error = session.failure(&error);
        if error.reason != DataReason::SqlForbidden {
            return error;
        }
        let detail = format!(
            "{}: each migration already runs in a transaction on one file: remove BEGIN, COMMIT, ROLLBACK, SAVEPOINT, ATTACH and temporary tables",
            error.detail
        );
        DataError::new(error.reason, detail)
    };
    let mut batch = rusqlite::Batch::new(connection, sql);
    while let Some(mut statement) = batch.next().map_err(explain)? {
        let mut rows = statement.raw_query();
        while rows.next().map_err(explain)?.is_some() {}
    }
    Ok(())
}

/// Checks all foreign keys, and records the migration in its transaction.
fn note(connection: &Connection, migration: &Migration) -> Result<(), DataError> {
    let broken = connection
        .query_row("PRAGMA foreign_key_check", [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(2)?)));
    match broken {
        Ok((table, parent)) => {
            let detail = format!("a row of {table} refers to a row of {parent} that does not exist");
            return Err(DataError::new(DataReason::MigrationFailed, detail));
        }
        Err(rusqlite::Error::QueryReturnedNoRows) => {}
        Err(error) => return Err(failure(&error)),
    }
    let note = "INSERT INTO flatout_migrations VALUES (?1, ?2, ?3, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))";
    connection
        .execute(note, (migration.number, &migration.name, migration.digest()))
        .map(drop)
        .map_err(|error| failure(&error))
}

#[cfg(test)]
mod tests;
