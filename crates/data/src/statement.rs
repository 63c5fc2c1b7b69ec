//! Running a statement: binds its parameters and reads its rows within the limits.

use crate::connection::{Session, failure};
use crate::limits::Limits;
use crate::pending::PendingWatch;
use crate::reason::{DataError, DataReason};
use crate::rows::Rows;
use crate::value::{Parameters, Value, ValueRef};
use flatout_os::clock;
use rusqlite::CachedStatement;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef as Column};
use std::time::{Duration, Instant};

/// Maximum number of parameters that an error lists.
const SHOWN_MAX: usize = 16;

/// The result of running a statement.
pub(crate) enum Ran {
    /// The statement has run.
    Rows(Rows),
    /// The statement would write, but this connection is read-only.
    Writes,
}

/// Runs a read-only statement. A statement that would write is not started.
pub(crate) fn read(
    session: &Session,
    sql: &str,
    parameters: &Parameters,
    limits: &Limits,
    asker: PendingWatch,
) -> Result<Ran, DataError> {
    let mut statement = prepare(session, sql)?;
    if !statement.readonly() {
        return Ok(Ran::Writes);
    }
    let until = clock::now() + Duration::from_millis(limits.statement_max_ms);
    session.bounds.run_until(until, Some(asker));
    let answer = step(session, &mut statement, parameters, limits);
    session.bounds.run_on();
    answer.map(Ran::Rows)
}

/// Runs a statement on the writer, at most until `until`. The caller must have begun a transaction, and must roll back
/// the effects of a statement that fails.
pub(crate) fn write(
    session: &Session,
    sql: &str,
    parameters: &Parameters,
    limits: &Limits,
    until: Instant,
) -> Result<Rows, DataError> {
    let mut statement = prepare(session, sql)?;
    let before = session.connection.total_changes();
    session.bounds.run_until(until, None);
    let answer = step(session, &mut statement, parameters, limits);
    session.bounds.run_on();
    let mut rows = answer?;
    if session.connection.total_changes() != before {
        rows.changes = session.connection.changes();
    }
    rows.last_insert_rowid = session.connection.last_insert_rowid();
    Ok(rows)
}

fn prepare<'a>(session: &'a Session, sql: &str) -> Result<CachedStatement<'a>, DataError> {
    // SQLite would stop reading at the NUL, unlike a person who reads the text.
    if sql.contains('\0') {
        return Err(DataError::new(DataReason::SqlInvalid, "the string contains a NUL"));
    }
    session.connection.prepare_cached(sql).map_err(|error| session.failure(&error))
}

fn step(
    session: &Session,
    statement: &mut CachedStatement<'_>,
    parameters: &Parameters,
    limits: &Limits,
) -> Result<Rows, DataError> {
    bind(statement, parameters)?;
    let columns = statement.column_count();
    let mut answer = Rows::new(statement.column_names().map(Box::from).collect::<Vec<_>>().into());
    let mut found = statement.raw_query();
    let mut count = 0;
    loop {
        match found.next() {
            Ok(Some(row)) => {
                if count == limits.rows_max {
                    return Err(DataError::new(DataReason::RowsMax, format!("more than {count}")));
                }
                count += 1;
                for column in 0..columns {
                    let value = row.get_ref(column).map_err(|error| session.failure(&error))?;
                    answer.push(from_column(value));
                }
                if answer.bytes() > limits.bytes_max {
                    return Err(DataError::new(DataReason::BytesMax, format!("more than {}", limits.bytes_max)));
                }
            }
            Ok(None) => return Ok(answer),
            // SQLite cannot step an empty statement.
            Err(rusqlite::Error::SqliteFailure(code, _)) if code.extended_code == rusqlite::ffi::SQLITE_MISUSE => {
                return Err(DataReason::SqlEmpty.into());
            }
            Err(error) => return Err(session.failure(&error)),
        }
    }
}

fn bind(statement: &mut CachedStatement<'_>, parameters: &Parameters) -> Result<(), DataError> {
    let wanted = statement.parameter_count();
    let mismatch = |given: usize| {
        Err(DataError::new(DataReason::ParametersMismatch, format!("{given} passed, but {wanted} in the statement")))
    };
    match parameters {
        Parameters::None if wanted == 0 => Ok(()),
        Parameters::None => mismatch(0),
        Parameters::Positional(values) if values.len() == wanted => {
            for (index, value) in values.iter().enumerate() {
                statement.raw_bind_parameter(index + 1, Bound(value)).map_err(|error| failure(&error))?;
            }
            Ok(())
        }
        Parameters::Positional(values) => mismatch(values.len()),
        Parameters::Named(values) => {
            let mut bound = vec![false; wanted];
            for (name, value) in values {
                let index = index_of(statement, name)?;
                statement.raw_bind_parameter(index, Bound(value)).map_err(|error| failure(&error))?;
                bound[index - 1] = true;
            }
            for (position, _) in bound.iter().enumerate().filter(|(_, is_bound)| !**is_bound) {
                let index = position + 1;
                if statement.parameter_name(index).is_none_or(|name| name.starts_with('?')) {
                    let detail = "values were passed by name, but the statement has a ? without a name";
                    return Err(DataError::new(DataReason::ParametersMismatch, detail));
                }
                statement.raw_bind_parameter(index, Bound(&Value::Null)).map_err(|error| failure(&error))?;
            }
            Ok(())
        }
    }
}

fn index_of(statement: &CachedStatement<'_>, name: &str) -> Result<usize, DataError> {
    let found = if name.starts_with([':', '@', '$']) {
        statement.parameter_index(name)
    } else {
        statement.parameter_index(&format!(":{name}"))
    };
    if let Ok(Some(index)) = found {
        return Ok(index);
    }
    let all = (1..=statement.parameter_count()).filter_map(|index| statement.parameter_name(index));
    let known: Vec<&str> = all.take(SHOWN_MAX).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let detail = format!("the statement has no parameter {name}; its parameters are: {known}");
    Err(DataError::new(DataReason::ParametersMismatch, detail))
}

/// Passes a value to rusqlite.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => Column::Null,
            Value::Integer(value) => Column::Integer(*value),
            Value::Real(value) => Column::Real(*value),
            Value::Text(value) => Column::Text(value.as_bytes()),
            Value::Blob(value) => Column::Blob(value),
        }))
    }
}

fn from_column(value: Column<'_>) -> ValueRef<'_> {
    match value {
        Column::Null => ValueRef::Null,
        Column::Integer(value) => ValueRef::Integer(value),
        Column::Real(value) => ValueRef::Real(value),
        Column::Text(value) => ValueRef::Text(value),
        Column::Blob(value) => ValueRef::Blob(value),
    }
}
