//! A `pages` or `page` step, shared by all workers: its folder, held open, and its settings.

use crate::api::ApiSettings;
use crate::backlog::Backlog;
use crate::messages::MessageWriter;
use crate::open::{Means, OpenResources};
use flatout_config::model::{PageSettings, Pages};
use flatout_os::root::Root;
use flatout_upstream::origin::OriginTls;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// State shared by all pages of a process.
#[derive(Debug, Default)]
pub struct PagesShared {
    /// Messages for operators.
    pub told: MessageWriter,
    /// Output buffered for clients.
    pub backlog: Backlog,
    /// Open resources of pages.
    pub(crate) opened: Mutex<OpenResources>,
}

/// A step for pages of one folder.
pub struct PagesStep {
    id: u64,
    realm: String,
    pub(crate) root: Arc<Root>,
    settings: Pages,
    /// The only page of a `page` step: its name below the folder.
    pub(crate) only: Option<String>,
    pub(crate) file_check_interval_ms: u64,
    /// Changes below the folder reported by the kernel; `None` if it is not watched.
    pub(crate) epoch: Option<Arc<AtomicU64>>,
    /// The resources of its pages, once open.
    means: OnceLock<Means>,
}

/// The next unique number of a step.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PagesStep {
    /// A `pages` step for `root`, which is open, or a `page` step for the file `only` in it. `realm` separates its
    /// pages' in-memory data from others; `site_file_check_interval_ms` is the site's setting; `epoch` changes when the kernel
    /// reports a change below the folder.
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

    /// Returns whether a step with these parameters would equal this one.
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

    /// Its number, unique in the process.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The realm that separates its pages' in-memory data from others.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// The folder, or the file of a `page` step, as configured.
    pub fn path(&self) -> &Path {
        &self.settings.path
    }

    /// The settings of its pages.
    pub fn settings(&self) -> &PageSettings {
        &self.settings.settings
    }

    /// The resources of its pages; `None` until [`PagesShared::open`].
    pub fn api(&self) -> Option<&Arc<ApiSettings>> {
        self.means.get().map(|means| &means.api)
    }

    /// TLS towards https upstreams.
    pub(crate) fn tls(&self) -> Option<Arc<OriginTls>> {
        self.means.get()?.tls.clone()
    }

    /// Sets the resources, so that pages can run. Only the first call has an effect.
    pub(crate) fn set_means(&self, means: Means) {
        // A step that was open under the previous configuration keeps its resources.
        let _ = self.means.set(means);
    }

    /// Returns whether errors are shown to visitors, and pages reload when they change.
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

    /// The display name of the file `name` below the folder.
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
