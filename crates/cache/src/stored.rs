//! Metadata of a stored response: everything that later decisions need, apart from the content.

use crate::age;
use crate::freshness::LifetimeSource;
use crate::search::NoVarySearch;
use crate::tags::Tags;

/// Metadata of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Status code of the response.
    pub status: u16,
    /// Time when the request for the response was sent (RFC 9111 §4.2.3), in seconds since 1970.
    pub request_time_s: i64,
    /// Time when the response, or the last 304 that freshened it, arrived, in seconds since 1970.
    pub response_time_s: i64,
    /// The origin's Date in seconds since 1970, or `response_time_s` if Date is missing or invalid (RFC 9110 §6.6.1).
    pub date_s: i64,
    /// Age as received, in seconds (RFC 9111 §5.1).
    pub age_field_s: u32,
    /// `corrected_initial_age` (RFC 9111 §4.2.3), in seconds: the age at `response_time_s`.
    pub initial_age_s: u32,
    /// `freshness_lifetime` (RFC 9111 §4.2.1), in seconds.
    pub lifetime_s: u32,
    /// The field or rule that set the freshness lifetime.
    pub lifetime_source: LifetimeSource,
    /// Time when the response becomes stale, in seconds since 1970. This is the minimum value if the response can never
    /// be served without validation or is a part.
    pub fresh_until_s: i64,
    /// Maximum staleness during revalidation, in seconds. 0 if a stale response must not be served.
    pub stale_while_revalidate_s: u32,
    /// Maximum staleness in place of an error, in seconds. 0 if a stale response must not be served.
    pub stale_if_error_s: u32,
    /// Other directives and properties.
    pub flags: Flags,
    /// Value of ETag, if it is a valid entity tag.
    pub etag: Option<Box<[u8]>>,
    /// Last-Modified, if it is a valid date.
    pub last_modified_s: Option<i64>,
    /// Lower-case, sorted, unique names from Vary, separated by commas. Empty if there are none.
    pub vary: Box<str>,
    /// Output of [`write_variant_key`](crate::vary::write_variant_key) for the request that fetched the response.
    pub variant_key: Box<[u8]>,
    /// No-Vary-Search, if valid.
    pub search: Option<NoVarySearch>,
    /// Tags for purging.
    pub tags: Tags,
    /// Groups from Cache-Groups (RFC 9875 §2).
    pub groups: Tags,
    /// The bytes of the representation that are stored.
    pub extent: Extent,
    /// The field lines to serve, each `Name: value` and CR LF, including Date. Connection fields, fields named by the
    /// directives, Warning, Age, Content-Length and, for a 206, Trailer and Content-Range are excluded. Age,
    /// Content-Length and Content-Range are generated when the response is served.
    pub lines: Box<[u8]>,
}

/// Bit set of directives and properties of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// `no-cache`: the response is never served without validation (RFC 9111 §5.2.2.4).
    pub const NO_CACHE: u16 = 1;
    /// `must-revalidate`, `proxy-revalidate` or `s-maxage`: neither a request nor the configuration can permit serving
    /// the response stale (RFC 9111 §5.2.2.2, §5.2.2.8, §5.2.2.10). `stale_while_revalidate_s` and `stale_if_error_s`
    /// still contain the values that the response itself specifies along with s-maxage.
    pub const MUST_REVALIDATE: u16 = 2;
    /// `public`, `s-maxage` or `must-revalidate`: the response may be stored although its request has Authorization
    /// (RFC 9111 §3.5). It may be served to such requests if `SHARED` is also set.
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
    /// The origin allows sharing: `public`, or an explicit lifetime. Otherwise, the response is not served to a request
    /// that identifies its visitor by a cookie or Authorization.
    pub const SHARED: u16 = 256;
    /// The origin does not offer ranges of the whole response: it sent `Accept-Ranges: none`, or a Content-Encoding
    /// without `Accept-Ranges: bytes`. Ranges require If-Range, which proves that the client has this representation.
    pub const NO_RANGES: u16 = 512;
    /// All known bits.
    pub const KNOWN: u16 = 1023;

    /// Returns whether any of `bits` is set.
    pub const fn any(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// The bytes of a representation that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All bytes.
    Whole,
    /// A part, from one 206 or combined from several (RFC 9111 §3.3).
    Part {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte, inclusive.
        last: u64,
        /// Length of the whole representation in bytes, if known.
        total: Option<u64>,
    },
}

impl Stored {
    /// Returns whether the response may be served to a [plain](crate::request::CacheRequest::is_plain) GET or HEAD
    /// without further checks. Always false for a part.
    #[inline]
    pub const fn is_fresh_for_plain_request(&self, now_s: i64) -> bool {
        now_s < self.fresh_until_s
    }

    /// Returns `current_age` (RFC 9111 §4.2.3), in seconds, for Age. If the clock is set back, the age does not fall
    /// below `initial_age_s`.
    pub fn current_age_s(&self, now_s: i64) -> u32 {
        age::current_age_s(self.initial_age_s, self.response_time_s, now_s)
    }

    /// Returns whether the response may ever be served without validation. If not, requests must not share its fetch.
    pub const fn is_reusable(&self) -> bool {
        !self.flags.any(Flags::NO_CACHE) && self.lifetime_s > self.initial_age_s
    }

    /// Returns a copy that is stale from `now_s` on. Used for a soft purge, after which the response may be served only
    /// as a stale response.
    #[must_use]
    pub fn expired(&self, now_s: i64) -> Self {
        let mut expired = self.clone();
        expired.lifetime_s = self.lifetime_s.min(self.current_age_s(now_s));
        expired.settle();
        expired
    }

    /// Recalculates `fresh_until_s` from the other fields.
    pub(crate) fn settle(&mut self) {
        let never = self.flags.any(Flags::NO_CACHE) || self.extent != Extent::Whole;
        let left = i64::from(self.lifetime_s) - i64::from(self.initial_age_s);
        self.fresh_until_s = if never || left <= 0 { i64::MIN } else { self.response_time_s.saturating_add(left) };
    }

    /// Returns the remaining freshness in seconds, negative if the response is stale. For `ttl` in Cache-Status (RFC
    /// 9211 §2.4).
    pub fn ttl_s(&self, now_s: i64) -> i64 {
        i64::from(self.lifetime_s) - i64::from(self.current_age_s(now_s))
    }

    /// Returns the time until which the response is useful because it is fresh, within its stale windows, or can be
    /// validated, in seconds since 1970. A store may drop the response after that. `grace_s` is how long to keep a
    /// stale response that has a validator, in seconds.
    pub fn useful_until_s(&self, grace_s: u32) -> i64 {
        let stale_s = self.stale_while_revalidate_s.max(self.stale_if_error_s);
        let grace_s = if self.has_validator() { stale_s.max(grace_s) } else { stale_s };
        let left = i64::from(self.lifetime_s) - i64::from(self.initial_age_s);
        self.response_time_s.saturating_add(left).saturating_add(i64::from(grace_s))
    }

    /// Returns the required length of the content in bytes, or `None` if any length is valid.
    pub fn content_bytes(&self) -> Option<u64> {
        match self.extent {
            Extent::Whole => None,
            Extent::Part { first, last, .. } => Some(last - first + 1),
        }
    }

    /// Returns whether a conditional upstream request is possible.
    pub const fn has_validator(&self) -> bool {
        // A 304 stands for a 200 (RFC 9110 §15.4.5), so it does not apply to a stored error or redirect.
        matches!(self.status, 200 | 203 | 206) && (self.etag.is_some() || self.last_modified_s.is_some())
    }

    /// Returns whether the response has a strong validator (RFC 9110 §8.8.1), which is required for combining parts and
    /// for If-Range.
    pub const fn has_strong_validator(&self) -> bool {
        self.flags.any(Flags::STRONG_ETAG | Flags::STRONG_DATE)
    }
}
