//! What a page can call. The manual for authors is docs/pages.md.
//!
//! [`install`] lays everything into a worker's [`Sandbox`] before it is sealed. The functions work on the [`Exchange`]
//! of the run that calls them; what one request's page keeps between calls is in that exchange's slots. Before the
//! head of the answer is sent, [`Api::finish_head`] adds what follows from what the page did: the session's cookie, and
//! what caches are told.
//!
//! | file | what it knows |
//! |---|---|
//! | `request`, `content`, `body`, `upload` | what was asked, and content as it is read |
//! | `response`, [`field`], [`policy`], [`cookie`] | what is answered, and who may keep it |
//! | `reads` | what the page read of the request: Vary, and responses that belong to one visitor |
//! | `pairs` | `pairs` of tables whose values are not in themselves |
//! | `session`, [`seal`], [`secret`] | signed sessions and tokens |
//! | `clock`, `convert`, `digest`, [`json`] | dates, escapes, hashes, encodings |
//! | `kv`, `db`, `fetch` | what is kept, and other servers |
//! | [`form`], [`multipart`], [`spool`], [`budget`] | decoders of content, where files of a form stay, and how much |
//! | [`password`] | hashes of passwords, made and verified on a thread of their own |
//! | [`log`], [`mod@refusal`] | lines for the server's log; refusals by name |
//!
//! Absent: files, processes, and servers that the configuration does not name.

mod body;
pub mod budget;
mod clock;
mod content;
mod convert;
pub mod cookie;
mod db;
mod digest;
mod fetch;
pub mod field;
pub mod form;
pub mod json;
mod kv;
pub mod log;
pub mod multipart;
mod pairs;
pub mod password;
pub mod policy;
mod reads;
pub mod refusal;
mod request;
mod response;
pub mod seal;
pub mod secret;
mod session;
pub mod spool;
mod upload;

use crate::exchange::Exchange;
use crate::sandbox::Sandbox;
use crate::sandbox::wait::Fault;
pub use body::BodyLimits;
use budget::Budget;
use flatout_data::{Database, Kv};
use flatout_net::origin::{OriginAddress, OriginClient};
use jiff::tz::TimeZone;
pub use log::{LogLevel, LogLine};
use password::Passwords;
use refusal::PageRefusal;
use secret::SecretFile;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// What the pages of one `pages` or `page` step may use, shared by all workers.
#[derive(Debug)]
pub struct ApiSettings {
    /// How much of a request's content is taken.
    pub body: BodyLimits,
    /// What pages of all sites may hold of contents, all together.
    pub budget: Arc<Budget>,
    /// Who hashes and verifies passwords, for all sites.
    pub passwords: Arc<Passwords>,
    /// Where files of a form are kept while a page looks at them, when they are large. A worker that may make no files
    /// there keeps them in memory.
    pub spool_folder: PathBuf,
    /// The keys of sessions and tokens; `None`: there are no sessions.
    pub secret: Option<Arc<SecretFile>>,
    /// The database; `None`: there is none.
    pub database: Option<Database>,
    /// Values that workers share.
    pub kv: Arc<Kv>,
    /// What `fetch` may ask, by its name.
    pub upstreams: BTreeMap<String, OriginAddress>,
    /// The time of the place, for `TIMEDATE()` and dates.
    pub zone: TimeZone,
}

/// What pages may use, on one worker.
#[derive(Clone, Debug)]
pub struct Api {
    settings: Arc<ApiSettings>,
    client: Option<OriginClient>,
}

impl Api {
    /// For a worker, whose `client` asks the upstreams; `None`: nothing can be asked.
    pub fn new(settings: Arc<ApiSettings>, client: Option<OriginClient>) -> Self {
        Self { settings, client }
    }

    /// What may be used.
    pub fn settings(&self) -> &ApiSettings {
        &self.settings
    }

    /// To be called once before the head of the answer is sent, whether by a flush or at the page's end: sets the
    /// session's cookie, adds the Vary that follows from what the page read of the request and, where that belongs to one
    /// visitor or a cookie is set, makes the answer private. After it the
    /// page's attempts to change the head are errors.
    ///
    /// A Content-Type and [`policy::DEFAULT`] are the caller's to add where the draft has none of
    /// that name: an answer of neither has the same head as the one before.
    pub fn finish_head(&self, sandbox: &Sandbox, exchange: &mut Exchange) -> Result<(), Fault> {
        response::finish(self, sandbox.lua(), exchange)
    }
}

/// Lays everything that pages can call into `sandbox`, which is not sealed yet.
pub fn install(sandbox: &Sandbox, api: &Api) -> mlua::Result<()> {
    let api = Rc::new(api.clone());
    json::prepare(sandbox.lua())?;
    clock::install(sandbox, &api)?;
    convert::install(sandbox)?;
    digest::install(sandbox)?;
    log::install(sandbox)?;
    password::install(sandbox, &api)?;
    let listings = sandbox.lua().create_table()?;
    request::install(sandbox, &api, &listings)?;
    response::install(sandbox)?;
    session::install(sandbox, &api, &listings)?;
    pairs::install(sandbox, listings)?;
    kv::install(sandbox, &api)?;
    db::install(sandbox, &api)?;
    fetch::install(sandbox, &api)
}

/// The refusal that a run failed with: `message` is what its failure says. `None` when it failed otherwise, also where
/// the page was told of a refusal before and caught it.
pub fn refusal(exchange: &mut Exchange, message: &str) -> Option<PageRefusal> {
    let refusal = exchange.slot_if::<refusal::Refused>().and_then(|refused| refused.get());
    refusal.filter(|refusal| message.contains(refusal.text()))
}

/// Takes the lines that the page has logged since this was last called, for the server's log.
pub fn take_log(exchange: &mut Exchange) -> Vec<LogLine> {
    log::take(exchange)
}

#[cfg(test)]
mod tests;
