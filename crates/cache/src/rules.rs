//! Cache configuration.

use crate::cookie::CookieRules;

flatout_reason::defaults! {
    /// Rules for storing and reusing responses.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Rules {
        /// True to store responses and serve stored ones.
        pub enabled: bool = true,
        /// Lifetime of a response without an explicit lifetime, in seconds, or `None` to apply
        /// [`heuristics`](Self::heuristics). Applies only to responses that permit a heuristic lifetime (RFC 9111
        /// §4.2.2), and at most [`ERROR_LIFETIME_S_MAX`](crate::freshness::ERROR_LIFETIME_S_MAX) to those whose status
        /// is not 200, 203, 206, 301 or 308.
        pub default_ttl_s: Option<u32>,
        /// Statuses that have a default lifetime of their own, in seconds. They must permit a heuristic lifetime.
        pub status_ttls_s: Vec<(u16, u32)>,
        /// True to derive lifetimes from Last-Modified: a tenth of the time since then (RFC 9111 §4.2.2).
        pub heuristics: bool = true,
        /// Maximum heuristic lifetime, in seconds.
        pub heuristic_max_s: u32 = 86_400,
        /// Maximum staleness of a response served during revalidation, in seconds, unless the origin specifies it (RFC
        /// 5861 §3).
        pub stale_while_revalidate_s: u32 = 0,
        /// Maximum staleness of a response served because the origin failed or is unreachable, in seconds, unless the
        /// origin specifies it (RFC 5861 §4, RFC 9111 §4.2.4).
        pub stale_if_error_s: u32 = 0,
        /// Treatment of responses with Set-Cookie.
        pub set_cookie: SetCookie = SetCookie::Refuse,
        /// Request cookies that bypass the cache, identify visitors, or are part of the variant key.
        pub cookies: CookieRules,
        /// Query parameters that are part of the key and are forwarded.
        pub query: QueryKey = QueryKey::All,
        /// True to honour request directives, which are advisory (RFC 9111 §5.2.1).
        pub request_directives: bool = true,
        /// Maximum number of variants per key.
        pub variants_max: u32 = 32,
        /// Maximum size of the content of a stored response, in bytes.
        pub object_bytes_max: u64 = 1024 * 1024 * 1024,
        /// Targeted fields for this cache, of which the first valid one applies (RFC 9213 §2.2). May include
        /// `Surrogate-Control`, which has a different grammar (Edge Architecture Specification 1.0).
        pub targeted: Vec<String> =
            ["Flatout-Cache-Control", "CDN-Cache-Control", "Surrogate-Control"].map(str::to_owned).into(),
        /// Name of this cache in Surrogate-Control and Surrogate-Capability. Must be a token.
        pub surrogate: String = "flatout".to_owned(),
        /// Response fields that contain tags.
        pub tag_fields: Vec<String> = vec!["Surrogate-Key".to_owned(), "Cache-Tag".to_owned()],
        /// True to honour No-Vary-Search.
        pub no_vary_search: bool = true,
        /// How long a key stays marked as hit-for-miss, in seconds. During that time, requests for the key do not wait
        /// for one another. 0 disables marking.
        pub hit_for_miss_s: u32 = 60,
        /// True to store close-delimited content. RFC 9112 §8 considers such content complete, but truncation is
        /// undetectable.
        pub close_delimited: bool = true,
        /// True to use a response stored for a different Accept-Language if its Content-Language is the request's
        /// preferred language. RFC 9111 §4.1 does not permit this, but http-cache-tests expects it. Off by default,
        /// because it is safe only if the origin negotiates this way.
        pub language_select: bool = false,
        /// True to store a 206 whose content is shorter than its Content-Range. Off by default, because such a response
        /// is broken; http-cache-tests uses one.
        pub mismatched_ranges: bool = false,
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

/// The query parameters that are part of the key. Parameters excluded from the key are also removed from the upstream
/// request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryKey {
    /// The whole query, as written.
    #[default]
    All,
    /// All but these parameters; a trailing `*` matches any suffix (`utm_*`).
    Without(Vec<String>),
    /// Only these parameters; a trailing `*` matches any suffix.
    Only(Vec<String>),
}
