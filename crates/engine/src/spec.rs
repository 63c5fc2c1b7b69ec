//! The compiled configuration: folders are open, password hashes and pages are validated, and hosts and routes are
//! indexed. It is immutable and shared by all workers. A reload creates a new one.

mod compile;
mod folders;
mod php;
mod private;

use crate::auth::Verifier;
use crate::error::SpecError;
use crate::host::HostTable;
use crate::metrics::MetricsText;
use crate::rate::RateTable;
use crate::step::Block;
use crate::walk::readings::ScriptNames;
use flatout_config::model::{self, Config, FieldOp, ListenAddress, Place, ProxySenders, Text, TrustedProxy};
use flatout_fastcgi::PhpStep;
use flatout_http::forwarded::Sender;
use flatout_os::root::Root;
use flatout_overload::QueueReading;
pub use flatout_pages::PagesShared;
use flatout_pages::PagesStep;
pub use flatout_pages::api::budget::ContentBudget as PageBudget;
use flatout_proxy::{Accelerator, CacheStep, ProxyStep};
use flatout_serve::hidden::SourceNames;
use flatout_upstream::events::OriginState;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Inputs of a compilation, besides the configuration.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Sources(previous: {})", previous.is_some())]
pub struct Sources<'a> {
    /// The previous configuration, whose state is retained for unchanged parts.
    pub previous: Option<&'a Spec>,
    /// Source of the metrics for `metrics` steps. If it is `None`, their content is empty.
    pub metrics: Option<MetricsText>,
    /// State shared by all proxies and caches in the process. If it is `None`, no origin responses are stored.
    pub accelerator: Option<Arc<Accelerator>>,
    /// State shared by all active pages in the process.
    pub pages: Option<Arc<PagesShared>>,
}

impl Spec {
    /// Returns whether any site has active pages.
    pub const fn has_pages(&self) -> bool {
        !self.active.is_empty()
    }

    /// The bytes of requests and responses that `php` steps buffer now, and their maximum, by the application server's
    /// address. Steps with the same address are added up.
    pub fn php_buffers(&self) -> BTreeMap<String, (u64, u64)> {
        let mut buffers = BTreeMap::new();
        for PhpSpec { step, .. } in &self.php {
            let (held_bytes, bytes_max) = buffers.entry(step.describe()).or_insert((0, 0_u64));
            *held_bytes += step.buffered_bytes();
            *bytes_max = bytes_max.saturating_add(step.settings().spool_total_bytes_max);
        }
        buffers
    }

    /// Returns the `php` steps of all sites.
    pub fn php_steps(&self) -> impl Iterator<Item = &PhpStep> {
        self.php.iter().map(|php| &*php.step)
    }

    /// The states of the application servers of which operators are notified.
    pub fn php_states(&self) -> impl Iterator<Item = OriginState> {
        self.php.iter().map(|php| php.step.state())
    }

    /// The queues of requests that wait for a page's turn, a password's verification or an application server, by name.
    pub fn queues(&self) -> Vec<(String, QueueReading)> {
        let mut queues = Vec::new();
        if self.has_pages() {
            let PagesShared { short_queues, long_queues, .. } = &*self.pages_shared;
            for (name, gauges) in [("pages: short", short_queues), ("pages: long", long_queues)] {
                queues.push((name.to_owned(), gauges.read()));
            }
        }
        queues.extend(self.verifier.as_ref().map(|verifier| ("passwords".to_owned(), verifier.queue())));
        for PhpSpec { step, .. } in &self.php {
            queues.push((format!("php: {}", step.describe()), step.load().queue()));
        }
        queues
    }

    /// State shared by all active pages in the process.
    pub const fn pages(&self) -> &Arc<PagesShared> {
        &self.pages_shared
    }
}

/// A compiled configuration.
#[derive(derive_more::Debug)]
#[debug("Spec {{ listeners: {listeners:?}, sites: {sites:?}, .. }}")]
pub struct Spec {
    pub(crate) listeners: Vec<ListenerSpec>,
    pub(crate) sites: Vec<SiteSpec>,
    pub(crate) folders: Vec<Folder>,
    pub(crate) files: Vec<FilesSpec>,
    pub(crate) pages: Vec<PageSpec>,
    pub(crate) hints: Vec<Vec<String>>,
    pub(crate) changes: Vec<Change>,
    pub(crate) proxies: Vec<Arc<ProxyStep>>,
    pub(crate) cache_steps: Vec<Arc<CacheStep>>,
    /// The `pages` and `page` steps.
    pub(crate) active: Vec<Arc<PagesStep>>,
    /// Place of each of the steps in `active`.
    pub(crate) active_places: Vec<Place>,
    /// State shared by all active pages in the process.
    pub(crate) pages_shared: Arc<PagesShared>,
    pub(crate) php: Vec<PhpSpec>,
    /// State shared by all proxies and caches in the process.
    pub(crate) accelerator: Arc<Accelerator>,
    pub(crate) rates: Vec<(String, Arc<RateTable>)>,
    /// Proxies that all sites trust.
    pub(crate) trusted: Vec<TrustedProxy>,
    pub(crate) verifier: Option<Arc<Verifier>>,
    pub(crate) metrics: Option<MetricsText>,
    /// Next unused number for a `files` step.
    pub(crate) next_files_id: u32,
}

/// The compiled configuration of a listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerSpec {
    pub(crate) hosts: HostTable,
    pub(crate) redirect_https_port: Option<u16>,
    pub(crate) address: Option<ListenAddress>,
    pub(crate) secure: bool,
    pub(crate) http3: bool,
    pub(crate) proxy_protocol: Option<ProxySenders>,
    /// The log for requests that reach no site.
    pub(crate) log: u8,
}

impl ListenerSpec {
    /// Returns whether this is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        self.address.as_ref().is_some_and(|address| address.path().is_some())
    }
}

/// The compiled configuration of a site.
#[derive(Debug)]
pub(crate) struct SiteSpec {
    /// Index of the site in [`Spec::sites`].
    pub(crate) number: u32,
    pub(crate) place: Place,
    pub(crate) hosts: Vec<String>,
    /// The site's first exact name, for requests without a host.
    pub(crate) name: Option<String>,
    pub(crate) log: u8,
    /// True if any step forwards requests to other servers, which may support paths and methods that static files do
    /// not.
    pub(crate) forwards: bool,
    /// True if a path with empty segments may be for another server, to which a step forwards or redirects the request.
    pub(crate) keeps_empty_segments: bool,
    /// The names of scripts and pages, if any route restricts access to some paths.
    pub(crate) script_names: Option<ScriptNames>,
    pub(crate) block: Block,
}

/// A folder that stays open for all workers.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// The owner's user ID.
    owner: u32,
    pub(crate) root: Arc<Root>,
    epoch: Arc<AtomicU64>,
    watched: bool,
}

impl Folder {
    pub(crate) fn opened(&self) -> OpenedFolder {
        OpenedFolder { path: self.path.clone(), identity: self.identity, owner: self.owner }
    }
}

/// A folder that a configuration has opened, as its path named it then.
#[derive(Clone, Debug)]
pub struct OpenedFolder {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    /// The owner's user ID.
    owner: u32,
}

impl OpenedFolder {
    /// The path as configured.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns why `next`, the folder that the same path names now, must not be served without a command of an operator,
    /// as the end of a sentence. Returns `None` if it may: it belongs to the same user, or to root.
    pub fn describe_foreign(&self, next: &Self) -> Option<String> {
        let is_foreign = next.owner != self.owner && next.owner != 0;
        is_foreign.then(|| format!("belongs to another user than before (uid {})", next.owner))
    }

    /// Returns the folder that the path names now, if it is another one. A path that names none does not count: until
    /// there is another folder, the one that was opened is the best one.
    pub fn replacement(&self) -> Option<Self> {
        let now = self.path.metadata().ok().filter(Metadata::is_dir)?;
        let next = Self { path: self.path.clone(), identity: (now.dev(), now.ino()), owner: now.uid() };
        (next.identity != self.identity).then_some(next)
    }
}

/// A `files` step, or several equal `files` steps.
#[derive(Clone, Debug)]
pub(crate) struct FilesSpec {
    pub(crate) id: u32,
    /// The folder, including the folders that its symbolic links may lead to.
    pub(crate) root: Arc<Root>,
    /// The folder, followed by the folders that its symbolic links may lead to, for comparison with the previous
    /// configuration.
    folders: Vec<Arc<Root>>,
    pub(crate) settings: model::Files,
    pub(crate) file_check_interval_ms: u64,
    pub(crate) epoch: Option<Arc<AtomicU64>>,
    /// Names whose content must not be disclosed because they are scripts or pages.
    pub(crate) sources: Option<Arc<SourceNames>>,
}

impl FilesSpec {
    fn is_same(&self, other: &Self) -> bool {
        self.folders.len() == other.folders.len()
            && self.folders.iter().zip(&other.folders).all(|(own, theirs)| Arc::ptr_eq(own, theirs))
            && self.file_check_interval_ms == other.file_check_interval_ms
            && self.epoch.is_some() == other.epoch.is_some()
            && self.settings == other.settings
            && self.sources == other.sources
    }
}

/// A `php` step, and the folders from which its scripts may send files.
#[derive(Debug)]
pub(crate) struct PhpSpec {
    pub(crate) step: Arc<PhpStep>,
    /// Folders as they appear in X-Sendfile, each with an index into [`Spec::files`].
    pub(crate) sendfile: Vec<(PathBuf, u32)>,
    /// Prefixes of paths in X-Accel-Redirect, longest first, each with an index into [`Spec::files`].
    pub(crate) accel: Vec<(String, u32)>,
}

/// An `error-page` step.
#[derive(Debug)]
pub(crate) struct PageSpec {
    pub(crate) place: Place,
    pub(crate) statuses: Vec<u16>,
    /// Path of the file below its folder, percent-encoded and with a leading slash.
    pub(crate) path: String,
    /// Index into [`Spec::files`].
    pub(crate) files: u32,
}

/// Header operations of a step.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) place: Place,
    /// Header operations that are the same for every request.
    pub(crate) fields: Vec<FieldOp>,
    /// Fields whose values depend on the request, as name and value.
    pub(crate) rendered: Vec<(String, Text)>,
}

impl Spec {
    /// Compiles a configuration.
    ///
    /// # Errors
    /// Returns all problems that were found.
    pub fn compile(config: &Config, sources: &Sources<'_>) -> Result<Self, Vec<SpecError>> {
        compile::compile(config, sources)
    }

    /// Returns the forms that `target`, the path and query of a URL, may have in cache keys: unchanged, and with the
    /// query as reduced by each `cache` step.
    pub fn key_targets(&self, target: &str) -> Vec<String> {
        let mut targets = vec![target.to_owned()];
        for step in &self.cache_steps {
            let shortened = step.key_target(target);
            if !targets.contains(&shortened) {
                targets.push(shortened);
            }
        }
        targets
    }

    /// Returns every folder that requests may reach, including the parents of error pages, for the sandbox.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// Returns the same folders, to find out later whether their paths name others.
    pub fn opened_folders(&self) -> Vec<OpenedFolder> {
        self.folders.iter().map(Folder::opened).collect()
    }

    /// Opens the databases and connections of active pages, for `workers` workers. Those that are already open stay
    /// unchanged. Returns descriptions of what was applied, such as migrations. Must be called as the user of the
    /// running process, before the configuration takes effect.
    pub fn open_pages(&self, workers: usize) -> Result<Vec<String>, Vec<SpecError>> {
        let (mut applied, mut errors) = (Vec::new(), Vec::new());
        for (step, place) in self.active.iter().zip(&self.active_places) {
            match self.pages_shared.open(step, workers) {
                Ok(lines) => applied.extend(lines),
                Err((what, advice)) => errors.push(SpecError::new(place, what, advice)),
            }
        }
        if errors.is_empty() { Ok(applied) } else { Err(errors) }
    }

    /// Uses the secrets that [`open_pages`](Self::open_pages) has read again, because the configuration takes effect.
    pub fn use_secrets(&self) {
        self.active.iter().for_each(|step| step.use_secret());
    }

    /// Creates missing secrets of active pages. Called for a process that is allowed to read but not to create them.
    ///
    /// # Errors
    /// Returns all secrets that cannot be created or used.
    pub fn create_secrets(&self) -> Result<(), Vec<SpecError>> {
        let errors = self.faults_of_pages(PagesStep::create_secret);
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Returns the faults of the migrations of active pages that show without a database.
    pub fn check_migrations(&self) -> Vec<SpecError> {
        self.faults_of_pages(PagesStep::check_migrations)
    }

    fn faults_of_pages(&self, check: fn(&PagesStep) -> Result<(), (String, String)>) -> Vec<SpecError> {
        let steps = self.active.iter().zip(&self.active_places);
        let faults = steps.filter_map(|(step, place)| {
            let (what, advice) = check(step).err()?;
            Some(SpecError::new(place, what, advice))
        });
        faults.collect()
    }

    /// Returns the folders that active pages write to, which are those of their databases. Uploads are written
    /// elsewhere, or kept in memory if that is not allowed.
    pub fn written_folders(&self) -> impl Iterator<Item = PathBuf> {
        let databases = self.active.iter().filter_map(|step| step.settings().database.as_ref());
        databases.map(|database| match database.path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        })
    }

    /// Returns whether any origin or application server has a host name that must be resolved while the process is
    /// running.
    pub fn asks_by_name(&self) -> bool {
        self.proxies.iter().any(|proxy| proxy.asks_by_name())
            || self.php.iter().any(|php| php.step.asks_by_name())
            || self.active.iter().any(|step| {
                let upstreams = &step.settings().upstreams;
                upstreams.iter().any(|(_, origin)| origin.host.parse::<IpAddr>().is_err())
            })
    }

    /// Returns the peers that may send PROXY headers to a listener; `None` if its connections have none.
    pub(crate) fn proxy_senders(&self, listener: u32) -> Option<&ProxySenders> {
        self.listeners.get(listener as usize)?.proxy_protocol.as_ref()
    }

    /// Returns whether all sites, or any step, trust `client` as a proxy.
    pub fn trusts(&self, client: IpAddr) -> bool {
        self.trust_lists().any(|proxies| model::is_trusted(proxies, Sender::Ip(client)))
    }

    /// Returns the proxies that all sites trust, and then those that each handler trusts.
    pub(crate) fn trust_lists(&self) -> impl Iterator<Item = &[TrustedProxy]> {
        let of_pages = self.active.iter().map(|step| step.settings().trusted.as_slice());
        let of_php = self.php.iter().map(|php| php.step.settings().trusted.as_slice());
        let of_proxies = self.proxies.iter().map(|proxy| proxy.trusted());
        std::iter::once(self.trusted.as_slice()).chain(of_proxies).chain(of_pages).chain(of_php)
    }

    /// Returns whether any step stores responses of origins.
    pub fn keeps_answers(&self) -> bool {
        !self.proxies.is_empty() && self.cache_steps.iter().any(|step| step.is_enabled())
    }

    /// Returns the folders to watch recursively, each with the counter to increment on changes.
    pub fn watched(&self) -> impl Iterator<Item = (&Path, &Arc<AtomicU64>)> {
        self.folders.iter().filter(|folder| folder.watched).map(|folder| (folder.path.as_path(), &folder.epoch))
    }
}

#[cfg(test)]
mod tests;
