//! Metadata of a stored response: everything that later decisions need besides the content.

use crate::age;
use crate::freshness::LifetimeSource;
use crate::search::NoVarySearch;
use crate::tags::Tags;

/// Metadata of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The status.
    pub status: u16,
    /// When its request was sent (RFC 9111 §4.2.3).
    pub request_time_s: i64,
    /// When the response arrived; a 304 that freshens it updates this.
    pub response_time_s: i64,
    /// The origin's Date, or `response_time_s` if Date is missing or invalid (RFC 9110 §6.6.1).
    pub date_s: i64,
    /// Age as received, in seconds (RFC 9111 §5.1).
    pub age_field_s: u32,
    /// `corrected_initial_age` (RFC 9111 §4.2.3), in seconds: the age at `response_time_s`.
    pub initial_age_s: u32,
    /// `freshness_lifetime` (RFC 9111 §4.2.1), in seconds.
    pub lifetime_s: u32,
    /// Source of the lifetime.
    pub lifetime_source: LifetimeSource,
    /// The second from which it is stale for every request; the minimum value if it is never fresh.
    pub fresh_until_s: i64,
    /// Maximum staleness during revalidation, in seconds; 0: never.
    pub stale_while_revalidate_s: u32,
    /// Maximum staleness in place of an error, in seconds; 0: never.
    pub stale_if_error_s: u32,
    /// Other directives and properties.
    pub flags: Flags,
    /// Value of ETag, if it is a valid entity tag.
    pub etag: Option<Box<[u8]>>,
    /// Last-Modified, if it is a valid date.
    pub last_modified_s: Option<i64>,
    /// Lower-case, sorted, unique names from Vary, separated by commas; empty: none.
    pub vary: Box<str>,
    /// Output of [`write_variant_key`](crate::vary::write_variant_key) for its request.
    pub variant_key: Box<[u8]>,
    /// No-Vary-Search, if valid.
    pub search: Option<NoVarySearch>,
    /// Tags for purging.
    pub tags: Tags,
    /// Its Cache-Groups (RFC 9875 §2).
    pub groups: Tags,
    /// Which bytes of the representation are stored.
    pub extent: Extent,
    /// The field lines to serve, each `Name: value` and CR LF, including Date. Excluded: connection fields, fields
    /// that the directives name, Warning, Age, Content-Length and, for a 206, Content-Range. The last three are
    /// generated when it is served.
    pub lines: Box<[u8]>,
}

/// Bit set of directives and properties of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// `no-cache`: never served without validation (RFC 9111 §5.2.2.4).
    pub const NO_CACHE: u16 = 1;
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`: no request and no rule permits serving it stale (RFC 9111
    /// §5.2.2.2, §5.2.2.8, §5.2.2.10). `stale_while_revalidate_s` and `stale_if_error_s` still hold what the response
    /// itself specifies beside s-maxage.
    pub const MUST_REVALIDATE: u16 = 2;
    /// `public`, `s-maxage` or `must-revalidate`: it may be stored although the request has Authorization, and satisfy
    /// such requests (RFC 9111 §3.5).
    pub const AUTHORIZED: u16 = 4;
    /// `immutable` (RFC 8246).
    pub const IMMUTABLE: u16 = 8;
    /// `no-transform`.
    pub const NO_TRANSFORM: u16 = 16;
    /// The entity tag is strong.
    pub const STRONG_ETAG: u16 = 32;
    /// Last-Modified is a strong validator (RFC 9110 §8.8.2.2).
    pub const STRONG_DATE: u16 = 64;
    /// Surrogate-Control has content="ESI/1.0".
    pub const ESI: u16 = 128;
    /// The origin allows sharing: `public`, or a lifetime of any kind. Otherwise the response satisfies no request
    /// that identifies its visitor by a cookie or Authorization.
    pub const SHARED: u16 = 256;
    /// All known bits.
    pub const KNOWN: u16 = 511;

    /// Returns whether any of `bits` is set.
    pub const fn any(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// Stored bytes of a representation.
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
        /// Length of the whole in bytes, if known.
        total: Option<u64>,
    },
}

impl Stored {
    /// Returns whether it may be served to a [plain](crate::request::CacheRequest::is_plain) GET or HEAD without
    /// further checks. Always false for a part.
    #[inline]
    pub const fn is_fresh_for_plain_request(&self, now_s: i64) -> bool {
        now_s < self.fresh_until_s
    }

    /// `current_age` (RFC 9111 §4.2.3), in seconds, for Age. A clock that moves backwards does not reduce it.
    pub fn current_age_s(&self, now_s: i64) -> u32 {
        age::current_age_s(self.initial_age_s, self.response_time_s, now_s)
    }

    /// Returns whether it is fresh, regardless of no-cache (RFC 9111 §4.2).
    pub fn is_fresh(&self, now_s: i64) -> bool {
        self.current_age_s(now_s) < self.lifetime_s
    }

    /// Returns whether it may ever be served without validation. If not, no other request may share its fetch.
    pub const fn is_reusable(&self) -> bool {
        !self.flags.any(Flags::NO_CACHE) && self.lifetime_s > self.initial_age_s
    }

    /// A copy that is stale from `now_s` on, for a soft purge: it may be served only while no new response is
    /// available.
    #[must_use]
    pub fn expired(&self, now_s: i64) -> Self {
        let mut expired = self.clone();
        expired.lifetime_s = self.lifetime_s.min(self.current_age_s(now_s));
        expired.settle();
        expired
    }

    /// Calculates `fresh_until_s` from the other fields.
    pub(crate) fn settle(&mut self) {
        let never = self.flags.any(Flags::NO_CACHE) || self.extent != Extent::Whole;
        let left = i64::from(self.lifetime_s) - i64::from(self.initial_age_s);
        self.fresh_until_s = if never || left <= 0 { i64::MIN } else { self.response_time_s.saturating_add(left) };
    }

    /// Seconds of freshness left, negative if stale. For `ttl` in Cache-Status (RFC 9211 §2.4).
    pub fn ttl_s(&self, now_s: i64) -> i64 {
        i64::from(self.lifetime_s) - i64::from(self.current_age_s(now_s))
    }

    /// The last second in which it is useful: fresh, within its stale windows, or available for validation. A store
    /// may drop it afterwards. `grace_s`: additional seconds for validation only.
    pub fn useful_until_s(&self, grace_s: u32) -> i64 {
        let stale_s = self.stale_while_revalidate_s.max(self.stale_if_error_s);
        let grace_s = if self.has_validator() { stale_s.max(grace_s) } else { stale_s };
        let left = i64::from(self.lifetime_s) - i64::from(self.initial_age_s);
        self.response_time_s.saturating_add(left).saturating_add(i64::from(grace_s))
    }

    /// Required bytes of content; `None`: any number.
    pub fn content_bytes(&self) -> Option<u64> {
        match self.extent {
            Extent::Whole => None,
            Extent::Part { first, last, .. } => Some(last - first + 1),
        }
    }

    /// Returns whether a conditional upstream request is possible.
    pub const fn has_validator(&self) -> bool {
        // A 304 replaces a 200 (RFC 9110 §15.4.5), so it cannot apply to another status.
        matches!(self.status, 200 | 203 | 206) && (self.etag.is_some() || self.last_modified_s.is_some())
    }

    /// Returns whether parts can be joined and If-Range can match (RFC 9110 §8.8.1).
    pub const fn has_strong_validator(&self) -> bool {
        self.flags.any(Flags::STRONG_ETAG | Flags::STRONG_DATE)
    }
}
