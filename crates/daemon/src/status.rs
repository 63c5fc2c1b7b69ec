//! The status of the process for operators, shared by the threads that update it and the admin thread.

use crate::limits::HeldCounters;
use crate::listeners::{AcceptQueues, Address};
use crate::messages::History;
use crate::overload::RefusalStatus;
use crate::store::{StatusRow, StoreView};
use crate::unsent::UnsentMemory;
use flatout_access_log::Logs;
use flatout_config::model::{Config, Protocol};
use flatout_os::clock;
use flatout_os::counter::Counter;
use flatout_os::send_memory::SendMemory;
use flatout_overload::QueueReading;
use flatout_reason::Table;
use flatout_server::Phase;
use flatout_server::counters::{Counters, sum_rows};
use flatout_server::settings::{RECEIVE_WINDOW_BYTES_MAX, SEND_BUFFER_BYTES_MAX};
use flatout_units::show;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Name and version of the schema. The version increases when a field changes its meaning or is removed; fields may be
/// added at any time.
pub const STATUS_SCHEMA: &str = "flatout-status/1";

/// Maximum number of reasons shown.
const REASONS_MAX: usize = 20;

/// State shared by all threads of the process.
pub(crate) struct StatusState {
    /// The counters of each worker.
    pub(crate) counters: Vec<Arc<Counters>>,
    /// The tables with the outcomes that the workers count.
    pub(crate) outcomes: &'static [&'static Table],
    started: Instant,
    started_unix_s: u64,
    /// Number of configurations that have been active, including the first.
    pub(crate) generation: AtomicU64,
    /// Number of reloads that failed because the configuration was invalid or could not be applied.
    pub(crate) reloads_refused: AtomicU64,
    /// Number of upgrades whose new process did not become ready.
    pub(crate) upgrades_failed: AtomicU64,
    logs: Arc<Logs>,
    view: Mutex<View>,
    /// The view of the store, which does not change as long as the process runs.
    pub(crate) store: Arc<dyn StoreView>,
    limits: Option<HeldCounters>,
    pub(crate) unsent: UnsentMemory,
    /// The process ID of the supervisor; 0 without one.
    supervisor: AtomicU32,
}

/// The part of the status that changes with a reload.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) config: Option<String>,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) sites: Vec<SiteStatus>,
    pub(crate) certificates: Vec<CertificateStatus>,
    pub(crate) phase: &'static str,
    pub(crate) landlock: bool,
    pub(crate) last_error: Option<String>,
    pub(crate) accept_queues: Vec<AcceptQueues>,
    pub(crate) overload: RefusalStatus,
    pub(crate) resources: RefusalStatus,
}

/// A listener as `flatout status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// The bound address with its port.
    pub address: String,
    /// `http` or `https`.
    pub protocol: String,
    /// The smallest receive buffer of the UDP sockets, in bytes; `None` if HTTP/3 is not served.
    #[serde(default)]
    pub http3_receive_bytes: Option<u64>,
}

/// A site as `flatout status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// The names of the site.
    pub hosts: Vec<String>,
    /// The addresses of the listeners that serve the site.
    pub listeners: Vec<String>,
}

/// A queue of connections or requests, over all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// The queue's name: `accept: ADDRESS`, `pages: short`, `pages: long`, `passwords` or `php: SERVER`.
    pub name: String,
    /// Number of waiting entries.
    pub waiting: u64,
    /// Maximum of that number. It is lower while more arrive than can be served in time.
    pub waiting_max: u64,
}

/// A certificate as `flatout status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The names for which the certificate is used.
    pub hosts: Vec<String>,
    /// The file of the certificate chain, or `internal`.
    pub source: String,
    /// Time at which the certificate expires, in seconds since 1970; `None` if unknown.
    pub not_after_unix_s: Option<i64>,
    /// Number of whole days until then; negative if the certificate has expired.
    pub days_left: Option<i64>,
}

/// A named count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The name, as in the counters: `outcome_…`, `refused_…` or `closed_…`.
    pub name: String,
    /// Number of events since the process started.
    pub count: u64,
}

/// The response to `GET /status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The version of the program.
    pub version: String,
    /// The process ID of the server; the supervisor's, if there is one.
    pub pid: u32,
    /// The process ID of the process that serves requests.
    #[serde(default)]
    pub worker_pid: u32,
    /// Time at which the process started, in seconds since 1970.
    pub started_unix_s: u64,
    /// Time since then, in seconds.
    pub uptime_s: u64,
    /// The phase: `serving`, `handing_over` or `draining`.
    pub phase: String,
    /// Number of configurations that have been active since the start, including the first.
    pub generation: u64,
    /// Number of reloads that failed because the configuration was invalid or could not be applied.
    pub reloads_refused: u64,
    /// Number of upgrades whose new process did not become ready.
    pub upgrades_failed: u64,
    /// The reason why the last reload or upgrade failed; `None` after a successful one.
    pub last_error: Option<String>,
    /// The configuration file; `None` for flags.
    pub config: Option<String>,
    /// Number of worker threads.
    pub workers: usize,
    /// True if Landlock confines the workers to the configured folders.
    pub landlock: bool,
    /// The addresses at which the server listens.
    pub listeners: Vec<ListenerStatus>,
    /// The configured sites, in the order of the file.
    pub sites: Vec<SiteStatus>,
    /// The certificates in use.
    pub certificates: Vec<CertificateStatus>,
    /// Number of open client connections. May be off by a few.
    pub connections_open: u64,
    /// Number of client connections accepted since the process started.
    pub connections_accepted: u64,
    /// Number of requests handled.
    pub requests: u64,
    /// Number of bytes handed to the kernel, including heads and bodies.
    pub bytes_sent: u64,
    /// Number of log lines that could not be written.
    pub log_lines_lost: u64,
    /// The state of the store of origin responses, as rows of text; empty if there is no store.
    #[serde(default)]
    pub store: Vec<StatusRow>,
    /// Connections and requests that are refused now because of overload.
    #[serde(default)]
    pub overload: RefusalStatus,
    /// Connections and requests that are refused now because file descriptors, ports or kernel memory have run out.
    #[serde(default)]
    pub resources: RefusalStatus,
    /// The queues of connections and requests.
    #[serde(default)]
    pub queues: Vec<QueueStatus>,
    /// The limits on connections, requests and buffers of clients, as rows of text.
    #[serde(default)]
    pub limits: Vec<StatusRow>,
    /// The most frequent reasons, in descending order of their counts.
    pub reasons: Vec<Count>,
}

/// Returns the phase's name as shown by `flatout status`.
pub(crate) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Serve => "serving",
        Phase::HandOver => "handing_over",
        Phase::Drain | Phase::Abandon => "draining",
    }
}

/// The current time, in seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    clock::unix_s().max(0).cast_unsigned()
}

impl StatusState {
    pub(crate) fn new(
        counters: Vec<Arc<Counters>>,
        outcomes: &'static [&'static Table],
        logs: Arc<Logs>,
        store: Arc<dyn StoreView>,
    ) -> Self {
        Self {
            counters,
            outcomes,
            started: clock::now(),
            started_unix_s: unix_s(),
            generation: AtomicU64::new(1),
            reloads_refused: AtomicU64::new(0),
            upgrades_failed: AtomicU64::new(0),
            logs,
            view: Mutex::new(View { phase: phase_name(Phase::Serve), ..View::default() }),
            store,
            limits: None,
            unsent: UnsentMemory::default(),
            supervisor: AtomicU32::new(0),
        }
    }

    /// Returns the state with the limits on connections and requests.
    pub(crate) fn with_limits(self, limits: HeldCounters) -> Self {
        Self { limits: Some(limits), ..self }
    }

    /// Locks the part that changes with a reload. It must be locked only briefly.
    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sum of one counter over all workers.
    pub(crate) fn sum(&self, pick: impl Fn(&Counters) -> u64) -> u64 {
        self.counters.iter().map(|counters| pick(counters)).sum()
    }

    /// Returns the number of open connections. Several threads update the counters concurrently, so the number may be
    /// off by a few.
    pub(crate) fn connections_open(&self) -> u64 {
        let closed = self.sum(|counters| counters.closes.iter().map(Counter::get).sum());
        self.sum(|counters| counters.connections_accepted.get()).saturating_sub(closed)
    }

    pub(crate) fn uptime_s(&self) -> u64 {
        clock::since(self.started).as_secs()
    }

    pub(crate) fn started_unix_s(&self) -> u64 {
        self.started_unix_s
    }

    /// Returns the number of log lines lost for any reason.
    pub(crate) fn log_lines_lost(&self) -> u64 {
        self.logs.lines_lost()
    }

    /// Sets the supervisor's process ID, and the counts that began before this process started.
    pub(crate) fn begin(&self, supervisor: Option<u32>, history: Option<History>) {
        self.supervisor.store(supervisor.unwrap_or(0), Ordering::Relaxed);
        if let Some(history) = history {
            self.generation.store(history.generation, Ordering::Relaxed);
            self.reloads_refused.store(history.reloads_refused, Ordering::Relaxed);
            self.upgrades_failed.store(history.upgrades_failed, Ordering::Relaxed);
        }
    }

    /// The process ID of the server.
    pub(crate) fn pid(&self) -> u32 {
        match self.supervisor.load(Ordering::Relaxed) {
            0 => std::process::id(),
            pid => pid,
        }
    }

    /// Returns the complete status.
    pub(crate) fn status(&self) -> Status {
        let view = self.view().clone();
        let now = i64::try_from(unix_s()).unwrap_or(i64::MAX);
        let mut certificates = view.certificates;
        for certificate in &mut certificates {
            certificate.days_left = certificate.not_after_unix_s.map(|end| (end - now).div_euclid(86_400));
        }
        Status {
            schema: STATUS_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: self.pid(),
            worker_pid: std::process::id(),
            started_unix_s: self.started_unix_s,
            uptime_s: self.uptime_s(),
            phase: view.phase.to_owned(),
            generation: self.generation.load(Ordering::Relaxed),
            reloads_refused: self.reloads_refused.load(Ordering::Relaxed),
            upgrades_failed: self.upgrades_failed.load(Ordering::Relaxed),
            last_error: view.last_error,
            config: view.config,
            workers: self.counters.len(),
            landlock: view.landlock,
            listeners: view.listeners,
            sites: view.sites,
            certificates,
            connections_open: self.connections_open(),
            connections_accepted: self.sum(|counters| counters.connections_accepted.get()),
            requests: self.sum(|counters| counters.requests.get()),
            bytes_sent: self.sum(|counters| counters.bytes_sent.get()),
            log_lines_lost: self.log_lines_lost(),
            store: self.store.status_rows(),
            overload: view.overload,
            resources: view.resources,
            queues: self.queues(),
            limits: self.limit_rows(),
            reasons: self.reasons(),
        }
    }

    /// Returns the state of all queues.
    pub(crate) fn queues(&self) -> Vec<QueueStatus> {
        let accepts = self.view().accept_queues.clone();
        let accepts = accepts.iter().filter_map(|queue| Some((format!("accept: {}", queue.address), queue.read()?)));
        let show = |(name, reading)| {
            let QueueReading { waiting, waiting_max } = reading;
            QueueStatus { name, waiting, waiting_max }
        };
        accepts.chain(self.store.queues()).map(show).collect()
    }

    fn limit_rows(&self) -> Vec<StatusRow> {
        let mut rows = self.limits.as_ref().map(HeldCounters::status_rows).unwrap_or_default();
        let budgets = [
            ("receive windows", self.sum(|c| c.receive_window_bytes.get()), RECEIVE_WINDOW_BYTES_MAX),
            ("send buffers", self.sum(|c| c.send_buffer_bytes.get()), SEND_BUFFER_BYTES_MAX),
        ];
        rows.extend(budgets.map(|(name, granted, worker_max)| {
            let (granted, worker_max) = (show::bytes(granted as f64), show::bytes(worker_max as f64));
            let value = format!("{granted} granted, at most {worker_max} per worker");
            StatusRow { name: name.to_owned(), value }
        }));
        let SendMemory { bytes, connections } = self.measure_unsent();
        let value = format!("{} of kernel memory, for {connections} TCP connections", show::bytes(bytes as f64));
        rows.push(StatusRow { name: "unsent responses".to_owned(), value });
        rows
    }

    fn reasons(&self) -> Vec<Count> {
        let is_reason = |name: &str| ["outcome_", "refused_", "closed_"].iter().any(|prefix| name.starts_with(prefix));
        let rows = sum_rows(&self.counters, self.outcomes).into_iter().filter(|(name, _)| is_reason(name));
        let mut reasons: Vec<Count> = rows.map(|(name, count)| Count { name, count }).collect();
        reasons.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.name.cmp(&other.name)));
        reasons.truncate(REASONS_MAX);
        reasons
    }
}

/// Describes the listeners and sites of `config`. `addresses` are the bound addresses.
pub(crate) fn describe(config: &Config, addresses: &[Address]) -> (Vec<ListenerStatus>, Vec<SiteStatus>) {
    let live = |index: usize| addresses.iter().find(|address| address.id as usize == index);
    let address_of = |index: usize| live(index).map(|address| address.bound.to_string());
    let listeners = config.listeners.iter().enumerate().filter_map(|(index, listener)| {
        let protocol = if listener.protocol == Protocol::Tls { "https" } else { "http" };
        let http3_receive_bytes = live(index)?.receive_bytes();
        Some(ListenerStatus { address: address_of(index)?, protocol: protocol.to_owned(), http3_receive_bytes })
    });
    let sites = config.sites.iter().map(|site| SiteStatus {
        hosts: site.hosts.clone(),
        listeners: site.listeners.iter().filter_map(|&index| address_of(index)).collect(),
    });
    (listeners.collect(), sites.collect())
}
