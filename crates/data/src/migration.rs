//! Migrations: a folder of numbered changes, each applied once.
//!
//! Files are named `NNN_name.sql`, with any number of digits, each number once. Other `.sql` names are errors; other
//! files are ignored. Each migration runs in a transaction together with the record that it was applied, so that a
//! crash leaves it either applied or not begun. Foreign keys are not enforced during a migration, as SQLite's
//! procedure for rebuilding a table requires (<https://www.sqlite.org/lang_altertable.html#otheralter>), and are all
//! checked before the commit.

use crate::connection::{Session, Trust, failure};
use crate::reason::{DataError, DataReason};
use aws_lc_rs::digest;
use rusqlite::Connection;
use rusqlite::fallible_iterator::FallibleIterator as _;
use std::collections::BTreeMap;
use std::path::Path;

/// Table of applied migrations.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS flatout_migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    applied_at TEXT NOT NULL
) STRICT";

/// Maximum bytes of a migration.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A migration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Number at the start of its name.
    pub number: u32,
    /// File name.
    pub name: String,
    /// SQL text.
    pub sql: String,
}

impl Migration {
    /// SHA-256 of its text in hexadecimal.
    pub fn digest(&self) -> String {
        let digest = digest::digest(&digest::SHA256, self.sql.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Reads the migrations of a folder, in order.
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

/// Parses the number of `NNN_name.sql`.
fn number(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".sql")?;
    let (digits, rest) = stem.split_once('_')?;
    if rest.is_empty() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// Applies pending migrations; returns their names.
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
    // Each round checks again under the lock: another process may be migrating too.
    loop {
        session.command("BEGIN IMMEDIATE")?;
        session.command(TABLE)?;
        let applied = session.trusted(Trust::Ours, applied).map_err(|error| failure(&error))?;
        let Some(migration) = next(migrations, &applied)? else {
            return session.command("COMMIT").map(|()| names);
        };
        let failed = |error: DataError| {
            let reason = match error.reason {
                // These are not caused by the migration.
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

/// Names and digests of applied migrations by number.
fn applied(connection: &Connection) -> rusqlite::Result<BTreeMap<u32, (String, String)>> {
    let mut statement = connection.prepare("SELECT number, name, digest FROM flatout_migrations")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    rows.collect()
}

/// The first pending migration, or an error if the folder does not match the applied ones.
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
            let detail = format!("{} comes before {last}, which is applied", migration.name);
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
            "{}: a migration is a transaction already, of one file: leave BEGIN, COMMIT, ROLLBACK, SAVEPOINT, ATTACH \
             and temporary tables out",
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
