//! Cache-Control, as requests and responses have it (RFC 9111 §5.2).

/// What a request's Cache-Control says; all seconds are at most [`SECONDS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`, or `Pragma: no-cache` without Cache-Control.
    pub no_cache: bool,
    /// `no-store`.
    pub no_store: bool,
    /// `only-if-cached`.
    pub only_if_cached: bool,
    /// `no-transform`.
    pub no_transform: bool,
    /// `max-age`.
    pub max_age_s: Option<u32>,
    /// `max-stale`; without a value: any staleness.
    pub max_stale_s: Option<u32>,
    /// `min-fresh`.
    pub min_fresh_s: Option<u32>,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error_s: Option<u32>,
}

/// What stands for a number too large, in seconds (RFC 9111 §1.2.2).
pub const SECONDS_MAX: u32 = 1 << 31;
