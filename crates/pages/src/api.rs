//! The API of pages. docs/pages.md is the manual for page authors.
//!
//! [`install`] adds the whole API to a worker's [`Sandbox`] before it is sealed. The functions operate on the
//! [`Exchange`] of the run that calls them; state of a request between calls is in the slots of that exchange. Before
//! the head of the response is sent, [`Api::finish_head`] adds the fields that follow from the page's actions: the
//! session cookie, Vary and Cache-Control.
//!
//! | file | content |
//! |---|---|
//! | `request`, `content`, `body`, `upload` | the request, and reading its content |
//! | `response`, [`field`], [`policy`], [`cookie`] | the response, and its caching policy |
//! | `reads` | the parts of the request that the page has read, for Vary and for responses private to one visitor |
//! | `pairs` | `pairs` for tables whose values are virtual |
//! | `session`, [`seal`], [`secret`] | signed sessions and tokens |
//! | `clock`, `convert`, `digest` | dates, escapes, hashes, encodings |
//! | `kv`, `db`, `fetch` | stored data, and other servers |
//! | [`form`], [`multipart`], [`budget`] | decoders of content, and the memory budget |
//! | [`password`] | hashing and verification of passwords on a separate thread |
//! | [`log`], [`mod@refusal`] | lines for the server's log; named refusals |
//!
//! Absent by design: files, processes, and servers that are not configured.

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
mod upload;

use crate::exchange::Exchange;
use crate::sandbox::Sandbox;
use crate::sandbox::wait::NativeError;
pub use body::BodyLimits;
use budget::ContentBudget;
use flatout_data::{Database, Kv};
use flatout_http::url::OriginAddress;
use flatout_upstream::origin::OriginClient;
use jiff::tz::TimeZone;
pub use log::{LogLevel, LogLine};
use password::Passwords;
use refusal::PageRefusal;
use secret::SecretFile;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// The resources of the pages of one `pages` or `page` step, shared by all workers.
#[derive(Debug)]
pub struct ApiSettings {
    /// Limits on a request's content.
    pub body: BodyLimits,
    /// The budget for content held by the pages of all sites.
    pub budget: Arc<ContentBudget>,
    /// The password service, shared by all sites.
    pub passwords: Arc<Passwords>,
    /// The folder for large uploaded files while a page processes them. A worker that may not create files there holds
    /// the files in memory.
    pub spool_folder: PathBuf,
    /// The keys of sessions and tokens; `None` disables sessions.
    pub secret: Option<Arc<SecretFile>>,
    /// The database that pages use through `db`, if any.
    pub database: Option<Database>,
    /// The in-memory values that pages use through `kv`, shared by all workers.
    pub kv: Arc<Kv>,
    /// The servers that `fetch` may contact, by name.
    pub upstreams: BTreeMap<String, OriginAddress>,
    /// The local time zone, for `TIMEDATE()` and dates.
    pub zone: TimeZone,
}

/// The API of pages in one worker.
#[derive(Clone, Debug)]
pub struct Api {
    settings: Arc<ApiSettings>,
    client: Option<OriginClient>,
}

impl Api {
    /// Creates the API for a worker. `client` sends the requests of `fetch`; `None` disables `fetch`.
    pub fn new(settings: Arc<ApiSettings>, client: Option<OriginClient>) -> Self {
        Self { settings, client }
    }

    /// The resources that all workers share.
    pub fn settings(&self) -> &ApiSettings {
        &self.settings
    }

    /// Completes the head of the response. Must be called once, before the head is sent by a flush or at the end of the
    /// page. Sets the session cookie, and adds the Vary field that follows from the parts of the request that the page
    /// has read. If these parts belong to one visitor, or if a cookie is set, makes the response private. After this
    /// call, the page can no longer change the head.
    ///
    /// The caller adds a Content-Type and [`policy::DEFAULT`] if the draft does not have these fields. This way, a
    /// response without either can use a cached head.
    pub fn finish_head(&self, sandbox: &Sandbox, exchange: &mut Exchange) -> Result<(), NativeError> {
        response::finish(self, sandbox.lua(), exchange)
    }
}

/// Adds the whole API to `sandbox`, which must not be sealed yet.
pub fn install(sandbox: &Sandbox, api: &Api) -> mlua::Result<()> {
    let api = Rc::new(api.clone());
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

/// Returns the refusal that made a run fail with `message`. Returns `None` if the run failed for another reason, even
/// if the page caught a refusal earlier.
pub fn refusal(exchange: &mut Exchange, message: &str) -> Option<PageRefusal> {
    let refusal = exchange.slot_if::<refusal::RefusalCell>().and_then(|refused| refused.get());
    refusal.filter(|refusal| message.contains(refusal.text()))
}

/// Removes and returns the lines that the page has logged since the last call.
pub fn take_log(exchange: &mut Exchange) -> Vec<LogLine> {
    log::take(exchange)
}

#[cfg(test)]
mod tests;
