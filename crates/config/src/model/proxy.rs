//! Other servers in front of which this one stands, and what may be kept of their answers.

use super::{Cidr, FieldOp};
use std::path::PathBuf;

/// Forwards requests to origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Where to; at least one.
    pub origins: Vec<Origin>,
    /// Which of them is asked.
    pub balance: Balance,
    /// Requests of our own that tell which origins are well; `None`: only what requests meet tells.
    pub health_check: Option<HealthCheck>,
    /// When requests that fail take an origin out.
    pub passive: PassiveHealth,
    /// How long an origin that has come back takes to get its full share, in milliseconds; 0: none.
    pub slow_start_ms: u64,
    /// How many requests an origin gets at once, and how many wait.
    pub concurrency: Concurrency,
    /// How long to wait for what.
    pub timeouts: OriginTimeouts,
    /// How often a request that may safely be repeated is tried again, 0 to 10.
    pub retries: u8,
    /// The Host that origins see.
    pub host: HostField,
    /// The fields that tell origins who asks.
    pub forwarded: Forwarded,
    /// Clients whose own Forwarded and X-Forwarded fields are believed and extended; those of others are replaced.
    pub trusted: Vec<Cidr>,
    /// The name in Via; `None`: no Via field.
    pub via: Option<String>,
    /// Changes of the fields that origins see.
    pub request_fields: Vec<FieldOp>,
    /// Whether HTTP/2 is spoken to origins (with prior knowledge for http, by ALPN for https).
    pub http2: bool,
    /// How origins of https are believed.
    pub tls: OriginTls,
    /// Connections that each worker keeps open to each origin without use, at the most.
    pub idle_connections_max: u32,
    /// Whether connections may go on with another protocol, such as WebSocket.
    pub upgrades: bool,
    /// Whether an answer in a transfer coding that is not known is passed on as it comes, up to the end of the
    /// connection (RFC 9112 §6.3), instead of being refused.
    pub unknown_codings: bool,
}

impl Default for Proxy {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            balance: Balance::default(),
            health_check: None,
            passive: PassiveHealth::default(),
            slow_start_ms: 0,
            concurrency: Concurrency::default(),
            timeouts: OriginTimeouts::default(),
            retries: 2,
            host: HostField::Client,
            forwarded: Forwarded::default(),
            trusted: Vec::new(),
            via: Some("flatout".to_owned()),
            request_fields: Vec::new(),
            http2: false,
            tls: OriginTls::default(),
            idle_connections_max: 64,
            upgrades: true,
            unknown_codings: false,
        }
    }
}

/// One origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Whether it speaks https.
    pub secure: bool,
    /// A host name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Its share beside the others', 1 to 1,000.
    pub weight: u16,
    /// Whether it is asked only when no other is well.
    pub backup: bool,
}

/// Which origin is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests under way for its weight.
    #[default]
    LeastConnections,
    /// One after the other, by weight.
    RoundRobin,
    /// Always the same for the same key, and few keys move when origins come and go.
    ConsistentHash(HashKey),
}

/// What decides which origin a request goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// Host, path and query.
    Uri,
    /// The client's address.
    Client,
    /// This request field.
    Header(String),
    /// This cookie.
    Cookie(String),
}

/// Requests of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for.
    pub path: String,
    /// How often, in milliseconds.
    pub interval_ms: u64,
    /// How long an answer may take, in milliseconds.
    pub timeout_ms: u64,
    /// Statuses that tell that it is well, first and last.
    pub statuses: (u16, u16),
    /// Good answers in a row that bring it back.
    pub rise: u32,
    /// Bad ones in a row that take it out.
    pub fall: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { path: "/".to_owned(), interval_ms: 5_000, timeout_ms: 2_000, statuses: (200, 399), rise: 2, fall: 3 }
    }
}

/// When requests that fail take an origin out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassiveHealth {
    /// Failures in a row; 0: never.
    pub failures: u32,
    /// How long it is left out then, in milliseconds. One request is tried afterwards.
    pub pause_ms: u64,
}

impl Default for PassiveHealth {
    fn default() -> Self {
        Self { failures: 5, pause_ms: 5_000 }
    }
}

/// How many requests an origin gets at once, from all workers together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// Never fewer than these, 1 or more.
    pub min: u32,
    /// Never more than these; between, the limit follows how the origin's delay changes.
    pub max: u32,
    /// Requests that may wait for a place.
    pub queue_max: u32,
    /// How long one waits at the most, in milliseconds; then it is answered 503.
    pub queue_timeout_ms: u64,
}

impl Default for Concurrency {
    fn default() -> Self {
        Self { min: 8, max: 1_024, queue_max: 4_096, queue_timeout_ms: 10_000 }
    }
}

/// How long to wait for an origin, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTimeouts {
    /// For a connection, TLS included.
    pub connect_timeout_ms: u64,
    /// For the whole head of a response, from when the request is sent.
    pub head_timeout_ms: u64,
    /// For more of a response's body, or for the origin to take more of a request's.
    pub body_timeout_ms: u64,
    /// For more of an event stream or of gRPC, and for more in either direction of an upgraded connection.
    pub stream_timeout_ms: u64,
    /// How long a connection without use is kept.
    pub idle_timeout_ms: u64,
}

impl Default for OriginTimeouts {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 3_000,
            head_timeout_ms: 30_000,
            body_timeout_ms: 30_000,
            stream_timeout_ms: 3_600_000,
            idle_timeout_ms: 30_000,
        }
    }
}

/// The Host that origins see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostField {
    /// As the client sent it.
    Client,
    /// The origin's own name and port.
    Origin,
    /// This one.
    Fixed(String),
}

/// The fields that tell origins who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host.
    pub x_forwarded: bool,
    /// Forwarded (RFC 7239).
    pub standard: bool,
}

impl Default for Forwarded {
    fn default() -> Self {
        Self { x_forwarded: true, standard: false }
    }
}

/// How origins of https are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTls {
    /// Whether any certificate will do. For tests.
    pub insecure: bool,
    /// Authorities in PEM; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// The name in the certificate; `None`: the origin's host.
    pub server_name: Option<String>,
}

/// What may be kept of origins' answers, for the `proxy` steps behind this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheRules {
    /// Whether anything is; `cache off=#true` is for a route within what is cached.
    pub enabled: bool,
    /// How long an answer without an explicit lifetime is fresh, in seconds; `None`: as RFC 9111 §4.2.2 guesses from
    /// Last-Modified.
    pub default_ttl_s: Option<u32>,
    /// Whether lifetimes are guessed from Last-Modified: a tenth of its age.
    pub heuristics: bool,
    /// The longest guessed lifetime, in seconds.
    pub heuristic_max_s: u32,
    /// How long a stale answer may be served while a new one is fetched, in seconds, when the origin does not say.
    pub stale_while_revalidate_s: u32,
    /// How long a stale answer may be served instead of an error, in seconds, when the origin does not say.
    pub stale_if_error_s: u32,
    /// What becomes of answers with Set-Cookie.
    pub set_cookie: SetCookie,
    /// Which cookies of a request matter.
    pub cookies: CacheCookies,
    /// Which part of the query is in the key.
    pub query: QueryKey,
    /// Whether `no-cache`, `max-age` and the like in a request are obeyed, as RFC 9111 §5.2.1 lets a cache choose.
    pub request_directives: bool,
    /// Variants that one key may have, by Vary.
    pub variants_max: u32,
    /// The largest content kept.
    pub object_bytes_max: u64,
    /// The largest response that is fetched whole for a request for a range, in bytes; 0: none.
    pub range_fetch_bytes_max: u64,
    /// Fields by which origins speak to this cache alone, the first that is there counts (RFC 9213).
    pub targeted: Vec<String>,
    /// Fields with the answer's tags.
    pub tag_fields: Vec<String>,
    /// Who sees Cache-Status.
    pub status_field: StatusField,
    /// Who may use the PURGE method; empty: nobody.
    pub purge: Vec<Cidr>,
    /// Whether ESI is done in HTML from origins that ask for it (Surrogate-Control: content="ESI/1.0").
    pub esi: bool,
    /// Whether a 103 is sent with the Link fields of the last answer.
    pub early_hints: bool,
    /// Whether No-Vary-Search is obeyed.
    pub no_vary_search: bool,
    /// How long it is remembered that a key's answers cannot be kept, in seconds: requests for it do not wait for one
    /// another meanwhile.
    pub hit_for_miss_s: u32,
    /// Whether content whose end is the end of the connection is kept; nobody can tell when such content is cut.
    pub close_delimited: bool,
    /// Whether an answer for another Accept-Language is used when its Content-Language is the one that the request
    /// likes best, which RFC 9111 §4.1 does not allow.
    pub language_select: bool,
    /// Whether a 206 with other content than its Content-Range says is kept as it came.
    pub uneven_parts: bool,
}

/// Which cookies of a request matter to a cache. A `*` at the end of a name stands for all that begin so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheCookies {
    /// A request with one of these leaves the cache out.
    pub bypass: Vec<String>,
    /// These tell no visitor from another.
    pub ignore: Vec<String>,
    /// The values of these tell stored responses of one URL apart. Exact names.
    pub key: Vec<String>,
}

impl Default for CacheRules {
    fn default() -> Self {
        Self {
            enabled: true,
            default_ttl_s: None,
            heuristics: true,
            heuristic_max_s: 86_400,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            set_cookie: SetCookie::Refuse,
            cookies: CacheCookies::default(),
            query: QueryKey::All,
            request_directives: true,
            variants_max: 32,
            object_bytes_max: 1024 * 1024 * 1024,
            range_fetch_bytes_max: 16 * 1024 * 1024,
            targeted: ["Flatout-Cache-Control", "CDN-Cache-Control", "Surrogate-Control"].map(str::to_owned).into(),
            tag_fields: vec!["Surrogate-Key".to_owned(), "Cache-Tag".to_owned()],
            status_field: StatusField::Everybody,
            purge: Vec::new(),
            esi: false,
            early_hints: true,
            no_vary_search: true,
            hit_for_miss_s: 60,
            close_delimited: true,
            language_select: false,
            uneven_parts: false,
        }
    }
}

/// What becomes of answers with Set-Cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// They are not kept.
    #[default]
    Refuse,
    /// They are kept without it.
    Strip,
    /// They are kept with it, as RFC 9111 lets a cache do: unwise, for one visitor's cookie then goes to all.
    Store,
}

/// Which part of the query is in the key. What is left out of the key is left out of the request to the origin as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryKey {
    /// All of it, as written.
    #[default]
    All,
    /// All but these parameters (`utm_*` stands for all that begin so).
    Without(Vec<String>),
    /// These alone.
    Only(Vec<String>),
}

/// Who sees Cache-Status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatusField {
    /// All clients.
    #[default]
    Everybody,
    /// These.
    Networks(Vec<Cidr>),
    /// Nobody.
    Nobody,
}

/// What all caches together may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreBudget {
    /// Bytes of content in memory; `None`: a quarter of what the process's cgroup allows, or
    /// [`MEMORY_BYTES_DEFAULT`](Self::MEMORY_BYTES_DEFAULT) where there is no limit.
    pub memory_bytes_max: Option<u64>,
    /// Objects in memory.
    pub hot_objects_max: u64,
    /// Folders, one for each volume, and the bytes that each may hold.
    pub disks: Vec<(PathBuf, u64)>,
}

impl StoreBudget {
    /// Bytes of content in memory where nothing is said and no cgroup has a limit.
    pub const MEMORY_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
}

impl Default for StoreBudget {
    fn default() -> Self {
        Self { memory_bytes_max: None, hot_objects_max: 1_000_000, disks: Vec::new() }
    }
}
