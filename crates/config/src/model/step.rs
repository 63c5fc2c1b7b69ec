//! Steps of a block, and what routes match.

use super::{CacheSettings, Handler, Place};
use flatout_http::lines::FieldOp;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// Steps in written order.
pub type Block = Vec<Step>;

/// One step, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it was written.
    pub place: Place,
    /// The action.
    pub kind: StepKind,
}

/// The action of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A block behind a condition.
    Route(Route),
    /// Changes the fields of whatever answers.
    Header(Vec<FieldOp>),
    /// Asks for a name and password.
    BasicAuth(BasicAuth),
    /// Lets clients in by address.
    Access(Access),
    /// Lets each address ask so often.
    RateLimit(RateLimit),
    /// Lets pages of other origins read the answers.
    Cors(Cors),
    /// Sends 103 with these Link values before the answer, to clients of HTTP/2.
    EarlyHints(Vec<String>),
    /// Changes the path for the steps that follow.
    Rewrite(Rewrite),
    /// A page for errors with a status.
    ErrorPage(ErrorPage),
    /// Cache rules for the `proxy` steps that follow; the last one in force applies.
    Cache(Box<CacheSettings>),
    /// Answers.
    Handler(Handler),
}

impl StepKind {
    /// The name in the configuration.
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

/// A block behind a condition: all matchers must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The conditions that must all hold; none: always.
    pub matchers: Vec<Matcher>,
    /// The steps to run if the conditions hold.
    pub block: Block,
}

/// A condition on a request. Within one matcher, any of its values will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matcher {
    /// The decoded path: `/exact`, `/prefix/*`, `*.ending`, or with stars within segments.
    Path(Vec<String>),
    /// The method, in capitals.
    Method(Vec<String>),
    /// A field that is there, and has this value when one is given (`*` stands for any run of characters).
    Header {
        /// Its name in lower case.
        name: String,
        /// Its values; empty: whatever it is.
        values: Vec<String>,
    },
}

/// Names and passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// The realm that a browser shows.
    pub realm: String,
    /// Name and hash (argon2 in PHC form, or bcrypt), never a password.
    pub users: Vec<(String, String)>,
}

/// Access rules: the first match decides. If none matches, access is allowed unless there is an allow rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// True for allow.
    pub rules: Vec<(bool, Network)>,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Network {
    /// Everybody.
    All,
    /// A network.
    Cidr(Cidr),
}

/// Addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The network's address.
    pub address: IpAddr,
    /// How many bits count.
    pub bits: u8,
}

impl Cidr {
    /// Returns true if `address` is in the network. The IPv6 form of an IPv4 address, which a socket for both has
    /// (RFC 4291 §2.5.5.2), is that IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
        let (base, bits) = match (self.address, self.address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(base)) if self.bits >= 96 => (IpAddr::V4(base), self.bits - 96),
            (base, _) => (base, self.bits),
        };
        match (base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
                (base.to_bits() ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

/// How often one address may ask. IPv6 clients are counted by their /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests in a period.
    pub requests: u32,
    /// The period, in milliseconds.
    pub period_ms: u64,
    /// Requests that may come at once.
    pub burst: u32,
}

/// Cross-origin sharing, as the Fetch standard has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// Origins, or `*`.
    pub origins: Vec<String>,
    /// Methods allowed to a preflight.
    pub methods: Vec<String>,
    /// Request fields allowed to a preflight.
    pub headers: Vec<String>,
    /// Response fields a page may read.
    pub expose: Vec<String>,
    /// True if cookies and passwords may come along.
    pub credentials: bool,
    /// How long a preflight is remembered, in seconds.
    pub max_age_s: Option<u32>,
}

/// Changes the path, and may change the query, for the steps that follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// This prefix goes away.
    StripPrefix(String),
    /// This path in its place.
    To(Text),
}

/// The error pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// Statuses, 400 to 599.
    pub statuses: Vec<u16>,
    /// The file whose content is shown.
    pub file: PathBuf,
}

/// A text with variables, `https://{host}{path}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Its parts, in order.
    pub parts: Vec<TextPart>,
}

/// A part of a [`Text`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPart {
    /// As written.
    Literal(String),
    /// Of the request.
    Variable(Variable),
}

/// Variables that a text may take from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    /// The client's address, without its port.
    Client,
    /// Host without port.
    Host,
    /// Host as asked for, with its port.
    HostPort,
    /// Path as asked for, still encoded.
    Path,
    /// Path and query as asked for, still encoded.
    Uri,
    /// Query without its `?`; empty when there is none.
    Query,
    /// `http` or `https`.
    Scheme,
    /// The part of the path that the route's last star stands for, still encoded.
    Rest,
}
