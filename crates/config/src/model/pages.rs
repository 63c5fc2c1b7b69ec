//! Settings of active pages: pages and scripts that flatout itself runs.

use super::{Origin, TrustedProxy};
use std::path::PathBuf;

/// A folder of pages, or a single page or script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The folder, or for `page` the file; absolute, or relative to the folder in which the process was started.
    pub path: PathBuf,
    /// The limits and resources of the pages.
    pub settings: PageSettings,
}

flatout_reason::defaults! {
    /// Limits and resources of the active pages of one `pages` block.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PageSettings {
        /// True if the browser shows errors with the page's source, and reloads pages when they change.
        pub dev: bool = false,
        /// How long a page runs before other pages and connections get a turn, in microseconds.
        pub cpu_slice_us: u64 = 200,
        /// The CPU time that a page may use for one request, in microseconds. Time spent waiting does not count.
        pub cpu_limit_us: u64 = 50_000,
        /// The time that a page may take for one request, in milliseconds. Time spent waiting counts, except for
        /// waiting for the client.
        pub run_ms_max: u64 = 60_000,
        /// The memory that a page may allocate for one request, in bytes.
        pub memory_bytes_max: u64 = 16 << 20,
        /// The maximum total size of all files in a form, in bytes.
        pub upload_bytes_max: u64 = 10 << 20,
        /// The maximum size of the fields of a form, or of content that is read as a whole, in bytes.
        pub form_bytes_max: u64 = 1 << 20,
        /// The database that pages query through `db`.
        pub database: Option<Database>,
        /// The file with the key for sessions and tokens. It is created if it does not exist.
        pub secret: Option<PathBuf>,
        /// The names and origins that `fetch` may contact.
        pub upstreams: Vec<(String, Origin)>,
        /// Proxies whose Forwarded and X-Forwarded fields are trusted.
        pub trusted: Vec<TrustedProxy>,
        /// How long cached metadata of a page's files is used before the files are checked again, in milliseconds;
        /// `None` for the same time as for the site's other files.
        pub file_check_interval_ms: Option<u64>,
    }
}

/// The settings of an SQLite database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Database {
    /// The database file, which is created if it does not exist.
    pub path: PathBuf,
    /// The folder with migrations, which are applied at startup.
    pub migrations: Option<PathBuf>,
    /// The number of reader threads; `None` for one per worker.
    pub readers: Option<usize>,
    /// The time limit of a statement, in milliseconds; `None` for 5 s.
    pub statement_ms_max: Option<u64>,
    /// True if a commit returns only after the data has reached the disk (`synchronous` FULL).
    pub syncs_commits: bool,
}
