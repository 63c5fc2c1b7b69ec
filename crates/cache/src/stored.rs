//! What is kept of an answer besides its content: everything that later decisions need.

use crate::age;
use crate::freshness::LifetimeSource;
use crate::search::Search;
use crate::tags::Tags;

/// The metadata of a stored answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The status.
    pub status: u16,
    /// When the request was sent that it answered (RFC 9111 §4.2.3).
    pub request_time_s: i64,
    /// When the answer came; moves on when a 304 freshens it.
    pub response_time_s: i64,
    /// The origin's Date, or `response_time_s` when it sent none that is valid (RFC 9110 §6.6.1).
    pub date_s: i64,
    /// The Age that it came with, in seconds (RFC 9111 §5.1).
    pub age_field_s: u32,
    /// `corrected_initial_age` (RFC 9111 §4.2.3), in seconds: how old it was at `response_time_s`.
    pub initial_age_s: u32,
    /// `freshness_lifetime` (RFC 9111 §4.2.1), in seconds.
    pub lifetime_s: u32,
    /// Where the lifetime comes from.
    pub lifetime_source: LifetimeSource,
    /// The second from which it is stale, for every request: the minimum for what is never fresh.
    pub fresh_until_s: i64,
    /// How long beyond its lifetime it may be served while a new one is fetched, in seconds; 0: never.
    pub stale_while_revalidate_s: u32,
    /// How long beyond its lifetime it may be served instead of an error, in seconds; 0: never.
    pub stale_if_error_s: u32,
    /// What its directives say besides.
    pub flags: Flags,
    /// The ETag field's value, when it is a valid entity tag.
    pub etag: Option<Box<[u8]>>,
    /// Last-Modified, when it is a valid date.
    pub last_modified_s: Option<i64>,
    /// The names in Vary, in lower case, sorted, each once, separated by commas; empty: none.
    pub vary: Box<str>,
    /// What [`write_variant_key`](crate::vary::write_variant_key) wrote for the request that it answered.
    pub variant_key: Box<[u8]>,
    /// Its No-Vary-Search, when it has a valid one.
    pub search: Option<Search>,
    /// Its tags, by which it can be purged.
    pub tags: Tags,
    /// Its Cache-Groups (RFC 9875 §2).
    pub groups: Tags,
    /// Which bytes of the representation are kept.
    pub extent: Extent,
    /// The field lines to serve, each `Name: value` and CR LF, Date among them. Absent: what belongs to a connection,
    /// what the directives name, Age, Warning, Content-Length and, for a 206, Content-Range: who serves it writes
    /// these three anew.
    pub lines: Box<[u8]>,
}

/// What an answer's directives and fields say, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// `no-cache`: never served without validation (RFC 9111 §5.2.2.4).
    pub const NO_CACHE: u16 = 1;
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`: no request and no rule makes it be served stale
    /// (RFC 9111 §5.2.2.2, §5.2.2.8, §5.2.2.10). What the answer itself says on staleness beside s-maxage is in
    /// `stale_while_revalidate_s` and `stale_if_error_s` all the same.
    pub const MUST_REVALIDATE: u16 = 2;
    /// `public`, `s-maxage` or `must-revalidate`: may be kept when the request has Authorization, and answer such
    /// requests (RFC 9111 §3.5).
    pub const AUTHORIZED: u16 = 4;
    /// `immutable` (RFC 8246).
    pub const IMMUTABLE: u16 = 8;
    /// `no-transform`.
    pub const NO_TRANSFORM: u16 = 16;
    /// The entity tag is strong.
    pub const STRONG_ETAG: u16 = 32;
    /// Last-Modified is a strong validator (RFC 9110 §8.8.2.2).
    pub const STRONG_DATE: u16 = 64;
    /// It asked for Surrogate-Control: content="ESI/1.0".
    pub const ESI: u16 = 128;
    /// The origin says that it may be shared: `public`, or a lifetime of any kind. Without it the response answers no
    /// request that names its visitor, by a cookie or by Authorization.
    pub const SHARED: u16 = 256;
    /// All that are known.
    pub const KNOWN: u16 = 511;

    /// Whether any of `bits` is set.
    pub const fn any(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// Which bytes of a representation are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All.
    Whole,
    /// A part, from a 206 or built from several (RFC 9111 §3.3).
    Part {
        /// The first byte.
        first: u64,
        /// The last byte, included.
        last: u64,
        /// Bytes of the whole, when that is known.
        total: Option<u64>,
    },
}

impl Stored {
    /// Whether it may be served to a [plain](crate::request::CacheRequest::is_plain) GET or HEAD without any further
    /// question. Always false for a part.
    #[inline]
    pub const fn is_fresh_for_plain_request(&self, now_s: i64) -> bool {
        now_s < self.fresh_until_s
    }

    /// `current_age` (RFC 9111 §4.2.3), in seconds: what Age says. A clock that went back makes nothing younger.
    pub fn current_age_s(&self, now_s: i64) -> u32 {
        age::current_age_s(self.initial_age_s, self.response_time_s, now_s)
    }

    /// Whether it is fresh, no-cache aside (RFC 9111 §4.2).
    pub fn is_fresh(&self, now_s: i64) -> bool {
        self.current_age_s(now_s) < self.lifetime_s
    }

    /// Whether it may ever be served without validation. Otherwise no request gets what was fetched for another one.
    pub const fn is_reusable(&self) -> bool {
        !self.flags.any(Flags::NO_CACHE) && self.lifetime_s > self.initial_age_s
    }

    /// The same, stale from `now_s` on: what a purge leaves that keeps what is stored for the time in which nothing
    /// better is to be had.
    #[must_use]
    pub fn expired(&self, now_s: i64) -> Self {
        let mut expired = self.clone();
        expired.lifetime_s = self.lifetime_s.min(self.current_age_s(now_s));
        expired.settle();
        expired
    }

    /// Sets `fresh_until_s` from the rest.
    pub(crate) fn settle(&mut self) {
        let never = self.flags.any(Flags::NO_CACHE) || self.extent != Extent::Whole;
        let left = i64::from(self.lifetime_s) - i64::from(self.initial_age_s);
        self.fresh_until_s = if never || left <= 0 { i64::MIN } else { self.response_time_s.saturating_add(left) };
    }

    /// Seconds of freshness left; negative: how long it has been stale. For `ttl` in Cache-Status (RFC 9211 §2.4).
    pub fn ttl_s(&self, now_s: i64) -> i64 {
        i64::from(self.lifetime_s) - i64::from(self.current_age_s(now_s))
    }

    /// The last second in which it can be of any use: fresh, within its stale windows, or to be validated. What keeps
    /// objects may drop it afterwards. `grace_s`: how long one is kept for validation alone.
    pub fn useful_until_s(&self, grace_s: u32) -> i64 {
        let stale_s = self.stale_while_revalidate_s.max(self.stale_if_error_s);
        let grace_s = if self.has_validator() { stale_s.max(grace_s) } else { stale_s };
        let left = i64::from(self.lifetime_s) - i64::from(self.initial_age_s);
        self.response_time_s.saturating_add(left).saturating_add(i64::from(grace_s))
    }

    /// Bytes of content that it must come with; `None`: as many as come.
    pub fn content_bytes(&self) -> Option<u64> {
        match self.extent {
            Extent::Whole => None,
            Extent::Part { first, last, .. } => Some(last - first + 1),
        }
    }

    /// Whether a request to the origin can carry a condition on it.
    pub const fn has_validator(&self) -> bool {
        // A 304 stands for a 200 that was not sent (RFC 9110 §15.4.5), so it cannot speak of another status.
        matches!(self.status, 200 | 203 | 206) && (self.etag.is_some() || self.last_modified_s.is_some())
    }

    /// Whether parts of it can be joined, and conditions on ranges hold (RFC 9110 §8.8.1).
    pub const fn has_strong_validator(&self) -> bool {
        self.flags.any(Flags::STRONG_ETAG | Flags::STRONG_DATE)
    }
}
