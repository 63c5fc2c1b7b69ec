//! The status of the process for operators, shared by the threads that update it and the admin thread.

use crate::store::{StatusRow, StoreView};
use flatout_access_log::Logs;
use flatout_config::model::{Config, Protocol};
use flatout_handler::ending::CloseReason;
use flatout_http::refusal::Refusal;
use flatout_os::counter::Counter;
use flatout_reason::Table;
use flatout_server::Phase;
use flatout_server::counters::Counters;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Name and number of the schema. The number increases if a field changes its meaning or is removed; fields may be
/// added any time.
pub const STATUS_SCHEMA: &str = "flatout-status/1";

/// Upper bound of reasons shown.
const REASONS_MAX: usize = 20;

/// State shared by all threads.
pub(crate) struct StatusState {
    /// One set per worker.
    pub(crate) counters: Vec<Arc<Counters>>,
    /// The tables with the workers' outcomes.
    pub(crate) outcomes: &'static [&'static Table],
    started: Instant,
    started_unix_s: u64,
    /// Configurations put in force, including the first.
    pub(crate) generation: AtomicU64,
    /// Refused reloads.
    pub(crate) reloads_refused: AtomicU64,
    /// Failed upgrades.
    pub(crate) upgrades_failed: AtomicU64,
    logs: Arc<Logs>,
    view: Mutex<View>,
    /// The view of the store; the same for the life of the process.
    pub(crate) store: Arc<dyn StoreView>,
}

/// The part that changes with a reload.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) config: Option<String>,
    pub(crate) listeners: Vec<ListenerStatus>,
    pub(crate) sites: Vec<SiteStatus>,
    pub(crate) certificates: Vec<CertificateStatus>,
    pub(crate) phase: &'static str,
    pub(crate) landlock: bool,
    pub(crate) last_error: Option<String>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its address.
    pub address: String,
    /// `http` or `https`.
    pub protocol: String,
}

/// One site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its names.
    pub hosts: Vec<String>,
    /// The listeners that serve it.
    pub listeners: Vec<String>,
}

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The names it is used for.
    pub hosts: Vec<String>,
    /// The file of its chain, or `internal`.
    pub source: String,
    /// When it expires, in seconds since 1970; `None` if unknown.
    pub not_after_unix_s: Option<i64>,
    /// Whole days until then; negative if it has expired.
    pub days_left: Option<i64>,
}

/// A named count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// As in the counters: `outcome_…`, `refused_…`, `closed_…`.
    pub name: String,
    /// The count.
    pub count: u64,
}

/// The response to `GET /status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: String,
    /// The program's version.
    pub version: String,
    /// The process ID.
    pub pid: u32,
    /// When it started, in seconds since 1970.
    pub started_unix_s: u64,
    /// Time since then, in seconds.
    pub uptime_s: u64,
    /// `serving`, `handing_over`, `draining`.
    pub phase: String,
    /// Configurations put in force since the start, including the first.
    pub generation: u64,
    /// Refused reloads.
    pub reloads_refused: u64,
    /// Failed upgrades.
    pub upgrades_failed: u64,
    /// Why the last reload or upgrade failed, until one succeeds.
    pub last_error: Option<String>,
    /// The configuration file; `None` for flags.
    pub config: Option<String>,
    /// Worker threads.
    pub workers: usize,
    /// True if Landlock confines them to the configured folders.
    pub landlock: bool,
    /// Addresses.
    pub listeners: Vec<ListenerStatus>,
    /// Sites.
    pub sites: Vec<SiteStatus>,
    /// Certificates.
    pub certificates: Vec<CertificateStatus>,
    /// Open connections.
    pub connections_open: u64,
    /// Connections accepted.
    pub connections_accepted: u64,
    /// Requests handled.
    pub requests: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Log lines that could not be written.
    pub log_lines_lost: u64,
    /// The store of origin responses as rows of text; empty if there is none.
    #[serde(default)]
    pub store: Vec<StatusRow>,
    /// The most frequent reasons, in descending order.
    pub reasons: Vec<Count>,
}

/// The name of a phase.
pub(crate) const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Serve => "serving",
        Phase::HandOver => "handing_over",
        Phase::Drain | Phase::Abandon => "draining",
    }
}

/// Seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
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
            started: Instant::now(),
            started_unix_s: unix_s(),
            generation: AtomicU64::new(1),
            reloads_refused: AtomicU64::new(0),
            upgrades_failed: AtomicU64::new(0),
            logs,
            view: Mutex::new(View { phase: phase_name(Phase::Serve), ..View::default() }),
            store,
        }
    }

    /// The changing part. Lock it only briefly.
    pub(crate) fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of one counter over all workers.
    pub(crate) fn sum(&self, pick: impl Fn(&Counters) -> u64) -> u64 {
        self.counters.iter().map(|counters| pick(counters)).sum()
    }

    /// Open connections. Several threads update the counters concurrently, so it may be off by a few.
    pub(crate) fn connections_open(&self) -> u64 {
        let closed = self.sum(|counters| counters.closes.iter().map(Counter::get).sum());
        self.sum(|counters| counters.connections_accepted.get()).saturating_sub(closed)
    }

    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    pub(crate) fn started_unix_s(&self) -> u64 {
        self.started_unix_s
    }

    /// Log lines lost for any reason.
    pub(crate) fn log_lines_lost(&self) -> u64 {
        self.logs.lines_lost()
    }

    /// The complete status.
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
            pid: std::process::id(),
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
            reasons: self.reasons(),
        }
    }

    fn reasons(&self) -> Vec<Count> {
        let mut reasons = Vec::new();
        let mut push = |name: String, count: u64| {
            if count > 0 {
                reasons.push(Count { name, count });
            }
        };
        for (index, name) in self.outcomes.iter().flat_map(|table| table.names).enumerate() {
            push(format!("outcome_{name}"), self.sum(|c| c.outcomes.get(index).map_or(0, Counter::get)));
        }
        for (index, refusal) in Refusal::ALL.iter().enumerate() {
            push(format!("refused_{}", refusal.name()), self.sum(|c| c.refusals[index].get()));
        }
        for (index, reason) in CloseReason::ALL.iter().enumerate() {
            push(format!("closed_{}", reason.name()), self.sum(|c| c.closes[index].get()));
        }
        reasons.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.name.cmp(&other.name)));
        reasons.truncate(REASONS_MAX);
        reasons
    }
}

/// The listeners and sites of `config`; `bound` has the bound address of each live listener.
pub(crate) fn describe(config: &Config, bound: &[(usize, String)]) -> (Vec<ListenerStatus>, Vec<SiteStatus>) {
    let address_of = |index: usize| bound.iter().find(|(id, _)| *id == index).map(|(_, address)| address.clone());
    let listeners = config.listeners.iter().enumerate().filter_map(|(index, listener)| {
        let protocol = if listener.protocol == Protocol::Tls { "https" } else { "http" };
        Some(ListenerStatus { address: address_of(index)?, protocol: protocol.to_owned() })
    });
    let sites = config.sites.iter().map(|site| SiteStatus {
        hosts: site.hosts.clone(),
        listeners: site.listeners.iter().filter_map(|&index| address_of(index)).collect(),
    });
    (listeners.collect(), sites.collect())
}
