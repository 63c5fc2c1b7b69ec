//! What pages keep and ask: databases opened and brought up to date, secrets read or made, upstreams looked up.
//!
//! This is done as the user that the process runs as, before pages run, and on no event loop. What a configuration
//! before this one has opened is not opened again, so a reload loses nothing.

use crate::api::budget::Budget;
use crate::api::password::Passwords;
use crate::api::secret::{SecretError, SecretFile};
use crate::api::{ApiSettings, BodyLimits};
use crate::step::{PagesShared, PagesStep};
use flatout_config::model::{Database as DatabaseSettings, PageSettings};
use flatout_data::{Database, Kv, KvLimits, Limits};
use flatout_net::origin::{OriginAddress, OriginTls, OriginTlsSettings};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// What has been opened.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// Values shared among workers, by the site's name. They live as long as the process.
    kvs: BTreeMap<String, Arc<Kv>>,
    /// What pages of all sites may hold of contents.
    budget: Arc<Budget>,
    /// Who hashes and verifies passwords.
    passwords: Arc<Passwords>,
    /// What steps may use, as long as some step does.
    settings: Vec<(Wishes, Weak<ApiSettings>, Option<Arc<OriginTls>>)>,
}

/// What the pages of a step may use.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) api: Arc<ApiSettings>,
    pub(crate) tls: Option<Arc<OriginTls>>,
}

/// What tells the settings of one step from those of another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wishes {
    realm: String,
    /// Only what concerns what pages may use; the rest is as by default.
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
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What pages hold of contents: forms, files of forms, answers of upstreams.
    pub fn contents(&self) -> Arc<Budget> {
        Arc::clone(&self.opened().budget)
    }

    /// Opens what the pages of `step` may use, for `workers` workers; when it is open already, the secret is read again, and
    /// migrations that are new are applied. Returns a line for each database with the migrations that were applied to it.
    /// Blocks as long as the disk takes.
    ///
    /// # Errors
    /// With what is wrong, and what to do.
    pub fn open(&self, step: &PagesStep, workers: usize) -> Result<Option<String>, (String, String)> {
        // One response has room in any case.
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

/// Reads the secret again, so that whoever takes a key out of it and reloads has taken it out; and applies new migrations.
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
    budget: Arc<Budget>,
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
        Some(loaded.map_err(|error| (format!("an upstream is reached by https: {error}"), advice.to_owned()))?)
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

/// Where large files of forms stay while a page looks at them: nameless files, which are gone with the request.
pub fn spool_folder() -> PathBuf {
    std::env::temp_dir()
}

fn open_secret(path: &Path, realm: &str) -> Result<Arc<SecretFile>, (String, String)> {
    SecretFile::open(path, realm).map(Arc::new).map_err(|error| bad_secret(path, &error))
}

fn bad_secret(path: &Path, error: &SecretError) -> (String, String) {
    let what = format!("the secret `{}` cannot be used: {error}", path.display());
    (what, "name a file that this user may read and write, in a folder that exists".to_owned())
}

/// What one page may ask of a database: less than a program that owns it. An answer of the size of a page, and a file that
/// was uploaded in one piece, have room.
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

/// Applies the migrations that have not been, and says which.
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
        DataReason::MigrationFailed => "mend its SQL; it has left nothing behind",
        _ => "see docs/pages.md",
    }
    .to_owned()
}
