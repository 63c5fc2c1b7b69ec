//! Tests that run page code in a real virtual machine, module by module.

mod arguments;
mod content;
mod data;
mod fetch;
mod manual;
mod pure;
mod response;
mod session;

use super::budget::ContentBudget;
use super::password::Passwords;
use super::refusal::PageRefusal;
use super::secret::SecretFile;
use super::{Api, ApiSettings, BodyLimits, LogLine, install, refusal, take_log};
use crate::exchange::Exchange;
use crate::open::database_limits;
use crate::sandbox::{Limits, ResumeResult, Sandbox};
use flatout_data::{Database, Kv, KvLimits};
use flatout_handler::content::Offers;
use flatout_http::url::OriginAddress;
use flatout_upstream::origin::{OriginClient, OriginCounts, OriginSettings};
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::LocalSet;

/// A worker's virtual machine with the complete API of pages.
struct Site {
    sandbox: Sandbox,
    api: Api,
    /// Removed at the end.
    folder: PathBuf,
}

/// The request.
#[derive(Default)]
struct Ask<'a> {
    method: Option<&'a str>,
    path: Option<&'a str>,
    query: Option<&'a str>,
    fields: Vec<(&'a str, &'a str)>,
    content: Option<&'a [u8]>,
    secure: bool,
}

/// The result.
#[derive(Debug)]
struct Answered {
    status: u16,
    fields: Vec<(String, String)>,
    text: String,
    error: Option<String>,
    refusal: Option<PageRefusal>,
    log: Vec<LogLine>,
    flushes: usize,
}

impl Answered {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(&**value))
    }

    /// The cookie that was set, as a browser sends it back.
    fn cookie(&self) -> String {
        let line = self.field("Set-Cookie").unwrap_or_else(|| panic!("no cookie: {self:?}"));
        line.split(';').next().unwrap_or_default().to_owned()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Site {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ApiSettings)) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("flatout-api-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut settings = ApiSettings {
            body: BodyLimits::default(),
            spool_folder: folder.clone(),
            budget: Arc::new(ContentBudget::default()),
            passwords: Arc::new(Passwords::default()),
            secret: Some(Arc::new(SecretFile::open(&folder.join("secret"), "test").unwrap())),
            database: None,
            kv: Arc::new(Kv::new(KvLimits::default())),
            upstreams: BTreeMap::new(),
            zone: TimeZone::UTC,
        };
        change(&mut settings);
        let client = OriginClient::new(OriginSettings::default(), None, Arc::new(OriginCounts::default()));
        let api = Api::new(Arc::new(settings), Some(client));
        let sandbox = Sandbox::new().unwrap();
        install(&sandbox, &api).unwrap();
        sandbox.seal().unwrap();
        Self { sandbox, api, folder }
    }

    fn with_database() -> Self {
        Self::with_database_and(|_| {})
    }

    fn with_database_and(change: impl FnOnce(&mut ApiSettings)) -> Self {
        let path = std::env::temp_dir().join(format!(
            "flatout-api-db-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(&path).unwrap();
        let database = Database::open(&path.join("site.db"), 2, database_limits()).unwrap();
        let mut site = Self::with(|settings| {
            settings.database = Some(database);
            change(settings);
        });
        // One folder is removed at the end.
        let own = std::mem::replace(&mut site.folder, path);
        std::fs::remove_dir_all(own).unwrap();
        site
    }

    /// Runs a page's code.
    fn run(&self, ask: &Ask<'_>, code: &str) -> Answered {
        let code = self.sandbox.load("test.luau", code).unwrap_or_else(|failure| panic!("{failure:?}\n{code}"));
        let mut exchange = Box::<Exchange>::default();
        let fields = ask.fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        exchange.facts.set(
            ask.method.unwrap_or("GET"),
            ask.path.unwrap_or("/").as_bytes(),
            ask.query.map(str::as_bytes),
            fields,
            "192.0.2.7:4711".parse().ok(),
            ask.secure,
        );
        exchange.offers = ask.content.map(|content| Offers::with_bytes(content.into()));
        // CPU time that a debug build on a busy machine does not use up.
        let limits = Limits { cpu: Duration::from_mins(1), ..Limits::default() };
        let mut run = self.sandbox.start(&code, exchange, limits);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (mut error, mut flushes) = (None, 0);
        LocalSet::new().block_on(&runtime, async {
            loop {
                match run.resume() {
                    ResumeResult::Done => break,
                    ResumeResult::Wants(wanted) => {
                        let answer = wanted.await;
                        run.answer(answer);
                    }
                    ResumeResult::Flush => {
                        flushes += 1;
                        self.api.finish_head(&self.sandbox, run.exchange()).unwrap();
                    }
                    ResumeResult::Preempted => {}
                    ResumeResult::Failed(failure) => {
                        error = Some(format!("{}:{}: {}", failure.chunk, failure.line.unwrap_or(0), failure.message));
                        break;
                    }
                }
            }
        });
        let mut exchange = run.finish();
        if error.is_none()
            && let Err(fault) = self.api.finish_head(&self.sandbox, &mut exchange)
        {
            error = Some(fault.to_string());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Answered {
            status: exchange.draft.status,
            fields: exchange.draft.fields().map(|(name, value)| (text(name), text(value))).collect(),
            text: text(exchange.output.dynamic()),
            refusal: error.as_deref().and_then(|error| refusal(&mut exchange, error)),
            error,
            log: take_log(&mut exchange),
            flushes,
        }
    }

    /// The value of `expression`, as text.
    fn value(&self, expression: &str) -> String {
        self.value_of(&Ask::default(), expression)
    }

    fn value_of(&self, ask: &Ask<'_>, expression: &str) -> String {
        let answered = self.run(ask, &format!("__r(tostring({expression}))"));
        assert_eq!(answered.error, None, "{expression}");
        answered.text
    }

    /// The error of `code`.
    fn error(&self, code: &str) -> String {
        let answered = self.run(&Ask::default(), code);
        answered.error.unwrap_or_else(|| panic!("no error: {code}"))
    }
}
