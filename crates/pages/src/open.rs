//! Resources of pages: databases opened and migrated, secrets read or created, upstreams resolved.
//!
//! This runs as the user of the process, before pages run, and not on an event loop. Resources opened by an earlier
//! configuration stay open, so a reload loses nothing.

use crate::api::budget::ContentBudget;
use crate::api::password::Passwords;
use crate::api::secret::{SecretError, SecretFile};
use crate::api::{ApiSettings, BodyLimits};
use crate::step::{PagesShared, PagesStep};
use flatout_config::model::{Database as DatabaseSettings, PageSettings};
use flatout_data::{Database, Kv, KvLimits, Limits};
use flatout_http::url::OriginAddress;
use flatout_upstream::origin::{OriginTls, OriginTlsSettings};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// The open resources.
#[derive(Debug, Default)]
pub(crate) struct OpenResources {
    /// Shared values, by the site's name. They live as long as the process.
    kvs: BTreeMap<String, Arc<Kv>>,
    /// The budget for contents held by pages of all sites.
    budget: Arc<ContentBudget>,
    /// The password service.
    passwords: Arc<Passwords>,
    /// Resources of steps, as long as some step uses them.
    settings: Vec<(Wishes, Weak<ApiSettings>, Option<Arc<OriginTls>>)>,
}

/// The resources of one step's pages.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) api: Arc<ApiSettings>,
    pub(crate) tls: Option<Arc<OriginTls>>,
}

/// The key that identifies the resources of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wishes {
    realm: String,
    /// Only the settings of resources; the rest is the default.
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

    /// The budget for contents held by pages: forms, uploaded files, upstream responses.
    pub fn contents(&self) -> Arc<ContentBudget> {
        Arc::clone(&self.opened().budget)
    }

    /// Opens the resources of the pages of `step`, for `workers` workers; if they are open already, reads the secret
    /// again and applies new migrations. Returns a line for each database with the migrations applied to it. Blocks
    /// on the disk.
    ///
    /// # Errors
    /// The problem, and the suggested remedy.
    pub fn open(&self, step: &PagesStep, workers: usize) -> Result<Option<String>, (String, String)> {
        // One response fits in any case.
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

/// Reads the secret again, so that a key removed from it is invalid after the reload; and applies new migrations.
fn refresh(api: &ApiSettings, settings: &PageSettings) -> Result<Option<String>, (String, String)> {
    if let Some(secret) = &api.secret {
        secret.reread().map_err(|error| bad_secret(secret.path(), &error))?;
    }
    match api.database.as_ref().zip(settings.database.as_ref()) {
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
        let advice = "install the authorities of this machine, as in the package ca-certificates";
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

/// The folder of large uploaded files while a page processes them, as unnamed files that vanish with the request.
pub fn spool_folder() -> PathBuf {
    std::env::temp_dir()
}

fn open_secret(path: &Path, realm: &str) -> Result<Arc<SecretFile>, (String, String)> {
    SecretFile::open(path, realm).map(Arc::new).map_err(|error| bad_secret(path, &error))
}

fn bad_secret(path: &Path, error: &SecretError) -> (String, String) {
    let what = format!("the secret `{}` cannot be used: {error}", path.display());
    (what, "give a file that this user may read and write, in a folder that exists".to_owned())
}

/// Limits of a page's use of a database, which are lower than those of a program that owns it. A result of the size
/// of a page, and a file that was uploaded in one piece, fit.
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

/// Applies pending migrations, and returns their names.
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
        DataReason::FileForbidden | DataReason::FileReadOnly => "let this user read and write the file and its folder",
        DataReason::MigrationFailed => "fix its SQL; the failed migration had no effect",
        _ => "see docs/pages.md",
    }
    .to_owned()
}
