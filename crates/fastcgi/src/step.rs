//! A `php` step, shared by all workers.

use crate::split::{Meaning, ScriptRules, find_script};
use crate::spool::SpoolBudget;
use flatout_balance::limit::ConcurrencyLimiter;
use flatout_config::model::{Concurrency, Php, PhpAddress};
use flatout_os::root::Root;
use flatout_upstream::fastcgi::{FastcgiAddress, FastcgiSettings};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ten times the timer resolution in milliseconds, or more, so that congestion is detected early.
const EXACT_MS: u64 = 500;

/// Lower bound of the concurrency limit: small pools have two processes.
const CONCURRENCY_MIN: u32 = 2;

/// One `php` step.
pub struct PhpStep {
    /// Unique ID within the process.
    pub(crate) id: u64,
    pub(crate) settings: Php,
    pub(crate) rules: ScriptRules,
    folder: Root,
    pub(crate) address: FastcgiAddress,
    /// The root as seen by the application server, without a trailing slash.
    pub(crate) root: Vec<u8>,
    pub(crate) budget: Arc<SpoolBudget>,
    /// Requests at once: as many as the server has processes for, found by trials.
    pub(crate) limiter: Arc<ConcurrencyLimiter>,
}

impl PhpStep {
    /// Creates the step from `settings`, and opens its root.
    ///
    /// # Errors
    /// Fails if the root cannot be opened.
    pub fn new(settings: &Php) -> io::Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let root = match &settings.script_root {
            Some(root) => root.clone(),
            // Resolve links: both sides see a changed link at the next reload, not before.
            None => settings.root.canonicalize()?,
        };
        let mut root = root.as_os_str().as_bytes().to_vec();
        while root.last() == Some(&b'/') {
            root.pop();
        }
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            rules: ScriptRules {
                suffixes: settings.split.clone(),
                index: settings.index.clone(),
                front_controller: settings.front_controller.clone(),
            },
            folder: Root::open(&settings.root)?,
            address: match &settings.address {
                PhpAddress::Unix(path) => FastcgiAddress::Unix(path.clone()),
                PhpAddress::Tcp(host, port) => FastcgiAddress::Tcp(host.clone(), *port),
            },
            root,
            budget: Arc::default(),
            limiter: ConcurrencyLimiter::new(&Concurrency {
                min: CONCURRENCY_MIN,
                max: settings.connections_max,
                ..Concurrency::default()
            }),
            settings: settings.clone(),
        })
    }

    /// Returns whether the step has these `settings`, and its root is still the folder of that name.
    pub fn is(&self, settings: &Php) -> bool {
        let identity = Root::open(&settings.root).and_then(|folder| folder.identity());
        self.settings == *settings && identity.is_ok_and(|now| self.folder.identity().is_ok_and(|then| then == now))
    }

    /// Returns whether the application server has a host name, which requires DNS.
    pub fn asks_by_name(&self) -> bool {
        self.address.is_named()
    }

    /// The settings.
    pub const fn settings(&self) -> &Php {
        &self.settings
    }

    /// The application server as text.
    pub fn describe(&self) -> String {
        self.address.to_string()
    }

    /// Maps `decoded`, the output of `flatout_http::path::decode_path`.
    pub fn find(&self, decoded: &[u8]) -> Meaning {
        find_script(decoded, &self.rules, &self.folder)
    }

    /// Path of a script as seen by the application server, as text.
    pub fn show_file(&self, script: &[u8]) -> String {
        format!("{}/{}", String::from_utf8_lossy(&self.root), String::from_utf8_lossy(script))
    }

    pub(crate) fn client_settings(&self) -> FastcgiSettings {
        let timeouts = &self.settings.timeouts;
        FastcgiSettings {
            connect_timeout_ms: timeouts.connect_timeout_ms,
            shortest_timeout_ms: timeouts
                .head_timeout_ms
                .min(timeouts.body_timeout_ms)
                .min(timeouts.stream_timeout_ms)
                .min(EXACT_MS),
            idle_timeout_ms: timeouts.idle_timeout_ms,
            idle_connections_max: self.settings.idle_connections_max,
        }
    }
}

impl fmt::Debug for PhpStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PhpStep").field("address", &self.address).finish_non_exhaustive()
    }
}
