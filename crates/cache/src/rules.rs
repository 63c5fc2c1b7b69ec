//! What the owner of a cache has chosen.

use crate::cookie::CookieRules;

/// What may be kept of origins' answers, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether anything is kept or answered from what is kept.
    pub enabled: bool,
    /// How long an answer without an explicit lifetime is fresh, in seconds; `None`: as [`heuristics`](Self::heuristics)
    /// says. Applies to the statuses for which a lifetime may be guessed at all (RFC 9111 §4.2.2).
    pub default_ttl_s: Option<u32>,
    /// Whether lifetimes are guessed from Last-Modified: a tenth of the time since then (RFC 9111 §4.2.2).
    pub heuristics: bool,
    /// The longest guessed lifetime, in seconds.
    pub heuristic_max_s: u32,
    /// How long a stale answer may be served while a new one is fetched, in seconds, when the origin does not say
    /// (RFC 5861 §3).
    pub stale_while_revalidate_s: u32,
    /// How long a stale answer may be served instead of an error or when no origin can be reached, in seconds, when
    /// the origin does not say (RFC 5861 §4, RFC 9111 §4.2.4).
    pub stale_if_error_s: u32,
    /// What becomes of answers with Set-Cookie.
    pub set_cookie: SetCookie,
    /// Which cookies of a request matter.
    pub cookies: CookieRules,
    /// Which part of the query is in the key, and is forwarded.
    pub query: QueryKey,
    /// Whether the directives of requests are obeyed. They are advisory (RFC 9111 §5.2.1).
    pub request_directives: bool,
    /// Variants that one key may have, by Vary.
    pub variants_max: u32,
    /// The largest content kept, in bytes.
    pub object_bytes_max: u64,
    /// Fields by which origins speak to this cache alone; the first valid one counts (RFC 9213 §2.2).
    /// `Surrogate-Control` may be among them, which has a grammar of its own (Edge Architecture Specification 1.0).
    pub targeted: Vec<String>,
    /// This cache's name in Surrogate-Control and Surrogate-Capability: a token.
    pub surrogate: String,
    /// Fields with an answer's tags.
    pub tag_fields: Vec<String>,
    /// Whether No-Vary-Search is obeyed.
    pub no_vary_search: bool,
    /// How long it is remembered that a key's answers cannot be kept, in seconds: requests for it do not wait for one
    /// another meanwhile.
    pub hit_for_miss_s: u32,
    /// Whether content whose end is the end of the connection is kept. RFC 9112 §8 takes it for complete, and so do
    /// others; nobody can tell when it is cut.
    pub close_delimited: bool,
    /// Whether an answer for another Accept-Language is used when its Content-Language is the one that the request
    /// likes best. RFC 9111 §4.1 does not allow it; http-cache-tests ask for it. Off unless its owner knows that the
    /// origin negotiates so.
    pub language_select: bool,
    /// Whether a 206 with other content than its Content-Range says is kept as it came and given again to the same
    /// Range. Off: such an answer is broken; http-cache-tests use one.
    pub uneven_parts: bool,
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
    /// They are kept with it, as RFC 9111 §7.3 lets a cache do: unwise, for one visitor's cookie then goes to all.
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
    /// These alone; a `*` at the end as before.
    Only(Vec<String>),
}
