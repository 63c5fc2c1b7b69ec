//! Cache configuration.

use crate::cookie::CookieRules;

/// Rules for storing and reusing responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// True to store responses and serve stored ones.
    pub enabled: bool,
    /// Lifetime of a response without an explicit one, in seconds; `None`: according to
    /// [`heuristics`](Self::heuristics). Applies only to statuses that permit a heuristic lifetime (RFC 9111 §4.2.2).
    pub default_ttl_s: Option<u32>,
    /// True to derive lifetimes from Last-Modified: a tenth of the time since then (RFC 9111 §4.2.2).
    pub heuristics: bool,
    /// Maximum heuristic lifetime, in seconds.
    pub heuristic_max_s: u32,
    /// Maximum staleness during revalidation, in seconds, unless the origin specifies it (RFC 5861 §3).
    pub stale_while_revalidate_s: u32,
    /// Maximum staleness in place of an error or if no origin is reachable, in seconds, unless the origin specifies it
    /// (RFC 5861 §4, RFC 9111 §4.2.4).
    pub stale_if_error_s: u32,
    /// Treatment of responses with Set-Cookie.
    pub set_cookie: SetCookie,
    /// Treatment of request cookies.
    pub cookies: CookieRules,
    /// Part of the query that is in the key and forwarded.
    pub query: QueryKey,
    /// True to honour request directives, which are advisory (RFC 9111 §5.2.1).
    pub request_directives: bool,
    /// Maximum variants per key.
    pub variants_max: u32,
    /// Maximum stored content, in bytes.
    pub object_bytes_max: u64,
    /// Fields that target this cache; the first valid one counts (RFC 9213 §2.2). May include `Surrogate-Control`,
    /// which has a different grammar (Edge Architecture Specification 1.0).
    pub targeted: Vec<String>,
    /// Name of this cache in Surrogate-Control and Surrogate-Capability: a token.
    pub surrogate: String,
    /// Response fields that contain tags.
    pub tag_fields: Vec<String>,
    /// True to honour No-Vary-Search.
    pub no_vary_search: bool,
    /// How long a key stays marked as uncacheable, in seconds: its requests do not wait for one another meanwhile.
    pub hit_for_miss_s: u32,
    /// True to store content delimited by the close of the connection. RFC 9112 §8 considers it complete, but
    /// truncation is undetectable.
    pub close_delimited: bool,
    /// True to use a stored response for another Accept-Language if its Content-Language is the request's preferred
    /// language. RFC 9111 §4.1 does not permit this; http-cache-tests expect it. Off by default: safe only if the
    /// origin negotiates this way.
    pub language_select: bool,
    /// True to store a 206 whose content does not match its Content-Range, unchanged, for the same Range. Off by
    /// default: such a response is broken; http-cache-tests use one.
    pub mismatched_ranges: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            enabled: true,
            default_ttl_s: None,
            heuristics: true,
            heuristic_max_s: 86_400,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
            set_cookie: SetCookie::Refuse,
            cookies: CookieRules::default(),
            query: QueryKey::All,
            request_directives: true,
            variants_max: 32,
            object_bytes_max: 1024 * 1024 * 1024,
            targeted: ["Flatout-Cache-Control", "CDN-Cache-Control", "Surrogate-Control"].map(str::to_owned).into(),
            surrogate: "flatout".to_owned(),
            tag_fields: vec!["Surrogate-Key".to_owned(), "Cache-Tag".to_owned()],
            no_vary_search: true,
            hit_for_miss_s: 60,
            close_delimited: true,
            language_select: false,
            mismatched_ranges: false,
        }
    }
}

/// Treatment of responses with Set-Cookie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// Do not store them.
    #[default]
    Refuse,
    /// Store them without Set-Cookie.
    Strip,
    /// Store them with Set-Cookie, as RFC 9111 §7.3 permits. Unwise: all clients then receive one visitor's cookie.
    Store,
}

/// Part of the query in the key. Parameters excluded from the key are removed from the upstream request too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryKey {
    /// All of it, as written.
    #[default]
    All,
    /// All but these parameters; a trailing `*` matches any suffix (`utm_*`).
    Without(Vec<String>),
    /// Only these; a trailing `*` matches any suffix.
    Only(Vec<String>),
}
