//! A compiled configuration: folders opened, hashes and pages validated, hosts and routes indexed. It is immutable
//! and shared by all workers; a reload creates a new one.

mod compile;
mod php;
mod private;

use crate::auth::Verifier;
use crate::error::SpecError;
use crate::host::HostTable;
use crate::metrics::MetricsText;
use crate::rate::RateTable;
use crate::step::Block;
use crate::walk::readings::ScriptNames;
use flatout_config::model::{self, Config, FieldOp, Place, Text};
use flatout_fastcgi::PhpStep;
use flatout_os::root::Root;
pub use flatout_pages::PagesShared;
use flatout_pages::PagesStep;
pub use flatout_pages::api::budget::ContentBudget as PageBudget;
use flatout_proxy::{Accelerator, CacheStep, ProxyStep};
use flatout_serve::hidden::SourceNames;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Inputs of a compilation besides the configuration.
#[derive(Clone, Default)]
pub struct Sources<'a> {
    /// The previous configuration: unchanged parts retain their learnt state.
    pub previous: Option<&'a Spec>,
    /// Source of the `metrics` step; without it, the step has no content.
    pub metrics: Option<MetricsText>,
    /// State shared by all proxies and caches of the process; without it, no origin responses are stored.
    pub accelerator: Option<Arc<Accelerator>>,
    /// State shared by all active pages of the process.
    pub pages: Option<Arc<PagesShared>>,
}

impl Spec {
    /// Returns whether any site has active pages.
    pub const fn has_pages(&self) -> bool {
        !self.active.is_empty()
    }

    /// State shared by all active pages of the process.
    pub const fn pages(&self) -> &Arc<PagesShared> {
        &self.pages_shared
    }
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sources").field("previous", &self.previous.is_some()).finish_non_exhaustive()
    }
}

/// A compiled configuration.
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
    /// Steps of active pages.
    pub(crate) active: Vec<Arc<PagesStep>>,
    /// The place of each of them.
    pub(crate) active_places: Vec<Place>,
    /// State shared by all active pages of the process.
    pub(crate) pages_shared: Arc<PagesShared>,
    pub(crate) php: Vec<PhpSpec>,
    /// State shared by all proxies and caches of the process.
    pub(crate) accelerator: Arc<Accelerator>,
    pub(crate) rates: Vec<(String, Arc<RateTable>)>,
    pub(crate) verifier: Option<Arc<Verifier>>,
    pub(crate) metrics: Option<MetricsText>,
    /// The next unused number of a `files` step.
    pub(crate) next_files_id: u32,
}

/// One listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerSpec {
    pub(crate) hosts: HostTable,
    pub(crate) redirect_https_port: Option<u16>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) secure: bool,
    /// The log of requests that reach no site.
    pub(crate) log: u8,
}

/// One site.
#[derive(Debug)]
pub(crate) struct SiteSpec {
    /// Its index among the sites.
    pub(crate) number: u32,
    pub(crate) place: Place,
    pub(crate) hosts: Vec<String>,
    /// Its first exact name, for requests without host.
    pub(crate) name: Option<String>,
    pub(crate) log: u8,
    /// True if some step forwards to other servers, which support names and methods that a folder does not.
    pub(crate) forwards: bool,
    /// The names of scripts and pages, if some rule guards paths; `None` if none does.
    pub(crate) guarded_names: Option<ScriptNames>,
    pub(crate) block: Block,
}

/// A folder held open for all workers.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    pub(crate) root: Arc<Root>,
    epoch: Arc<AtomicU64>,
    watched: bool,
}

/// A `files` step, or several equal ones.
#[derive(Clone, Debug)]
pub(crate) struct FilesSpec {
    pub(crate) id: u32,
    /// The folder, with those that its links may lead into.
    pub(crate) root: Arc<Root>,
    /// The folder, then those that its links may lead into: compared with the previous configuration.
    folders: Vec<Arc<Root>>,
    pub(crate) settings: model::Files,
    pub(crate) file_check_interval_ms: u64,
    pub(crate) epoch: Option<Arc<AtomicU64>>,
    /// Names whose content is hidden, as they are scripts or pages.
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
    /// Folders as written in X-Sendfile, each with an index into [`Spec::files`].
    pub(crate) sendfile: Vec<(PathBuf, u32)>,
    /// Prefixes of paths in X-Accel-Redirect, the longest first.
    pub(crate) accel: Vec<(String, u32)>,
}

/// An `error-page` step.
#[derive(Debug)]
pub(crate) struct PageSpec {
    pub(crate) place: Place,
    pub(crate) statuses: Vec<u16>,
    /// The file's path below its folder, encoded, with a leading slash.
    pub(crate) path: String,
    pub(crate) content_type: String,
    /// Index into [`Spec::files`].
    pub(crate) files: u32,
}

/// Field operations of one step.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) place: Place,
    /// Operations that are the same for every request.
    pub(crate) fields: Vec<FieldOp>,
    /// Fields whose values depend on the request: name and value.
    pub(crate) rendered: Vec<(String, Text)>,
}

impl Spec {
    /// Compiles `config`.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn compile(config: &Config, sources: &Sources<'_>) -> Result<Self, Vec<SpecError>> {
        compile::compile(config, sources)
    }

    /// The forms that `target`, the path and query of a URL, has in the keys of stored responses: unchanged, and as
    /// each `cache` step normalises its query.
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

    /// Every folder that requests may reach, including the parents of error pages, for the sandbox.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// Opens the databases and connections of active pages, for `workers` workers; those already open are unchanged.
    /// Must be called as the user of the running process, before the configuration takes effect: until then its pages
    /// do not run.
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

    /// The folders in which active pages write, which are those of databases. Uploads go elsewhere, and stay in
    /// memory if that is forbidden.
    pub fn written_folders(&self) -> impl Iterator<Item = PathBuf> {
        let databases = self.active.iter().filter_map(|step| step.settings().database.as_ref());
        databases.map(|database| match database.path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        })
    }

    /// Returns whether some origin or application server has a name that must be resolved while the process runs.
    pub fn asks_by_name(&self) -> bool {
        self.proxies.iter().any(|proxy| proxy.asks_by_name())
            || self.php.iter().any(|php| php.step.asks_by_name())
            || self.active.iter().any(|step| {
                let upstreams = &step.settings().upstreams;
                upstreams.iter().any(|(_, origin)| origin.host.parse::<IpAddr>().is_err())
            })
    }

    /// Returns whether some step stores origin responses.
    pub fn keeps_answers(&self) -> bool {
        !self.proxies.is_empty() && self.cache_steps.iter().any(|step| step.is_enabled())
    }

    /// The folders to watch recursively, each with the counter to increment on changes.
    pub fn watched(&self) -> impl Iterator<Item = (&Path, &Arc<AtomicU64>)> {
        self.folders.iter().filter(|folder| folder.watched).map(|folder| (folder.path.as_path(), &folder.epoch))
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Spec")
            .field("listeners", &self.listeners)
            .field("sites", &self.sites)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
