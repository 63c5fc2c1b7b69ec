//! A connection as pages may have it: what is switched on, what is forbidden, and how long it may take.

use crate::pending::Watch;
use crate::reason::{DataError, DataReason};
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
use std::thread;
use std::time::{Duration, Instant};

/// Instructions of SQLite's machine between two looks at the clock: some tens of microseconds.
const PROGRESS_INSTRUCTIONS: i32 = 2_000;

/// Prepared statements that a connection keeps. A site has tens; parameters keep values out of their texts.
const STATEMENTS_MAX: usize = 256;

/// KiB of pages that the writer keeps in memory.
const WRITER_CACHE_KIB: u32 = 8 * 1024;

/// The log of changes is cut to this when it begins anew.
const LOG_BYTES_MAX: i64 = 64 << 20;

/// Bytes that SQLite may have in the whole process. Sorting happens in memory, as a confined server may have no folder
/// for temporary files; a query that needs more than this is refused, and the server lives.
const HEAP_BYTES_MAX: i64 = 1 << 30;

/// Bytes of one text, blob or row; also of what a function makes in one instruction, which nothing can interrupt.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// Bytes of a statement's text.
const SQL_BYTES_MAX: i32 = 256 << 10;

/// Bytes of a LIKE or GLOB pattern: its matching is exponential in the wildcards, and one instruction.
const PATTERN_BYTES_MAX: i32 = 64;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads, and cannot write.
    Reader {
        /// KiB of pages that it keeps in memory: a page that is not there is read from the kernel, at the price of a
        /// system call and a copy.
        cache_kib: u32,
    },
    /// It is the one that writes.
    Writer,
}

/// Whose statements a connection runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Trust {
    /// A page's: they read and write, and change the schema.
    Page,
    /// A migration's: they may set things, and not end the transaction they are in.
    Migration,
    /// Our own.
    Ours,
}

/// A connection with its bounds.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) bounds: Arc<Bounds>,
}

/// What a connection's callbacks look at: they run within SQLite's calls, on the same thread.
#[derive(Debug)]
pub(crate) struct Bounds {
    start: Instant,
    /// Nanoseconds after `start` when what runs is stopped.
    run_until: AtomicU64,
    /// Nanoseconds after `start` when a lock is waited for no more.
    wait_until: AtomicU64,
    /// Whose statements these are: [`Trust`].
    trust: AtomicU8,
    /// A statement was forbidden something.
    forbidden: AtomicBool,
    /// Who waits for the statement that runs; nobody: it is stopped.
    asker: Mutex<Option<Watch>>,
    /// Pages in the log of changes after the last commit.
    pub(crate) log_pages: AtomicU32,
}

impl Session {
    /// Opens `path`, waiting for another process's lock until `wait_until`.
    pub(crate) fn open(path: &Path, role: Role, wait_until: Instant) -> Result<Self, DataError> {
        let access = match role {
            Role::Reader { .. } => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Role::Writer => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        };
        if role == Role::Writer {
            create_private(path);
        }
        // Without SQLITE_OPEN_URI: a path is a path, whatever it begins with.
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
                    Some(format!("the journal stays in mode {mode}")),
                ));
            }
            // NORMAL, unless `sync_commits` says FULL: a commit is in the kernel's hands when the page hears of it, and the file is synced
            // only when the log is copied into it. A crash of this process loses nothing and a power cut may lose the
            // last commits, but never tears the database (https://www.sqlite.org/pragma.html#pragma_synchronous).
            self.connection.pragma_update(None, "synchronous", "NORMAL")?;
            self.connection.pragma_update(None, "journal_size_limit", LOG_BYTES_MAX)?;
            let bounds = Arc::clone(&self.bounds);
            // In place of SQLite's own checkpoint, which would run before the pages hear of their commits.
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
        // A reader that has never looked learns here that the file is damaged or no database.
        self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        self.confine()?;
        self.connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        let bounds = Arc::clone(&self.bounds);
        self.connection.progress_handler(PROGRESS_INSTRUCTIONS, Some(move || bounds.is_over()))
    }

    /// What a page cannot do, whatever its SQL says.
    fn confine(&mut self) -> rusqlite::Result<()> {
        let connection = &mut self.connection;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // "x" is a column's name, and a misspelt one an error rather than the text x.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        // A statement is compiled once. With statistics of ANALYZE there, SQLite would compile it again for each value that is
        // bound, which takes longer than most queries do (https://www.sqlite.org/queryplanner-ng.html#qpsg).
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX)?;
        let bounds = Arc::clone(&self.bounds);
        connection.authorizer(Some(move |context: AuthContext<'_>| bounds.authorize(&context)))
    }

    /// Runs one of our own statements. It is not kept prepared: those that are kept are found by their text, and a page
    /// that gave the same would have it without being asked what it does.
    pub(crate) fn command(&self, sql: &str) -> Result<(), DataError> {
        let done = self.trusted(Trust::Ours, |connection| {
            let mut statement = connection.prepare(sql)?;
            let mut rows = statement.raw_query();
            while rows.next()?.is_some() {}
            Ok(())
        });
        done.map_err(|error| self.failure(&error))
    }

    /// Has SQLite sync the log at every commit from now on (`synchronous` FULL).
    pub(crate) fn sync_commits(&self) -> Result<(), DataError> {
        let set = self.trusted(Trust::Ours, |connection| connection.pragma_update(None, "synchronous", "FULL"));
        set.map_err(|error| self.failure(&error))
    }

    /// Does what a page may not.
    pub(crate) fn trusted<T>(&self, trust: Trust, work: impl FnOnce(&Connection) -> T) -> T {
        self.bounds.trust(trust);
        let done = work(&self.connection);
        self.bounds.trust(Trust::Page);
        done
    }

    /// Allows statements as long as a migration's file may be, or again no longer than a page's.
    pub(crate) fn allow_long_texts(&self, allow: bool) -> Result<(), DataError> {
        let bytes_max = if allow { VALUE_BYTES_MAX } else { SQL_BYTES_MAX };
        let set = self.connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, bytes_max);
        set.map(drop).map_err(|error| failure(&error))
    }

    /// The reason for an error of a page's statement.
    pub(crate) fn failure(&self, error: &rusqlite::Error) -> DataError {
        let error = failure(error);
        if self.bounds.forbidden.swap(false, Ordering::Relaxed) {
            return DataError::new(DataReason::SqlForbidden, error.detail);
        }
        error
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            run_until: AtomicU64::new(u64::MAX),
            wait_until: AtomicU64::new(0),
            trust: AtomicU8::new(Trust::Page as u8),
            forbidden: AtomicBool::new(false),
            asker: Mutex::new(None),
            log_pages: AtomicU32::new(0),
        }
    }
}

impl Bounds {
    /// Whose statements follow.
    pub(crate) fn trust(&self, trust: Trust) {
        self.trust.store(trust as u8, Ordering::Relaxed);
    }

    fn since_start(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX)
    }

    /// From now on locks are waited for until `instant`.
    pub(crate) fn wait_until(&self, instant: Instant) {
        self.wait_until.store(self.since_start(instant), Ordering::Relaxed);
    }

    /// A statement begins: it is stopped at `until`, or when `asker` has given up.
    pub(crate) fn run_until(&self, until: Instant, asker: Option<Watch>) {
        self.run_until.store(self.since_start(until), Ordering::Relaxed);
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = asker;
    }

    /// The statement has ended.
    pub(crate) fn run_on(&self) {
        self.run_until.store(u64::MAX, Ordering::Relaxed);
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn is_over(&self) -> bool {
        let until = self.run_until.load(Ordering::Relaxed);
        until != u64::MAX
            && (self.since_start(Instant::now()) >= until
                || self.asker.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(Watch::is_given_up))
    }

    /// Waits a little for another process's lock; false: it has been long enough.
    fn wait_for_lock(&self, count: i32) -> bool {
        if self.since_start(Instant::now()) >= self.wait_until.load(Ordering::Relaxed) {
            return false;
        }
        // Most locks are held for as long as one commit takes; one that is held longer costs a look every 10 ms.
        let pause_us = 100_u64 << count.clamp(0, 7);
        thread::sleep(Duration::from_micros(pause_us.min(10_000)));
        true
    }

    fn authorize(&self, context: &AuthContext<'_>) -> Authorization {
        let trust = self.trust.load(Ordering::Relaxed);
        if trust == Trust::Ours as u8 {
            return Authorization::Allow;
        }
        let allowed = match context.action {
            AuthAction::Pragma { pragma_name, pragma_value } => {
                // Full-text search asks for these two while it works; they tell nothing and set nothing.
                let is_asked = matches!(pragma_name, "data_version" | "page_size") && pragma_value.is_none();
                is_asked || trust == Trust::Migration as u8
            }
            AuthAction::Unknown { .. }
            | AuthAction::Attach { .. }
            | AuthAction::Detach { .. }
            | AuthAction::Transaction { .. }
            | AuthAction::Savepoint { .. }
            // Temporary tables would be the connection's, and so the next page's.
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

/// SQL functions that reach beyond the database. `fts3_tokenizer` takes and gives addresses of native code, also where
/// SQLite's own switch for it is off: <https://www.sqlite.org/fts3.html#custom_application_defined_tokenizers>.
const FORBIDDEN_FUNCTIONS: [&str; 2] = ["load_extension", "fts3_tokenizer"];

/// Creates the file for its owner alone, where there is none: what pages keep is not for every user of the machine. SQLite gives
/// the log and its index beside the file the same mode. A failure is left to SQLite, which names it.
fn create_private(path: &Path) {
    let _ = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
}

/// Why a file could not be opened. SQLite says only that it could not; the folder tells more.
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
        // It could be made were the folder writable.
        (Ok(_), Err(failed)) if failed.kind() == io::ErrorKind::NotFound => {
            DataError::new(DataReason::FileReadOnly, detail)
        }
        _ => DataError::new(DataReason::FileForbidden, detail),
    }
}

/// The reason for an error of SQLite's.
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
        rusqlite::Error::NulError(_) => DataError::new(DataReason::SqlInvalid, "a NUL in the text"),
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
        // The text of a statement that is too long says nothing else.
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
