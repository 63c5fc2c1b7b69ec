//! Typed settings, checked as far as possible from their text alone: every name is resolved, every number is in range.
//!
//! Steps run in written order: a [`Block`] is a list of steps, and a request passes through them one by one. Steps that
//! are not handlers apply to the steps after them. The first handler that responds is the last step to run. A [`Route`]
//! is a block with a condition. If none of its handlers responds, the effects of the steps in it remain in force for
//! the steps after the route.

mod cache;
mod handler;
mod listen;
mod network;
mod pages;
mod php;
mod private;
mod process;
mod proxy;
mod step;
mod text;
mod trust;

pub use cache::{CacheSettings, StatusField, StoreBudget};
pub use flatout_http::lines::FieldOp;
pub use handler::{Compression, EncodedExtension, Files, Handler, Listing, Redirect, Respond, TryTarget};
pub use listen::{ListenAddress, SOCKET_PATH_BYTES_MAX, SocketAccess};
pub use network::{Cidr, Network};
pub use pages::{Database, PageSettings, Pages};
pub use php::{Php, PhpAddress};
pub use private::is_given_out;
pub use process::{
    Admin, CacheBudget, Config, ConnectionLimits, HeldLimit, Http3, Listener, Log, PageOutputBudget, Protocol,
    ProxySenders, RequestBodyLimits, RequestHeadLimits, Sockets,
};
pub use proxy::{
    Balance, Concurrency, Forwarded, HashKey, HealthCheck, HostField, Origin, OriginTimeouts, OriginTls, PassiveHealth,
    Proxy, SameSite, Sticky,
};
pub use step::{Access, BasicAuth, Block, Cors, ErrorPage, Matcher, RateLimit, Rewrite, Route, Step, StepKind};
pub use text::{Text, TextPart, Variable};
pub use trust::{TrustedProxy, is_listed, is_trusted};

/// The place of a setting in a file, for `explain` and for errors that are found later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file's name as the user wrote it; empty for settings from flags.
    pub file: String,
    /// Line, counted from 1; 0 for settings from flags.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

/// A site: a block of steps for one or more host names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The place where the site begins.
    pub place: Place,
    /// Host names in lower case, without a port: `example.com`, `*.example.com` (the star stands for one or more
    /// labels), or `*` for every host that no other site has. Never empty.
    pub hosts: Vec<String>,
    /// The listeners that serve this site, as indices into [`Config::listeners`].
    pub listeners: Vec<usize>,
    /// The site's certificate, if any of its listeners uses TLS.
    pub certificate: Option<Certificate>,
    /// How long cached file metadata is used before the file is checked again, in milliseconds.
    pub file_check_interval_ms: u64,
    /// True if file changes are detected with inotify instead of polling.
    pub watch: bool,
    /// The site's log, as an index into [`Config::logs`]; `None` if requests are not logged.
    pub log: Option<usize>,
    /// The steps that a request passes through.
    pub block: Block,
}

impl Site {
    /// All steps, including those in routes, in written order.
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
    /// PEM files, which are reloaded when they change.
    Files {
        /// The file with the certificate chain, leaf first.
        chain: std::path::PathBuf,
        /// The file with the private key.
        key: std::path::PathBuf,
        /// The place of the setting.
        place: Place,
    },
    /// A certificate issued by flatout's local certificate authority.
    Internal,
}
