//! Typed settings, checked as far as text alone can tell: every name resolved, every number in its bounds.
//!
//! Written order is execution order: a [`Block`] is a list of steps, and a request goes through them one by one. Steps
//! that are not handlers apply to what follows them; the first handler that answers ends the walk. A [`Route`] is a
//! block behind a condition: what it adds stays added for the steps behind it, as inheritance adds.

mod handler;
mod pages;
mod php;
mod private;
mod process;
mod proxy;
mod step;
mod trust;

pub use flatout_http::lines::FieldOp;
pub use handler::{Coding, Files, Handler, Listing, Redirect, Respond, TryTarget};
pub use pages::{Database, PageSettings, Pages};
pub use php::{Php, PhpAddress};
pub use private::is_given_out;
pub use process::{Admin, CacheBudget, Config, Listener, Log, PageOutputBudget, Protocol, Sockets};
pub use proxy::{
    Balance, CacheSettings, Concurrency, Forwarded, HashKey, HealthCheck, HostField, Origin, OriginTimeouts, OriginTls,
    PassiveHealth, Proxy, StatusField, StoreBudget,
};
pub use step::{
    Access, BasicAuth, Block, Cidr, Cors, ErrorPage, Matcher, Network, RateLimit, Rewrite, Route, Step, StepKind, Text,
    TextPart, Variable,
};
pub use trust::is_trusted;

/// Where something stands in the configuration, for `explain` and for errors found later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named; empty for settings made from flags.
    pub file: String,
    /// Line, from 1; 0 for settings made from flags.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// One site: a block under one or more host names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Where it begins.
    pub place: Place,
    /// Host names in lower case, without port: `example.com`, `*.example.com` (any number of labels in place of the
    /// star), or `*` for whatever no other site answers for. Never empty.
    pub hosts: Vec<String>,
    /// Indices into [`Config::listeners`]: where this site is served.
    pub listeners: Vec<usize>,
    /// Its certificate, when any of its listeners speaks TLS.
    pub certificate: Option<Certificate>,
    /// How long what is known of a file is believed without a look, in milliseconds.
    pub file_check_interval_ms: u64,
    /// True if the kernel tells of changes (inotify), so that nobody needs to look.
    pub watch: bool,
    /// Index into [`Config::logs`], or `None` when the site is not logged.
    pub log: Option<usize>,
    /// The steps that a request passes through.
    pub block: Block,
}

impl Site {
    /// Its steps, those of routes included, in written order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        let mut open = vec![self.block.iter()];
        std::iter::from_fn(move || {
            loop {
                let Some(step) = open.last_mut()?.next() else {
                    open.pop();
                    continue;
                };
                if let StepKind::Route(route) = &step.kind {
                    open.push(route.block.iter());
                }
                return Some(step);
            }
        })
    }
}

/// Where a site's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// PEM files; read again when they change.
    Files {
        /// The chain, leaf first.
        chain: std::path::PathBuf,
        /// The private key.
        key: std::path::PathBuf,
        /// Where it was asked for.
        place: Place,
    },
    /// Made by our own local certificate authority.
    Internal,
}
