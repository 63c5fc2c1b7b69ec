//! Active pages: pages and scripts that this server runs itself.

use super::{Cidr, Origin};
use std::path::PathBuf;

/// Pages below a folder, or one page or script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The folder, or of a `page` the file; absolute or relative to where the process was started.
    pub path: PathBuf,
    /// How they run.
    pub settings: PageSettings,
}

/// How pages run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSettings {
    /// True if errors are shown in the browser, with the lines around them, and pages load again when they change.
    pub dev: bool,
    /// How long a page runs before others have their turn, in microseconds.
    pub cpu_slice_us: u64,
    /// How long a page may compute for one request, in microseconds; waiting does not count.
    pub cpu_limit_us: u64,
    /// How long a page may take for one request in all, its waiting included, in milliseconds; that for its client does not
    /// count.
    pub run_ms_max: u64,
    /// The memory that a page may allocate for one request, in bytes.
    pub memory_bytes_max: u64,
    /// Bytes of the files of one form at most, together.
    pub upload_bytes_max: u64,
    /// Bytes of the fields of one form, or of content that is read as a whole, at most.
    pub form_bytes_max: u64,
    /// The database that `db` queries.
    pub database: Option<Database>,
    /// The file with the key of sessions and tokens; made when it is not there.
    pub secret: Option<PathBuf>,
    /// The origins that `fetch` may contact, by name.
    pub upstreams: Vec<(String, Origin)>,
    /// Neighbours whose word about who asks, for which host and how is believed.
    pub trusted: Vec<Cidr>,
    /// How long what is known of a page's files is believed without a look, in milliseconds; `None`: as long as of the
    /// site's files.
    pub file_check_interval_ms: Option<u64>,
}

/// An SQLite database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    /// The file; made when it is not there.
    pub path: PathBuf,
    /// The folder of migrations, which are applied at start.
    pub migrations: Option<PathBuf>,
    /// Threads that read; `None`: one for each worker.
    pub readers: Option<usize>,
    /// How long a statement may run, in milliseconds; `None`: 5 s.
    pub statement_ms_max: Option<u64>,
    /// True if every commit is on the disk before its statement is answered (`synchronous` FULL).
    pub syncs_commits: bool,
}

impl Default for PageSettings {
    fn default() -> Self {
        Self {
            dev: false,
            cpu_slice_us: 200,
            cpu_limit_us: 50_000,
            run_ms_max: 60_000,
            memory_bytes_max: 16 << 20,
            upload_bytes_max: 10 << 20,
            form_bytes_max: 1 << 20,
            database: None,
            secret: None,
            upstreams: Vec::new(),
            trusted: Vec::new(),
            file_check_interval_ms: None,
        }
    }
}
