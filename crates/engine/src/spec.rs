//! A configuration put to use: folders opened, hashes and pages checked, hosts and routes indexed. It never changes,
//! and all workers share it; a reload is another one.

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
use flatout_net::root::Root;
pub use flatout_pages::PagesShared;
use flatout_pages::PagesStep;
pub use flatout_pages::api::budget::Budget as PageBudget;
use flatout_proxy::{Accelerator, CacheStep, ProxyStep};
use flatout_serve::sources::SourceNames;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What a configuration is put to use with.
#[derive(Clone, Default)]
pub struct Sources<'a> {
    /// The configuration before this one: what has not changed keeps what was learnt under it.
    pub previous: Option<&'a Spec>,
    /// What a `metrics` step answers with; without it, nothing.
    pub metrics: Option<MetricsText>,
    /// What all proxies and caches of the process share; without it, nothing is kept of origins' answers.
    pub accelerator: Option<Arc<Accelerator>>,
    /// What all active pages of the process share.
    pub pages: Option<Arc<PagesShared>>,
}

impl Spec {
    /// Whether any site has active pages.
    pub const fn has_pages(&self) -> bool {
        !self.active.is_empty()
    }

    /// What all active pages of the process share.
    pub const fn pages(&self) -> &Arc<PagesShared> {
        &self.pages_shared
    }
}

impl fmt::Debug for Sources<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sources").field("previous", &self.previous.is_some()).finish_non_exhaustive()
    }
}

/// A configuration put to use.
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
    /// Where each of them stands.
    pub(crate) active_places: Vec<Place>,
    /// What all active pages of the process share.
    pub(crate) pages_shared: Arc<PagesShared>,
    pub(crate) php: Vec<PhpSpec>,
    /// What all proxies and caches of the process share.
    pub(crate) accelerator: Arc<Accelerator>,
    pub(crate) rates: Vec<(String, Arc<RateTable>)>,
    pub(crate) verifier: Option<Arc<Verifier>>,
    pub(crate) metrics: Option<MetricsText>,
    /// The number that the next `files` step gets which no step had before.
    pub(crate) next_files_id: u32,
}

/// One listener.
#[derive(Debug, Default)]
pub(crate) struct ListenerSpec {
    pub(crate) hosts: HostTable,
    pub(crate) redirect_https_port: Option<u16>,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) secure: bool,
    /// Where what concerns no site is logged.
    pub(crate) log: u8,
}

/// One site.
#[derive(Debug)]
pub(crate) struct SiteSpec {
    /// Its index among the sites.
    pub(crate) number: u32,
    pub(crate) place: Place,
    pub(crate) hosts: Vec<String>,
    /// The first name that is one host's, for requests that name none.
    pub(crate) name: Option<String>,
    pub(crate) log: u8,
    /// Whether some step leads to other servers, which have names and methods that a folder has not.
    pub(crate) forwards: bool,
    /// How scripts and pages are named, where some rule guards paths; `None` where nothing is guarded.
    pub(crate) guarded_names: Option<ScriptNames>,
    pub(crate) block: Block,
}

/// A folder that is held open for all workers.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    pub(crate) root: Arc<Root>,
    epoch: Arc<AtomicU64>,
    watched: bool,
}

/// A `files` step, or several that are the same.
#[derive(Clone, Debug)]
pub(crate) struct FilesSpec {
    pub(crate) id: u32,
    /// The folder, with those that its links may lead into.
    pub(crate) root: Arc<Root>,
    /// The folder alone, then those that its links may lead into: what is compared with an earlier configuration.
    folders: Vec<Arc<Root>>,
    pub(crate) settings: model::Files,
    pub(crate) recheck_ms: u64,
    pub(crate) epoch: Option<Arc<AtomicU64>>,
    /// Names whose content is not given out, as scripts or pages are run here.
    pub(crate) sources: Option<Arc<SourceNames>>,
}

impl FilesSpec {
    fn is_same(&self, other: &Self) -> bool {
        self.folders.len() == other.folders.len()
            && self.folders.iter().zip(&other.folders).all(|(own, theirs)| Arc::ptr_eq(own, theirs))
            && self.recheck_ms == other.recheck_ms
            && self.epoch.is_some() == other.epoch.is_some()
            && self.settings == other.settings
            && self.sources == other.sources
    }
}

/// A `php` step, and the folders from which its scripts may have files sent.
#[derive(Debug)]
pub(crate) struct PhpSpec {
    pub(crate) step: Arc<PhpStep>,
    /// Folders as they are written in X-Sendfile, each an index into [`Spec::files`].
    pub(crate) sendfile: Vec<(PathBuf, u32)>,
    /// Beginnings of addresses in X-Accel-Redirect, the longest first.
    pub(crate) accel: Vec<(String, u32)>,
}

/// An `error-page` step.
#[derive(Debug)]
pub(crate) struct PageSpec {
    pub(crate) place: Place,
    pub(crate) statuses: Vec<u16>,
    /// The file's name below its folder, encoded, with a slash before it.
    pub(crate) path: String,
    pub(crate) content_type: String,
    /// Index into [`Spec::files`].
    pub(crate) files: u32,
}

/// Changes of fields that one step makes.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) place: Place,
    /// Those that are the same for every request.
    pub(crate) fields: Vec<FieldOp>,
    /// Fields whose values take from the request: name and value.
    pub(crate) rendered: Vec<(String, Text)>,
}

impl Spec {
    /// Puts `config` to use, or says everything that stands against it.
    pub fn compile(config: &Config, sources: &Sources<'_>) -> Result<Self, Vec<SpecError>> {
        compile::compile(config, sources)
    }

    /// The forms that `target`, the path and query of a URL, has in the keys of stored responses: as it is, and as each
    /// `cache` step shortens its query.
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

    /// Every folder that requests may lead into, the parents of error pages included: what a sandbox must allow.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.folders.iter().map(|folder| folder.path.as_path())
    }

    /// Opens what active pages keep and ask, for `workers` workers; what is open already stays as it is. To be called as the
    /// user that the process runs as, before the configuration comes into force: until then its pages do not run.
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

    /// The folders in which active pages write: those of databases. Uploads go elsewhere, and where that is forbidden they stay
    /// in memory.
    pub fn written_folders(&self) -> impl Iterator<Item = PathBuf> {
        let databases = self.active.iter().filter_map(|step| step.settings().database.as_ref());
        databases.map(|database| match database.path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        })
    }

    /// Whether some origin or application server has a name, which must be looked up while the process runs.
    pub fn asks_by_name(&self) -> bool {
        self.proxies.iter().any(|proxy| proxy.asks_by_name())
            || self.php.iter().any(|php| php.step.asks_by_name())
            || self.active.iter().any(|step| {
                let upstreams = &step.settings().upstreams;
                upstreams.iter().any(|(_, origin)| origin.host.parse::<IpAddr>().is_err())
            })
    }

    /// Whether some step keeps origins' answers.
    pub fn keeps_answers(&self) -> bool {
        !self.proxies.is_empty() && self.cache_steps.iter().any(|step| step.is_enabled())
    }

    /// The folders below which the kernel should tell of changes, each with the number that is to be raised then.
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
