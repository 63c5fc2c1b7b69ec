//! The steps of a block, and the conditions of routes.

use super::{CacheSettings, Handler, Network, Place, Text};
use flatout_http::lines::FieldOp;
use std::path::PathBuf;

/// Steps in written order.
pub type Block = Vec<Step>;

/// A step and its place in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The place of the step in the configuration.
    pub place: Place,
    /// The action of the step.
    pub kind: StepKind,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A block with a condition.
    Route(Route),
    /// Changes the header fields of the response, whichever handler sends it.
    Header(Vec<FieldOp>),
    /// Requires a name and a password.
    BasicAuth(BasicAuth),
    /// Allows or denies clients by address.
    Access(Access),
    /// Limits the request rate of each client address.
    RateLimit(RateLimit),
    /// Allows pages of other origins to read responses (CORS).
    Cors(Cors),
    /// Sends a 103 with these Link values before the response; only over HTTP/2.
    EarlyHints(Vec<String>),
    /// Changes the path for the steps that follow.
    Rewrite(Rewrite),
    /// Replaces the content of error responses with certain statuses.
    ErrorPage(ErrorPage),
    /// Cache rules for the `proxy` steps that follow; the last `cache` before a `proxy` applies.
    Cache(Box<CacheSettings>),
    /// Responds to the request.
    Handler(Handler),
}

impl StepKind {
    /// The name of the step in the configuration language.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Route(_) => "route",
            Self::Header(_) => "header",
            Self::BasicAuth(_) => "basic-auth",
            Self::Access(_) => "access",
            Self::RateLimit(_) => "rate-limit",
            Self::Cors(_) => "cors",
            Self::EarlyHints(_) => "early-hints",
            Self::Rewrite(_) => "rewrite",
            Self::ErrorPage(_) => "error",
            Self::Cache(_) => "cache",
            Self::Handler(Handler::Files(_)) => "files",
            Self::Handler(Handler::Redirect(_)) => "redirect",
            Self::Handler(Handler::Respond(_)) => "respond",
            Self::Handler(Handler::Metrics) => "metrics",
            Self::Handler(Handler::Proxy(_)) => "proxy",
            Self::Handler(Handler::Pages(_)) => "pages",
            Self::Handler(Handler::Page(_)) => "page",
            Self::Handler(Handler::Php(_)) => "php",
        }
    }
}

/// A block of steps that run if conditions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The conditions, all of which must hold. If empty, the steps always run.
    pub matchers: Vec<Matcher>,
    /// The steps to run if the conditions hold.
    pub block: Block,
}

/// A condition on a request. It holds if any of the listed values matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// Patterns for the decoded path: `/exact`, `/prefix/*`, `*.ending`, or with wildcards within segments.
    Path(Vec<String>),
    /// Methods in upper case.
    Method(Vec<String>),
    /// A header field that is present and, if values are given, has one of them (`*` matches any number of characters).
    Header {
        /// The field's name in lower case.
        name: String,
        /// The accepted values; empty if any value is accepted.
        values: Vec<String>,
    },
}

/// Basic authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// The realm, which browsers show.
    pub realm: String,
    /// Each user's name and password hash (argon2 in PHC form, or bcrypt).
    pub users: Vec<(String, String)>,
}

/// Access rules, of which the first match applies. If no rule matches, access is denied if there is any allow rule, and
/// allowed otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The rules in order: true for allow, false for deny.
    pub rules: Vec<(bool, Network)>,
}

/// A rate limit per client address. IPv6 clients are counted per /64 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The number of requests allowed per period.
    pub requests: u32,
    /// The period, in milliseconds.
    pub period_ms: u64,
    /// The number of requests that may arrive at once.
    pub burst: u32,
}

/// Cross-origin resource sharing (CORS) as defined by the Fetch standard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// The allowed origins, or `*` for all.
    pub origins: Vec<String>,
    /// The methods that a preflight response allows.
    pub methods: Vec<String>,
    /// The request fields that a preflight response allows.
    pub headers: Vec<String>,
    /// The response fields that scripts may read.
    pub expose: Vec<String>,
    /// True if requests with credentials are allowed.
    pub credentials: bool,
    /// How long browsers may cache a preflight response, in seconds.
    pub max_age_s: Option<u32>,
}

/// Changes the path, and possibly the query, for the steps that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Removes this prefix from the path.
    StripPrefix(String),
    /// Replaces the path, and the query if the new text contains one.
    To(Text),
}

/// A file that replaces the content of error responses with certain statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses that the page is for, from 400 to 599.
    pub statuses: Vec<u16>,
    /// The file with the replacement content.
    pub file: PathBuf,
}
