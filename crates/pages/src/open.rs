//! Opening the resources of pages: opens and migrates databases, reads or creates secrets, loads upstreams.
//!
//! This runs as the process's user before pages run, and not on an event loop. Resources that an earlier configuration
//! opened stay open, so a reload loses nothing.

use crate::api::budget::ContentBudget;
use crate::api::password::Passwords;
use crate::api::secret::{SecretError, SecretFile};
use crate::api::{ApiSettings, BodyLimits};
use crate::step::{PagesShared, PagesStep};
use flatout_config::model::{Database as DatabaseSettings, PageSettings};
use flatout_data::migration::read_folder;
use flatout_data::{Database, Kv, KvLimits, Limits};
use flatout_http::url::OriginAddress;
use flatout_upstream::origin::{OriginTls, OriginTlsSettings};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
pub(crate) struct OpenResources {
    /// In-memory values by the name of the site. They exist as long as the process.
    kvs: BTreeMap<String, Arc<Kv>>,
    /// The budget for content held by the pages of all sites.
    budget: Arc<ContentBudget>,
    /// The password service.
    passwords: Arc<Passwords>,
    /// The resources of steps, which live as long as any step uses them.
    settings: Vec<(Wishes, Weak<ApiSettings>, Option<Arc<OriginTls>>)>,
}

/// The resources of the pages of one step.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) api: Arc<ApiSettings>,
    pub(crate) tls: Option<Arc<OriginTls>>,
}

/// The key that identifies the resources of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wishes {
    realm: String,
    /// Only the settings that concern resources; all others have their defaults.
    settings: PageSettings,
}

impl Wishes {
    fn of(step: &PagesStep) -> Self {
        let PageSettings { upload_bytes_max, form_bytes_max, database, secret, upstreams, .. } =
            step.settings().clone();
        let settings =
            PageSettings { upload_bytes_max, form_bytes_max, database, secret, upstreams, ..PageSettings::default() };
        Self { realm: step.realm().to_owned(), settings }
    }
}

impl PagesShared {
    fn opened(&self) -> MutexGuard<'_, OpenResources> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budget for content held by pages: forms, uploaded files, upstream responses.
    pub fn contents(&self) -> Arc<ContentBudget> {
        Arc::clone(&self.opened().budget)
    }

    /// Opens the resources of the pages of `step`, for `workers` workers. If they are already open, reads the secret
    /// again and applies new migrations. Returns a line about the migrations that were applied to the database, if any.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// The problem and the suggested remedy.
    pub fn open(&self, step: &PagesStep, workers: usize) -> Result<Option<String>, (String, String)> {
        // The output of one page must always fit.
        self.backlog.memory().make_room_for(step.settings().memory_bytes_max);
        if let Some(api) = step.api() {
            return refresh(api, step.settings());
        }
        let wishes = Wishes::of(step);
        let mut opened = self.opened();
        opened.settings.retain(|(_, settings, _)| settings.strong_count() > 0);
        let known = opened.settings.iter().find(|(known, ..)| *known == wishes);
        let known = known.and_then(|(_, api, tls)| Some(Means { api: api.upgrade()?, tls: tls.clone() }));
        if let Some(means) = known {
            let applied = refresh(&means.api, step.settings())?;
            step.set_means(means);
            return Ok(applied);
        }
        let (budget, passwords) = (Arc::clone(&opened.budget), Arc::clone(&opened.passwords));
        let kv = opened.kvs.entry(wishes.realm.clone()).or_insert_with(|| Arc::new(Kv::new(KvLimits::default())));
        let kv = Arc::clone(kv);
        let (means, applied) = open(&wishes, kv, budget, passwords, workers)?;
        opened.settings.push((wishes, Arc::downgrade(&means.api), means.tls.clone()));
        step.set_means(means);
        Ok(applied)
    }
}

/// Reads the secret again, for [`PagesStep::use_secret`], and applies new migrations.
fn refresh(api: &ApiSettings, settings: &PageSettings) -> Result<Option<String>, (String, String)> {
    if let Some(secret) = &api.secret {
        secret.reread().map_err(|error| bad_secret(secret.path(), &error))?;
    }
    match api.database.as_ref().zip(settings.database.as_ref()) {
        // A migration of the former file would not help.
        Some((database, _)) if database.is_replaced() => Ok(Some(format!(
            "warning: {} has been replaced while it is open: pages go on with the former file, and changes will be lost; stop \
             flatout, put the file back in place, delete its -wal and -shm files, and start flatout",
            database.path().display()
        ))),
        Some((database, settings)) => migrate(database, settings),
        None => Ok(None),
    }
}

fn open(
    Wishes { realm, settings }: &Wishes,
    kv: Arc<Kv>,
    budget: Arc<ContentBudget>,
    passwords: Arc<Passwords>,
    workers: usize,
) -> Result<(Means, Option<String>), (String, String)> {
    let secret = settings.secret.as_deref().map(|path| open_secret(path, realm)).transpose()?;
    budget.make_room_for(settings.form_bytes_max.saturating_add(settings.upload_bytes_max));
    let (database, applied) = match &settings.database {
        Some(settings) => {
            let database = open_database(settings, workers)?;
            let applied = migrate(&database, settings)?;
            (Some(database), applied)
        }
        None => (None, None),
    };
    let upstreams = settings
        .upstreams
        .iter()
        .map(|(name, origin)| (name.clone(), OriginAddress::new(origin.secure, &origin.host, origin.port)));
    let tls = if settings.upstreams.iter().any(|(_, origin)| origin.secure) {
        let loaded = OriginTls::load(&OriginTlsSettings::default());
        let advice = "install this machine's CA certificates, for example with the package ca-certificates";
        Some(loaded.map_err(|error| (format!("an upstream uses https: {error}"), advice.to_owned()))?)
    } else {
        None
    };
    let api = ApiSettings {
        body: BodyLimits { form_bytes_max: settings.form_bytes_max, upload_bytes_max: settings.upload_bytes_max },
        budget,
        passwords,
        spool_folder: spool_folder(),
        secret,
        database,
        kv,
        upstreams: upstreams.collect(),
        zone: TimeZone::system(),
    };
    Ok((Means { api: Arc::new(api), tls }, applied))
}

/// The folder for large uploaded files while a page processes them. They are unnamed files, which are deleted when the
/// request ends.
pub fn spool_folder() -> PathBuf {
    std::env::temp_dir()
}

impl PagesStep {
    /// Uses the secret that was last read, so that keys removed from it are invalid after a reload.
    pub fn use_secret(&self) {
        if let Some(secret) = self.api().and_then(|api| api.secret.as_ref()) {
            secret.use_read();
        }
    }

    /// Checks the names and sizes of the migrations, without opening the database.
    ///
    /// # Errors
    /// The problem and the suggested remedy.
    pub fn check_migrations(&self) -> Result<(), (String, String)> {
        let folder = self.settings().database.as_ref().and_then(|database| database.migrations.as_ref());
        let Some(folder) = folder else { return Ok(()) };
        let what = || format!("the migrations in `{}` cannot be applied", folder.display());
        read_folder(folder).map(drop).map_err(|error| failed(&what(), &error))
    }

    /// Creates the secret of the step's pages if it is configured and does not exist. This is for a process that starts
    /// another process that may read the secret but not create it.
    ///
    /// # Errors
    /// The problem and the suggested remedy.
    pub fn create_secret(&self) -> Result<(), (String, String)> {
        self.settings().secret.as_deref().map_or(Ok(()), |path| open_secret(path, self.realm()).map(drop))
    }
}

fn open_secret(path: &Path, realm: &str) -> Result<Arc<SecretFile>, (String, String)> {
    SecretFile::open(path, realm).map(Arc::new).map_err(|error| bad_secret(path, &error))
}

fn bad_secret(path: &Path, error: &SecretError) -> (String, String) {
    let what = format!("the secret `{}` cannot be used: {error}", path.display());
    (what, "use a file that this user can read and write, in an existing folder".to_owned())
}

/// The limits of a page's use of a database, which are lower than those of a program that owns the database. A result
/// as large as a page and a file that was uploaded in one piece are within these limits.
pub fn database_limits() -> Limits {
    Limits { rows_max: 1_000, bytes_max: 2 << 20, ..Limits::default() }
}

fn open_database(settings: &DatabaseSettings, workers: usize) -> Result<Database, (String, String)> {
    let path = &settings.path;
    let usual = database_limits();
    let limits = Limits { statement_max_ms: settings.statement_ms_max.unwrap_or(usual.statement_max_ms), ..usual };
    let database = Database::open(path, settings.readers.unwrap_or(workers).max(1), limits)
        .map_err(|error| failed(&format!("the database `{}` cannot be used", path.display()), &error))?;
    if settings.syncs_commits {
        database
            .sync_commits()
            .map_err(|error| failed(&format!("the database `{}` cannot sync every commit", path.display()), &error))?;
    }
    Ok(database)
}

/// Applies pending migrations. Returns a line with their names, or `None` if there are none.
fn migrate(database: &Database, settings: &DatabaseSettings) -> Result<Option<String>, (String, String)> {
    let Some(folder) = &settings.migrations else { return Ok(None) };
    let path = settings.path.display();
    let applied = database.migrate(folder).map_err(|error| {
        failed(&format!("the migrations in `{}` cannot be applied to `{path}`", folder.display()), &error)
    })?;
    Ok((!applied.is_empty()).then(|| format!("migrations applied to {path}: {}", applied.join(", "))))
}

fn failed(what: &str, error: &flatout_data::DataError) -> (String, String) {
    (format!("{what}: {} [{}]", error.to_string().trim_end_matches('.'), error.reason.name()), advice(error))
}

fn advice(error: &flatout_data::DataError) -> String {
    use flatout_data::DataReason;
    match error.reason {
        DataReason::FileMissing => "create its folder, or correct its name",
        DataReason::FileForbidden | DataReason::FileReadOnly => {
            "give this user permission to read and write the file and its folder"
        }
        DataReason::MigrationFailed => "fix its SQL; the failed migration had no effect",
        _ => "see docs/pages.md",
    }
    .to_owned()
}
