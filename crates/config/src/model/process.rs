//! Settings of the whole process.

use super::{Place, Site, Step, StoreBudget};
use flatout_http::access::{LogDestination, LogSettings};
use flatout_http::timeouts::Timeouts;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Worker threads; `None` is one for each core the process may use.
    pub workers: Option<u16>,
    /// The user, and group, to become after binding and opening.
    pub user: Option<String>,
    /// The group; `None` is the user's own.
    pub group: Option<String>,
    /// Descriptors to ask the kernel for; `None` is as many as it allows.
    pub open_files: Option<u64>,
    /// True if worker threads may open nothing outside the configured roots (Landlock), where the kernel can.
    pub landlock: bool,
    /// The folder for what outlives a restart: digests, the local certificate authority. `None`: nothing does.
    pub state: Option<PathBuf>,
    /// The admin socket.
    pub admin: Admin,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// How sockets are opened and used.
    pub sockets: Sockets,
    /// Limits of the metadata caches, per worker.
    pub cache: CacheBudget,
    /// How much output of active pages may wait for clients, for all workers together.
    pub page_output: PageOutputBudget,
    /// The cache store, shared by all workers.
    pub store: StoreBudget,
    /// Logs by index.
    pub logs: Vec<Log>,
    /// Listeners by index; no two with one address.
    pub listeners: Vec<Listener>,
    /// Sites in written order.
    pub sites: Vec<Site>,
    /// Every file that was read, for messages and for watching.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// The steps of all sites, those of routes included, in written order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.sites.iter().flat_map(Site::steps)
    }

    /// The settings of all logs, by index.
    pub fn log_settings(&self) -> Vec<LogSettings> {
        self.logs.iter().map(|log| log.settings.clone()).collect()
    }

    /// Returns true if any log uses standard output, which is then reserved for it.
    pub fn logs_to_stdout(&self) -> bool {
        self.logs.iter().any(|log| log.settings.target == LogDestination::Stdout)
    }
}

/// The admin socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admin {
    /// Wherever this system keeps run-time files.
    #[default]
    Default,
    /// None.
    Off,
    /// There.
    Path(PathBuf),
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where it was asked for first.
    pub place: Place,
    /// Where to listen.
    pub address: SocketAddr,
    /// The protocol of the listener.
    pub protocol: Protocol,
    /// Plain HTTP only: whether HTTP/2 with prior knowledge is taken as well.
    pub http2_cleartext: bool,
    /// The https port that all requests here are redirected to, if any.
    pub redirect_https_port: Option<u16>,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// http.
    Plain,
    /// https.
    Tls,
}

/// How sockets are opened and used, to measure what each feature is worth; see `flatout_os::socket::ListenOptions` and
/// `flatout_server::Settings` for the meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Sockets {
    pub reuseport: bool,
    pub defer_accept: bool,
    pub nodelay: bool,
    pub quickack: bool,
    pub sendfile: bool,
    pub backlog: u32,
    pub accept_batch: u32,
    pub busy_poll_us: u32,
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            reuseport: true,
            defer_accept: true,
            nodelay: true,
            quickack: false,
            sendfile: true,
            backlog: 4096,
            accept_batch: 64,
            busy_poll_us: 0,
        }
    }
}

/// Bounds of each worker's metadata cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBudget {
    /// Versions held.
    pub entries_max: usize,
    /// Bytes they hold together, about, encoded variants included.
    pub bytes_max: usize,
}

impl Default for CacheBudget {
    fn default() -> Self {
        Self { entries_max: 16_384, bytes_max: 64 * 1024 * 1024 }
    }
}

/// Bounds of what active pages have written and clients have not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOutputBudget {
    /// Bytes in memory.
    pub memory_bytes_max: u64,
    /// Bytes in files without names, once memory is used up.
    pub disk_bytes_max: u64,
}

impl Default for PageOutputBudget {
    fn default() -> Self {
        Self { memory_bytes_max: 256 << 20, disk_bytes_max: 1 << 30 }
    }
}

/// One log of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Where it was asked for.
    pub place: Place,
    /// Its target, format and rotation.
    pub settings: LogSettings,
}
