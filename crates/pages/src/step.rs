//! A `pages` or `page` step, shared by all workers: its folder, held open, and its settings.

use crate::api::ApiSettings;
use crate::backlog::Backlog;
use crate::open::{Means, Opened};
use crate::told::Told;
use flatout_config::model::{PageSettings, Pages};
use flatout_net::origin::OriginTls;
use flatout_net::root::Root;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What all pages of a process share.
#[derive(Debug, Default)]
pub struct PagesShared {
    /// What operators are told.
    pub told: Told,
    /// Output of pages that waits for clients.
    pub backlog: Backlog,
    /// What has been opened for pages.
    pub(crate) opened: Mutex<Opened>,
}

/// A step for pages of one folder.
pub struct PagesStep {
    id: u64,
    realm: String,
    pub(crate) root: Arc<Root>,
    settings: Pages,
    /// The one page that answers, of a `page` step: its name below the folder.
    pub(crate) only: Option<String>,
    pub(crate) recheck_ms: u64,
    /// Changes below the folder that the kernel has told of; `None` when it is not asked to.
    pub(crate) epoch: Option<Arc<AtomicU64>>,
    /// What pages may use, once it is open.
    means: OnceLock<Means>,
}

/// The number that tells one step of a process from every other.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PagesStep {
    /// A `pages` step for `root`, which is open, or a `page` step for the file `only` in it. `realm` tells what its pages
    /// keep in memory from what those of others do; `site_recheck_ms` is what the site says; `epoch` changes when the kernel
    /// has told of a change below the folder.
    pub fn new(
        realm: &str,
        root: Arc<Root>,
        settings: Pages,
        only: Option<String>,
        site_recheck_ms: u64,
        epoch: Option<Arc<AtomicU64>>,
    ) -> Self {
        let recheck_ms = settings.settings.recheck_ms.unwrap_or(site_recheck_ms);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            realm: realm.to_owned(),
            root,
            settings,
            only,
            recheck_ms,
            epoch,
            means: OnceLock::new(),
        }
    }

    /// Whether a step made of these would be this one.
    pub fn is(&self, realm: &str, root: &Arc<Root>, settings: &Pages, site_recheck_ms: u64, is_watched: bool) -> bool {
        self.realm == realm
            && Arc::ptr_eq(&self.root, root)
            && self.settings == *settings
            && self.recheck_ms == settings.settings.recheck_ms.unwrap_or(site_recheck_ms)
            && self.epoch.is_some() == is_watched
    }

    /// Unique in the process.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// What tells what its pages keep in memory from what those of others do.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// The folder, or of a `page` step the file, as it was named.
    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// How pages run.
    pub fn settings(&self) -> &PageSettings {
        &self.settings.settings
    }

    /// What pages may use; `None` until [`PagesShared::open`].
    pub fn api(&self) -> Option<&Arc<ApiSettings>> {
        self.means.get().map(|means| &means.api)
    }

    /// How upstreams that are reached by https prove who they are.
    pub(crate) fn tls(&self) -> Option<Arc<OriginTls>> {
        self.means.get()?.tls.clone()
    }

    /// From now on pages run, and may use this. Only the first time counts.
    pub(crate) fn set_means(&self, means: Means) {
        // A step that has been open since the configuration before keeps what it has.
        let _ = self.means.set(means);
    }

    /// Whether errors are shown to visitors, and pages load again when they change.
    pub fn is_dev(&self) -> bool {
        self.settings.settings.dev
    }

    /// The folder of the pages.
    pub fn folder(&self) -> &Path {
        let folder = match &self.only {
            Some(_) => self.settings.path.parent().unwrap_or(Path::new("")),
            None => &self.settings.path,
        };
        folder.strip_prefix(".").unwrap_or(folder)
    }

    /// The file called `name` below the folder, as it is shown to people.
    pub(crate) fn show(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }
}

impl fmt::Debug for PagesStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PagesStep")
            .field("id", &self.id)
            .field("path", &self.settings.path)
            .finish_non_exhaustive()
    }
}
