//! A `pages` or `page` step, shared by all workers: its folder, which is held open, and its settings.

use crate::api::ApiSettings;
use crate::backlog::Backlog;
use crate::messages::MessageWriter;
use crate::open::{Means, OpenResources};
use flatout_config::model::{PageSettings, Pages};
use flatout_os::root::Root;
use flatout_overload::QueueGauges;
use flatout_upstream::origin::OriginTls;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// State shared by all pages of the process.
#[derive(Debug, Default)]
pub struct PagesShared {
    /// Writes messages for operators.
    pub told: MessageWriter,
    /// Output that is buffered for clients.
    pub backlog: Backlog,
    /// The queues of short pages that are ready to run, one of each worker.
    pub short_queues: QueueGauges,
    /// The queues of long pages that take turns, one of each worker.
    pub long_queues: QueueGauges,
    /// The open resources of pages.
    pub(crate) opened: Mutex<OpenResources>,
}

/// A `pages` or `page` step.
#[derive(derive_more::Debug)]
#[debug("PagesStep {{ id: {id:?}, path: {:?}, .. }}", settings.path)]
pub struct PagesStep {
    id: u64,
    realm: String,
    pub(crate) root: Arc<Root>,
    settings: Pages,
    /// In a `page` step, the name of its only file relative to the folder.
    pub(crate) only: Option<String>,
    pub(crate) file_check_interval_ms: u64,
    /// Number of changes below the folder that the kernel has reported; `None` if the folder is not watched.
    pub(crate) epoch: Option<Arc<AtomicU64>>,
    /// The resources of the pages, once they are open.
    means: OnceLock<Means>,
}

/// The number of the next step to be created.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PagesStep {
    /// Returns whether this is a `page` step, whose only file handles every path.
    pub const fn is_single(&self) -> bool {
        self.only.is_some()
    }

    /// Creates a `pages` step for the open folder `root`, or a `page` step for the file `only` in it. `realm` separates
    /// the in-memory data of its pages from those of other realms. `site_file_check_interval_ms` applies if the step
    /// does not set an interval. `epoch` changes whenever the kernel reports a change below the folder.
    pub fn new(
        realm: &str,
        root: Arc<Root>,
        settings: Pages,
        only: Option<String>,
        site_file_check_interval_ms: u64,
        epoch: Option<Arc<AtomicU64>>,
    ) -> Self {
        let file_check_interval_ms = settings.settings.file_check_interval_ms.unwrap_or(site_file_check_interval_ms);
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            realm: realm.to_owned(),
            root,
            settings,
            only,
            file_check_interval_ms,
            epoch,
            means: OnceLock::new(),
        }
    }

    /// Returns whether a step with these parameters would be equal to this one.
    pub fn is(
        &self,
        realm: &str,
        root: &Arc<Root>,
        settings: &Pages,
        site_file_check_interval_ms: u64,
        is_watched: bool,
    ) -> bool {
        self.realm == realm
            && Arc::ptr_eq(&self.root, root)
            && self.settings == *settings
            && self.file_check_interval_ms
                == settings.settings.file_check_interval_ms.unwrap_or(site_file_check_interval_ms)
            && self.epoch.is_some() == is_watched
    }

    /// The number of the step, which is unique in the process.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The name that separates the in-memory data of the step's pages from those of other realms.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// The folder, or the file of a `page` step, as configured.
    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// The settings of the step's pages.
    pub fn settings(&self) -> &PageSettings {
        &self.settings.settings
    }

    /// The resources of the step's pages; `None` until [`PagesShared::open`] has been called.
    pub fn api(&self) -> Option<&Arc<ApiSettings>> {
        self.means.get().map(|means| &means.api)
    }

    /// The TLS settings for https upstreams; `None` if there are none.
    pub(crate) fn tls(&self) -> Option<Arc<OriginTls>> {
        self.means.get()?.tls.clone()
    }

    /// Sets the resources, after which pages can run. Only the first call has an effect.
    pub(crate) fn set_means(&self, means: Means) {
        // A step that was already open under the previous configuration keeps its resources.
        let _ = self.means.set(means);
    }

    /// Returns whether errors are shown in the browser and pages reload when they change.
    pub fn is_dev(&self) -> bool {
        self.settings.settings.dev
    }

    /// The folder that contains the pages.
    pub fn folder(&self) -> &Path {
        let folder = match &self.only {
            Some(_) => self.settings.path.parent().unwrap_or(Path::new("")),
            None => &self.settings.path,
        };
        folder.strip_prefix(".").unwrap_or(folder)
    }

    /// The display name of the file `name` in the folder.
    pub(crate) fn show(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }
}
