//! SQLite connections for pages: configuration, restrictions and time limits.

use crate::pending::PendingWatch;
use crate::reason::{DataError, DataReason};
use flatout_os::clock;
use rusqlite::config::DbConfig;
use rusqlite::ffi::{self, ErrorCode};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of SQLite VM instructions between two checks of the clock; they take some tens of microseconds.
const PROGRESS_INSTRUCTIONS: i32 = 2_000;

/// Number of prepared statements cached per connection. A site has tens of statements, because parameters keep values
/// out of their text.
const STATEMENTS_MAX: usize = 256;

/// Size of the writer's page cache, in KiB.
const WRITER_CACHE_KIB: u32 = 8 * 1024;

/// Size to which the write-ahead log is truncated when it restarts, in bytes.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// Maximum size of SQLite's heap in the whole process, in bytes. Sorting uses memory, because a confined server may
/// have no folder for temporary files. A query that needs more fails, and the server continues.
const HEAP_BYTES_MAX: i64 = 1 << 30;

/// Maximum size of a string, blob or row, in bytes. This also limits what a function can produce in a single
/// instruction, which cannot be interrupted.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// Maximum length of a statement's text, in bytes.
const SQL_BYTES_MAX: i32 = 256 << 10;

/// Maximum length of a LIKE or GLOB pattern, in bytes. Matching takes exponential time in the number of wildcards, and
/// cannot be interrupted.
const PATTERN_BYTES_MAX: i32 = 64;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A connection that only reads.
    Reader {
        /// Size of the page cache, in KiB. Reading a page that is not cached costs a system call and a copy.
        cache_kib: u32,
    },
    /// The only connection that writes.
    Writer,
}

/// The origin of the statements that a connection runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Trust {
    /// A page, whose statements may read, write and change the schema.
    Page,
    /// A migration, whose statements may also use PRAGMA, but must not end its transaction.
    Migration,
    /// This crate, whose statements are not restricted.
    Ours,
}

/// A connection with its limits.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) bounds: Arc<Bounds>,
}

flatout_reason::defaults! {
    /// The limits that a connection's callbacks apply. They run inside SQLite calls on the same thread.
    #[derive(Debug)]
    pub(crate) struct Bounds {
        start: Instant = clock::now(),
        /// Deadline of the running statement, in nanoseconds after `start`.
        run_until: AtomicU64 = AtomicU64::new(u64::MAX),
        /// Deadline of waiting for a lock, in nanoseconds after `start`.
        wait_until: AtomicU64 = AtomicU64::new(0),
        /// The origin of the running statement, as a [`Trust`].
        trust: AtomicU8 = AtomicU8::new(Trust::Page as u8),
        /// True if a statement tried to do something that is forbidden.
        forbidden: AtomicBool = AtomicBool::new(false),
        /// Observes whether the result of the running statement is still awaited. If not, the statement is stopped.
        asker: Mutex<Option<PendingWatch>> = Mutex::new(None),
        /// Number of pages in the write-ahead log after the last commit.
        pub(crate) log_pages: AtomicU32 = AtomicU32::new(0),
    }
}

impl Session {
    /// Opens `path`. Waits for another process's lock until `wait_until`.
    pub(crate) fn open(path: &Path, role: Role, wait_until: Instant) -> Result<Self, DataError> {
        let access = match role {
            Role::Reader { .. } => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        };
        if role == Role::Writer {
            create_private(path);
        }
        // SQLITE_OPEN_URI is not set, so a path is never treated as a URI, however it begins.
        let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|error| open_failure(path, &error))?;
        let mut session = Self { connection, bounds: Arc::default() };
        session.bounds.wait_until(wait_until);
        session.prepare(role).map_err(|error| open_failure(path, &error))?;
        Ok(session)
    }

    fn prepare(&mut self, role: Role) -> rusqlite::Result<()> {
        let bounds = Arc::clone(&self.bounds);
        self.connection.busy_handler(Some(move |count| bounds.wait_for_lock(count)))?;
        if role == Role::Writer {
            let mode: String = self.connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
            if mode != "wal" {
                return Err(rusqlite::Error::SqliteFailure(
                    ffi::Error::new(ffi::SQLITE_READONLY),
                    Some(format!("the journal mode remains {mode}")),
                ));
            }
            // NORMAL applies unless `sync_commits` sets FULL. With NORMAL, the kernel has the data when a page learns
            // of a commit, and the file is synced only when the log is copied into it. A crash of this process loses
            // nothing. A power failure may lose the last commits, but never corrupts the database
            // (https://www.sqlite.org/pragma.html#pragma_synchronous).
            self.connection.pragma_update(None, "synchronous", "NORMAL")?;
            self.connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
            let bounds = Arc::clone(&self.bounds);
            // This hook replaces SQLite's automatic checkpoint, which would delay the reports of commits.
            self.connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                bounds.log_pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))?;
        }
        self.connection.pragma_update(None, "foreign_keys", true)?;
        let cache_kib = match role {
            Role::Reader { cache_kib } => cache_kib,
            Role::Writer => WRITER_CACHE_KIB,
        };
        self.connection.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
        self.connection.pragma_update(None, "temp_store", "MEMORY")?;
        self.connection.pragma_update(None, "hard_heap_limit", HEAP_BYTES_MAX)?;
        // The first access detects a file that is damaged or not a database.
        self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        self.confine()?;
        self.connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        let bounds = Arc::clone(&self.bounds);
        self.connection.progress_handler(PROGRESS_INSTRUCTIONS, Some(move || bounds.is_over()))
    }

    /// Restricts what the statements of pages can do.
    fn confine(&mut self) -> rusqlite::Result<()> {
        let connection = &mut self.connection;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // "x" is always a column name, so a misspelt name is an error instead of the string x.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        // A statement is compiled only once. With ANALYZE statistics, SQLite would otherwise recompile it for each
        // bound value, which takes longer than most queries (https://www.sqlite.org/queryplanner-ng.html#qpsg).
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX)?;
        let bounds = Arc::clone(&self.bounds);
        connection.authorizer(Some(move |context: AuthContext<'_>| bounds.authorize(&context)))
    }

    /// Runs a statement of this crate without caching it. The cache is keyed by text, so a page with the same text
    /// would get the statement without authorization.
    pub(crate) fn command(&self, sql: &str) -> Result<(), DataError> {
        let done = self.trusted(Trust::Ours, |connection| {
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.raw_query();
            while rows.next()?.is_some() {}
            Ok(())
        });
        done.map_err(|error| self.failure(&error))
    }

    /// Makes SQLite sync the log at every commit from now on (`synchronous` FULL).
    pub(crate) fn sync_commits(&self) -> Result<(), DataError> {
        let set = self.trusted(Trust::Ours, |connection| connection.pragma_update(None, "synchronous", "FULL"));
        set.map_err(|error| self.failure(&error))
    }

    /// Runs `work` with the rights of `trust`.
    pub(crate) fn trusted<T>(&self, trust: Trust, work: impl FnOnce(&Connection) -> T) -> T {
        self.bounds.trust(trust);
        let done = work(&self.connection);
        self.bounds.trust(Trust::Page);
        done
    }

    /// Sets the maximum length of statements: the limit for migration files if `allow` is true, and the limit for pages
    /// otherwise.
    pub(crate) fn allow_long_texts(&self, allow: bool) -> Result<(), DataError> {
        let bytes_max = if allow { VALUE_BYTES_MAX } else { SQL_BYTES_MAX };
        let set = self.connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, bytes_max);
        set.map(drop).map_err(|error| failure(&error))
    }

    /// Converts the error of a page's statement.
    pub(crate) fn failure(&self, error: &rusqlite::Error) -> DataError {
        let error = failure(error);
        if self.bounds.forbidden.swap(false, Ordering::Relaxed) {
            return DataError::new(DataReason::SqlForbidden, error.detail);
        }
        error
    }
}

impl Bounds {
    /// Sets the origin of the statements that follow.
    pub(crate) fn trust(&self, trust: Trust) {
        self.trust.store(trust as u8, Ordering::Relaxed);
    }

    fn since_start(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sets the deadline of waiting for locks.
    pub(crate) fn wait_until(&self, instant: Instant) {
        self.wait_until.store(self.since_start(instant), Ordering::Relaxed);
    }

    /// Begins a statement, which is stopped at `until` or when `asker` reports that the result is no longer awaited.
    pub(crate) fn run_until(&self, until: Instant, asker: Option<PendingWatch>) {
        self.run_until.store(self.since_start(until), Ordering::Relaxed);
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = asker;
    }

    /// Ends a statement.
    pub(crate) fn run_on(&self) {
        self.run_until.store(u64::MAX, Ordering::Relaxed);
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn is_over(&self) -> bool {
        let until = self.run_until.load(Ordering::Relaxed);
        until != u64::MAX
            && (self.since_start(clock::now()) >= until
                || self
                    .asker
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .as_ref()
                    .is_some_and(PendingWatch::is_given_up))
    }

    /// Waits briefly for another process's lock. Returns false if the deadline has passed.
    fn wait_for_lock(&self, count: i32) -> bool {
        if self.since_start(clock::now()) >= self.wait_until.load(Ordering::Relaxed) {
            return false;
        }
        // Most locks are held for one commit. Longer waits retry every 10 ms.
        let pause_us = 100_u64 << count.clamp(0, 7);
        clock::sleep(Duration::from_micros(pause_us.min(10_000)));
        true
    }

    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let trust = self.trust.load(Ordering::Relaxed);
        if trust == Trust::Ours as u8 {
            return Authorization::Allow;
        }
        let allowed = match context.action {
            AuthAction::Pragma { pragma_name, pragma_value } => {
                // Full-text search uses these two internally. They reveal and change nothing.
                let is_asked = matches!(pragma_name, "data_version" | "page_size") && pragma_value.is_none();
                is_asked || trust == Trust::Migration as u8
            }
            AuthAction::Unknown { .. }
            | AuthAction::Attach { .. }
            | AuthAction::Detach { .. }
            | AuthAction::Transaction { .. }
            | AuthAction::Savepoint { .. }
            // Temporary tables would belong to the connection, and so be visible to the next page.
            | AuthAction::CreateTempTable { .. }
            | AuthAction::CreateTempIndex { .. }
            | AuthAction::CreateTempTrigger { .. }
            | AuthAction::CreateTempView { .. } => false,
            AuthAction::CreateTable { .. }
            | AuthAction::CreateIndex { .. }
            | AuthAction::CreateTrigger { .. }
            | AuthAction::CreateView { .. }
            | AuthAction::CreateVtable { .. } => context.database_name != Some("temp"),
            AuthAction::Function { function_name } => {
                !FORBIDDEN_FUNCTIONS.iter().any(|forbidden| function_name.eq_ignore_ascii_case(forbidden))
            }
            _ => true,
        };
        if allowed {
            return Authorization::Allow;
        }
        self.forbidden.store(true, Ordering::Relaxed);
        Authorization::Deny
    }
}

/// SQL functions that reach beyond the database. `fts3_tokenizer` accepts and returns addresses of native code, even if
/// SQLite's setting for it is off: <https://www.sqlite.org/fts3.html#custom_application_defined_tokenizers>.
const FORBIDDEN_FUNCTIONS: [&str; 2] = ["load_extension", "fts3_tokenizer"];

/// Creates a missing file that only its owner can access, because other users of the machine must not read the data.
/// SQLite gives the log and its index the same mode. If this fails, SQLite reports the error when it opens the file.
fn create_private(path: &Path) {
    let _ = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

/// Converts an error from opening a file. SQLite's message is unspecific, but the folder reveals more.
fn open_failure(path: &Path, error: &rusqlite::Error) -> DataError {
    let found = failure(error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let detail = if found.detail.is_empty() {
        path.display().to_string()
    } else {
        format!("{}: {}", path.display(), found.detail)
    };
    if found.reason != DataReason::FileForbidden {
        return DataError::new(found.reason, detail);
    }
    match (std::fs::metadata(folder), std::fs::metadata(path)) {
        (Err(failed), _) if failed.kind() == io::ErrorKind::NotFound => DataError::new(DataReason::FileMissing, detail),
        (Ok(folder), _) if !folder.is_dir() => DataError::new(DataReason::FileMissing, detail),
        (_, Ok(file)) if file.is_dir() => {
            DataError::new(DataReason::FileNotDatabase, format!("{}: a folder", path.display()))
        }
        // If the folder were writable, SQLite would have created the file.
        (Ok(_), Err(failed)) if failed.kind() == io::ErrorKind::NotFound => {
            DataError::new(DataReason::FileReadOnly, detail)
        }
        _ => DataError::new(DataReason::FileForbidden, detail),
    }
}

/// Converts an error of SQLite to a [`DataError`].
pub(crate) fn failure(error: &rusqlite::Error) -> DataError {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            let detail = message.clone().unwrap_or_else(|| code.to_string());
            DataError::new(reason(*code, &detail), detail)
        }
        rusqlite::Error::SqlInputError { error, msg, offset, .. } => {
            let detail = if *offset < 0 { msg.clone() } else { format!("{msg}, at byte {offset}") };
            DataError::new(reason(*error, msg), detail)
        }
        rusqlite::Error::MultipleStatement => DataReason::SqlMultiple.into(),
        rusqlite::Error::InvalidParameterName(name) => {
            DataError::new(DataReason::ParametersMismatch, format!("there is no parameter {name}"))
        }
        rusqlite::Error::NulError(_) => DataError::new(DataReason::SqlInvalid, "the string contains a NUL"),
        other => DataError::new(DataReason::Failed, other.to_string()),
    }
}

fn reason(error: ffi::Error, message: &str) -> DataReason {
    match error.code {
        ErrorCode::ConstraintViolation => match error.extended_code {
            ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
                DataReason::ConstraintUnique
            }
            ffi::SQLITE_CONSTRAINT_FOREIGNKEY => DataReason::ConstraintForeignKey,
            ffi::SQLITE_CONSTRAINT_NOTNULL => DataReason::ConstraintNotNull,
            ffi::SQLITE_CONSTRAINT_CHECK => DataReason::ConstraintCheck,
            ffi::SQLITE_CONSTRAINT_DATATYPE => DataReason::ValueType,
            _ => DataReason::ConstraintOther,
        },
        ErrorCode::Unknown if message.starts_with("cannot VACUUM") => DataReason::SqlForbidden,
        // Only its message distinguishes a statement that is too long.
        ErrorCode::TooBig if message.contains("statement too long") => DataReason::SqlTooLong,
        ErrorCode::Unknown | ErrorCode::SchemaChanged => DataReason::SqlInvalid,
        ErrorCode::AuthorizationForStatementDenied => DataReason::SqlForbidden,
        ErrorCode::TypeMismatch => DataReason::ValueType,
        ErrorCode::TooBig => DataReason::ValueTooBig,
        ErrorCode::ParameterOutOfRange => DataReason::ParametersMismatch,
        ErrorCode::OperationInterrupted => DataReason::StatementTimeout,
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            DataReason::LockTimeout
        }
        ErrorCode::ReadOnly => DataReason::FileReadOnly,
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => DataReason::FileForbidden,
        ErrorCode::NotADatabase => DataReason::FileNotDatabase,
        ErrorCode::DatabaseCorrupt => DataReason::FileCorrupt,
        ErrorCode::DiskFull => DataReason::DiskFull,
        ErrorCode::SystemIoFailure => match error.extended_code {
            ffi::SQLITE_IOERR_NOMEM => DataReason::MemoryFull,
            _ => DataReason::DiskFailed,
        },
        ErrorCode::OutOfMemory => DataReason::MemoryFull,
        _ => DataReason::Failed,
    }
}
