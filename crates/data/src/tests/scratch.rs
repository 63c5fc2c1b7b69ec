//! Temporary folders for tests.

use crate::database::Database;
use crate::limits::Limits;
use crate::reason::DataReason;
use crate::rows::Rows;
use crate::value::{Parameters, ValueRef};
use crate::{DataError, Value};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder for one test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("flatout-data-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A database in it.
    pub(crate) fn database(&self, limits: Limits) -> Database {
        Database::open(&self.path("site.db"), 2, limits).unwrap()
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The integer that a query returns.
pub(crate) fn number(database: &Database, sql: &str) -> i64 {
    only(&database.query(sql, Parameters::None).wait().unwrap())
}

/// The single integer of a result.
pub(crate) fn only(rows: &Rows) -> i64 {
    match rows.get(0, 0) {
        Some(ValueRef::Integer(value)) if rows.len() == 1 => value,
        other => panic!("{other:?} of {} rows", rows.len()),
    }
}

pub(crate) fn with(values: &[i64]) -> Parameters {
    values.iter().map(|value| Value::Integer(*value)).collect::<Vec<_>>().into()
}

/// Runs statements that must succeed.
pub(crate) fn run(database: &Database, statements: &[&str]) {
    for sql in statements {
        database.execute(sql, Parameters::None).wait().unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// The reason for an error.
pub(crate) fn reason<T: std::fmt::Debug>(answer: Result<T, DataError>) -> DataReason {
    answer.unwrap_err().reason
}
