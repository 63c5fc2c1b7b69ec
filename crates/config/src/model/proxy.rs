//! Settings of proxies.

use super::{FieldOp, TrustedProxy};
use flatout_http::proxy_protocol::ProxyVersion;
use std::path::PathBuf;

flatout_reason::defaults! {
    /// Settings of `proxy`, which forwards requests to origins.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Proxy {
        /// The origins; at least one.
        pub origins: Vec<Origin>,
        /// The balancing policy.
        pub balance: Balance,
        /// Session affinity by a cookie of the proxy's own; `None` if the balancing policy alone decides.
        pub sticky: Option<Sticky>,
        /// The active health checks; `None` if only the outcomes of forwarded requests count.
        pub health_check: Option<HealthCheck>,
        /// Passive health checks: when failed requests take an origin out of rotation.
        pub passive: PassiveHealth,
        /// How long a recovered origin takes to return to its full share of requests, in milliseconds; 0 for no delay.
        pub slow_start_ms: u64 = 0,
        /// Limits on concurrent and queued requests per origin.
        pub concurrency: Concurrency,
        /// Timeouts for connecting, for the response headers and between pieces of content.
        pub timeouts: OriginTimeouts,
        /// The maximum number of retries of a request that can safely be repeated, from 0 to 10.
        pub retries: u8 = 2,
        /// The Host field sent to origins.
        pub host: HostField = HostField::Client,
        /// Which fields with information about the client are sent to origins.
        pub forwarded: Forwarded,
        /// Clients whose Forwarded and X-Forwarded fields are trusted and extended. The fields of other clients are
        /// replaced.
        pub trusted: Vec<TrustedProxy>,
        /// The server's name in the Via field; `None` if no Via field is sent.
        pub via: Option<String> = Some("flatout".to_owned()),
        /// True if requests to origins have the Via field of the client, followed by the server's. Otherwise, they have
        /// none, because some origins do not compress responses to requests with Via.
        pub via_to_origins: bool = false,
        /// The version of the PROXY header that names the client to origins; `None` if none is sent.
        pub proxy_protocol: Option<ProxyVersion>,
        /// Operations on the header fields sent to origins.
        pub request_fields: Vec<FieldOp>,
        /// True if HTTP/2 is used to contact origins: with prior knowledge for http, by ALPN for https.
        pub http2: bool = false,
        /// How the certificates of https origins are verified.
        pub tls: OriginTls,
        /// The maximum size of request content, in bytes.
        pub content_bytes_max: u64 = u64::MAX,
        /// The maximum number of bytes of request content that are buffered before an origin gets the request; 0 if
        /// content is forwarded as it arrives.
        pub buffer_bytes_max: u64 = 0,
        /// The maximum number of idle connections per worker and origin.
        pub idle_connections_max: u32 = 64,
        /// True if connections may be upgraded to another protocol, such as WebSocket.
        pub upgrades: bool = true,
        /// True if a response with an unknown transfer coding is passed on unchanged until the connection closes (RFC
        /// 9112 §6.3), instead of being refused.
        pub unknown_codings: bool = false,
    }
}

/// An origin server and its role in balancing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// True for https, false for http.
    pub secure: bool,
    /// The host name or IP address, without brackets.
    pub host: String,
    /// The TCP port, from the URL or the scheme's default.
    pub port: u16,
    /// The weight relative to the other origins, from 1 to 1,000.
    pub weight: u16,
    /// True if the origin gets requests only when no other origin is healthy.
    pub backup: bool,
}

/// The balancing policy: how the origin for a request is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Selects the origin with the fewest requests in progress relative to its weight.
    #[default]
    LeastConnections,
    /// Selects the origins in turn, by weight.
    RoundRobin,
    /// Selects the same origin for the same key. Few keys move to another origin when origins are added or removed.
    ConsistentHash(HashKey),
}

/// The part of a request that is the key for consistent hashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// Host, path and query.
    Uri,
    /// The client's address.
    Client,
    /// The value of the request field with this name.
    Header(String),
    /// The value of the cookie with this name.
    Cookie(String),
}

flatout_reason::defaults! {
    /// Session affinity: a signed cookie that names the origin that has a client's session.
    #[derive(Clone, derive_more::Debug, PartialEq, Eq)]
    pub struct Sticky {
        /// The cookie's name.
        pub cookie: String = "flatout-origin".to_owned(),
        /// The keys, as written: one per line, of at least [`KEY_CHARS_MIN`](Self::KEY_CHARS_MIN) characters. The first
        /// one signs, and all of them verify.
        #[debug(skip)]
        pub secret: String,
        /// How long a browser stores the cookie, in seconds, from 1; `None` until it is closed.
        pub max_age_s: Option<u64>,
        /// With which requests from other sites a browser sends the cookie.
        pub same_site: SameSite = SameSite::Lax,
    }
}

/// The SameSite attribute of a cookie: with which requests from other sites a browser sends it (RFC 6265bis §5.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// If a link is followed, but not with other requests, such as a POST.
    Lax,
    /// With all requests. Browsers require https.
    None,
    /// With none.
    Strict,
}

impl Sticky {
    /// The minimum length of a key: 32 characters of Base64 are 192 bits.
    pub const KEY_CHARS_MIN: usize = 32;

    /// The maximum number of keys.
    pub const KEYS_MAX: usize = 16;

    /// Returns the keys, beginning with the one that signs. Empty lines and lines that begin with `#` are no keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.secret.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    }
}

flatout_reason::defaults! {
    /// Settings of active health checks.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct HealthCheck {
        /// The request target of a check.
        pub path: String = "/".to_owned(),
        /// The time between two checks, in milliseconds.
        pub interval_ms: u64 = 5_000,
        /// The timeout of a check, in milliseconds.
        pub timeout_ms: u64 = 2_000,
        /// The first and the last status that a healthy origin may return.
        pub statuses: (u16, u16) = (200, 399),
        /// The number of consecutive successful checks after which an origin counts as healthy again.
        pub rise: u32 = 2,
        /// The number of consecutive failed checks after which an origin counts as unhealthy.
        pub fall: u32 = 3,
    }
}

flatout_reason::defaults! {
    /// Passive health checks: when failed requests take an origin out of rotation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PassiveHealth {
        /// The number of consecutive failures that take an origin out of rotation; 0 if failures never do.
        pub failures: u32 = 5,
        /// How long the origin then gets no requests, in milliseconds. After that, one request tries the origin again.
        pub pause_ms: u64 = 5_000,
    }
}

flatout_reason::defaults! {
    /// Limits on concurrent requests to an origin, over all workers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Concurrency {
        /// The lowest value of the limit, at least 1.
        pub min: u32 = 8,
        /// The highest value of the limit. Between the two, the limit adapts to the origin's latency.
        pub max: u32 = 8_192,
        /// The maximum number of queued requests.
        pub queue_max: u32 = 4_096,
        /// The longest time that a request may be queued, in milliseconds. After that, the request gets 503.
        pub queue_timeout_ms: u64 = 10_000,
    }
}

flatout_reason::defaults! {
    /// Timeouts of connections to an origin, in milliseconds.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OriginTimeouts {
        /// Timeout for connecting, including the TLS handshake.
        pub connect_timeout_ms: u64 = 3_000,
        /// Timeout for the complete response headers, counted from the time at which the request was sent.
        pub head_timeout_ms: u64 = 30_000,
        /// Timeout between two pieces of response content, and until the origin accepts more request content.
        pub body_timeout_ms: u64 = 30_000,
        /// Timeout between two pieces of an event stream or a gRPC stream, and for an upgraded connection without data
        /// in either direction.
        pub stream_timeout_ms: u64 = 3_600_000,
        /// How long an idle connection stays open.
        pub idle_timeout_ms: u64 = 30_000,
    }
}

/// The Host field sent to origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostField {
    /// The value that the client sent.
    Client,
    /// The origin's host name and port.
    Origin,
    /// This fixed value.
    Fixed(String),
}

flatout_reason::defaults! {
    /// Which fields with information about the client are sent to origins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Forwarded {
        /// True if X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host are sent.
        pub x_forwarded: bool = true,
        /// True if Forwarded is sent (RFC 7239).
        pub standard: bool = false,
    }
}

/// How the certificates of https origins are verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginTls {
    /// True if certificates are not verified; for tests.
    pub insecure: bool,
    /// A PEM file with certificate authorities; `None` for the system's authorities.
    pub authorities: Option<PathBuf>,
    /// The name that the certificate must have; `None` for the origin's host.
    pub server_name: Option<String>,
}
