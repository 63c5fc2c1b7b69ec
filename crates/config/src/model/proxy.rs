//! Other servers in front of which this one stands, and what may be kept of their answers.

use super::{Cidr, FieldOp};
use flatout_cache::rules::Rules;
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
    /// True if HTTP/2 is spoken to origins (with prior knowledge for http, by ALPN for https).
    pub http2: bool,
    /// How origins of https are believed.
    pub tls: OriginTls,
    /// Connections that each worker keeps open to each origin without use, at most.
    pub idle_connections_max: u32,
    /// True if connections may go on with another protocol, such as WebSocket.
    pub upgrades: bool,
    /// True if an answer in a transfer coding that is not known is passed on as it comes, up to the end of the
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
    /// True if it speaks https.
    pub secure: bool,
    /// A host name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Its share beside the others', 1 to 1,000.
    pub weight: u16,
    /// True if it is asked only when no other is well.
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

/// The policy that selects the origin for a request.
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
    /// The request target.
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
    /// How long one waits at most, in milliseconds; then it is answered 503.
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
    /// True if any certificate will do. For tests.
    pub insecure: bool,
    /// Authorities in PEM; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// The name in the certificate; `None`: the origin's host.
    pub server_name: Option<String>,
}

/// Rules for a shared cache of the responses of the `proxy` handlers that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Rules for which responses to store, and for how long.
    pub rules: Rules,
    /// The largest response that is fetched whole for a request for a range, in bytes; 0: none.
    pub range_fetch_bytes_max: u64,
    /// The clients that receive Cache-Status.
    pub status_field: StatusField,
    /// The networks whose clients may use the PURGE method; empty: none.
    pub purge: Vec<Cidr>,
    /// True if ESI is done in HTML from origins that ask for it (Surrogate-Control: content="ESI/1.0").
    pub esi: bool,
    /// True if a 103 is sent with the Link fields of a stale stored response.
    pub early_hints: bool,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            range_fetch_bytes_max: 16 * 1024 * 1024,
            status_field: StatusField::Everybody,
            purge: Vec::new(),
            esi: false,
            early_hints: true,
        }
    }
}

/// The clients that receive Cache-Status.
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

/// Limits of all caches together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreBudget {
    /// Bytes of content in memory; `None`: a quarter of what the process's cgroup allows, or
    /// [`MEMORY_BYTES_DEFAULT`](Self::MEMORY_BYTES_DEFAULT) where there is no limit.
    pub memory_bytes_max: Option<u64>,
    /// Objects in memory.
    pub memory_objects_max: u64,
    /// Folders, one for each volume, and the bytes that each may hold.
    pub disks: Vec<(PathBuf, u64)>,
}

impl StoreBudget {
    /// Bytes of content in memory where nothing is said and no cgroup has a limit.
    pub const MEMORY_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
}

impl Default for StoreBudget {
    fn default() -> Self {
        Self { memory_bytes_max: None, memory_objects_max: 1_000_000, disks: Vec::new() }
    }
}
