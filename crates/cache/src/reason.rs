//! Reasons: lookup results and causes for not storing a response. Two tables define their names in logs and counters,
//! their meanings, and remedies.

use crate::status::Fwd;

flatout_reason::reasons! {
    /// Result of a lookup.
    pub enum Lookup {
        name,
        text,
        /// How to change this outcome.
        change: &'static str,
    }
    HitFresh, "hit_fresh", "A stored response was fresh.", "Purge it, or shorten its lifetime, to see a new one.";
    HitWhileRevalidate, "hit_while_revalidate", "A stored response was stale; it was served while a new one is fetched.", "Shorten stale-while-revalidate.";
    HitIfError, "hit_if_error", "The origin responded with an error; a stale stored response was served instead.", "Fix the origin, or shorten stale-if-error.";
    HitIfUnreachable, "hit_if_unreachable", "The origin did not respond; a stale stored response was served instead.", "Fix the origin, or shorten stale-if-error.";
    HitMaxStale, "hit_max_stale", "A stored response was stale, and the request's max-stale allows it.", "Send must-revalidate, or let the cache ignore the directives of requests.";
    HitValidated, "hit_validated", "The origin confirmed that the stored response is still valid.", "Give the response a longer lifetime to avoid the validation.";
    MissCold, "miss_cold", "Nothing was stored under the key.", "Repeat the request: the response is stored now if that is allowed.";
    MissVary, "miss_vary", "The stored responses are for other values of the fields in Vary.", "Name fewer fields in Vary, or fields with few values.";
    MissPart, "miss_part", "Only a part of the response is stored, and it lacks some of the requested bytes.", "Request the whole response once.";
    MissPurged, "miss_purged", "The stored response had been purged or invalidated.", "Repeat the request: the response is stored now if that is allowed.";
    MissCorrupt, "miss_corrupt", "The response stored on disk no longer matched its checksums and was dropped.", "Find out what changed the files, and check the disk.";
    HitForMiss, "hit_for_miss", "The last response for the key could not be shared, so requests for it do not wait for one another.", "See why the last response was not stored or not shared.";
    StaleExpired, "stale_expired", "The stored response was stale, and nothing allows serving it stale.", "Give it a longer lifetime, or stale-while-revalidate.";
    StoredLifetimeInvalid, "stored_lifetime_invalid", "The stored response has an invalid max-age, s-maxage or Expires: it is validated each time.", "Send max-age with a number, or Expires with a date.";
    StoredNoCache, "stored_no_cache", "The stored response says no-cache, so it is validated each time.", "Send max-age instead of no-cache.";
    RequestNoCache, "request_no_cache", "The request says no-cache, in Cache-Control or Pragma.", "Let the cache ignore the directives of requests: request-directives #false.";
    RequestMaxAge, "request_max_age", "The stored response is older than the request's max-age allows.", "Let the cache ignore the directives of requests: request-directives #false.";
    RequestMinFresh, "request_min_fresh", "The stored response will be stale sooner than the request's min-fresh allows.", "Let the cache ignore the directives of requests: request-directives #false.";
    RequestAuthorized, "request_authorized", "The request has Authorization, and the stored response does not allow reuse for such requests.", "Send public, s-maxage or must-revalidate.";
    RequestCookie, "request_cookie", "The request has a cookie that may identify a visitor, and the stored response does not say that it may be shared.", "Send public, s-maxage or max-age; or name the cookie in ignore-cookies or key-cookies.";
    RequestPrecondition, "request_precondition", "The request has If-Match or If-Unmodified-Since, which only the origin can decide.", "Use these fields only in requests that change something.";
    OnlyIfCached, "only_if_cached", "The request accepts only a stored response, and none is usable: 504.", "Send the request without only-if-cached.";
    BypassOff, "bypass_off", "The cache is off for this request.", "Remove cache off=#true from the configuration.";
    BypassMethod, "bypass_method", "Responses to this method are not stored.", "Use GET.";
    BypassContent, "bypass_content", "A GET or HEAD with content is not cacheable.", "Send the request without content.";
    BypassNoStore, "bypass_no_store", "The request says no-store.", "Let the cache ignore the directives of requests: request-directives #false.";
    BypassCookie, "bypass_cookie", "The request has a cookie listed in `bypass-cookies`.", "Remove the cookie from bypass-cookies.";
    BypassMethodOverride, "bypass_method_override", "A field such as X-HTTP-Method-Override names another method than the request line.", "Send the intended method in the request line.";
    BypassUpgrade, "bypass_upgrade", "The request asks to switch protocols.", "None: such a connection cannot be cached.";
    UnsafeMethod, "unsafe_method", "The method may change something: the request is forwarded and invalidates the stored responses for its target.", "Use GET.";
    ValidatorMismatch, "validator_mismatch", "A 304 did not match the validator of the stored response, which was dropped.", "Fix the origin: a 304 must have the ETag of the 200.";
    ErrorPassed, "error_passed", "The origin failed, and no stored response may be served instead.", "Send stale-if-error, or set it in the configuration.";
}

flatout_reason::reasons! {
    /// Reason for not storing a response.
    pub enum NoStore {
        name,
        text,
        /// How to change this outcome.
        change: &'static str,
    }
    Off, "off", "The cache is off for this request.", "Remove cache off=#true from the configuration.";
    MethodNotCacheable, "method_not_cacheable", "It responds to a method other than GET.", "Use GET; for POST, send Content-Location with the target and an explicit lifetime.";
    RequestContent, "request_content", "The request has content, which is not part of a cache key.", "Send the request without content.";
    RequestNoStore, "request_no_store", "The request says no-store.", "Let the cache ignore the directives of requests: request-directives #false.";
    NoStoreDirective, "no_store", "It says no-store.", "Send Cache-Control with max-age instead.";
    Private, "private", "It says private: it is for one visitor only.", "Send public, or remove private.";
    Authorization, "authorization", "The request has Authorization, and the response does not say that it may be shared.", "Send public, s-maxage or must-revalidate.";
    Cookie, "cookie", "The request has a cookie that may identify a visitor, and the response has no explicit lifetime.", "Send public, s-maxage or max-age; or name the cookie in ignore-cookies or key-cookies.";
    EventStream, "event_stream", "It is an event stream (text/event-stream), which is useful only to the current client.", "None: events cannot be cached.";
    NotReusable, "not_reusable", "It may be stored but not reused without validation, so no other request gets it.", "Send a lifetime: max-age or s-maxage.";
    SetCookie, "set_cookie", "It sets a cookie, which would go to all visitors.", "Send cookies only where they are needed, or choose set-cookie strip.";
    StatusNotCacheable, "status_not_cacheable", "Its status is not cacheable without an explicit lifetime.", "Send max-age or Expires.";
    StatusOfRequest, "status_of_request", "Its status concerns this one request, not the resource.", "None: another request may succeed.";
    StatusNotUnderstood, "status_not_understood", "It says must-understand, and this cache does not know its status.", "Remove must-understand.";
    VaryStar, "vary_star", "It says Vary: *, so no other request can match.", "Name the fields on which it depends.";
    VaryInvalid, "vary_invalid", "Its Vary is not a list of names, or is too long.", "Name the fields on which it depends, at most 16.";
    VaryForwarded, "vary_forwarded", "Its Vary names a field that flatout writes for each request, such as X-Forwarded-For with the client's address.", "Remove the field from Vary, or do not send it to the origin.";
    VariantsTooMany, "variants_too_many", "Its key already has the maximum number of variants.", "Name only fields with few values in Vary.";
    NoFreshness, "no_freshness", "It has no lifetime and no validator, so it could never be used again.", "Send max-age, or ETag.";
    AlreadyStale, "already_stale", "It was already stale on arrival and has no validator.", "Send a longer lifetime, or ETag.";
    MaxAgeInvalid, "max_age_invalid", "Its max-age or s-maxage is not a number, which makes it stale, and it has no validator.", "Send max-age with a number.";
    ExpiresInvalid, "expires_invalid", "Its Expires is not a date, which makes it stale, and it has no validator.", "Send Expires with a date, or max-age.";
    PartUnusable, "part_unusable", "It is a 206 whose content does not match one byte range.", "Fix the origin's Content-Range.";
    TooLarge, "too_large", "Its content is larger than object-max.", "Raise object-max.";
    Incomplete, "incomplete", "Its content ended too early.", "Fix the origin.";
    CloseDelimited, "close_delimited", "Its content ends with the connection, so a truncated response cannot be detected.", "Send Content-Length or chunks.";
    TagsTooMany, "tags_too_many", "It has too many tags, or a tag that is too long.", "Send at most 256 tags of at most 1,024 bytes each.";
    FieldsTooLarge, "fields_too_large", "Its fields are larger than the limit.", "Send fewer or shorter fields.";
    NotModifiedUnasked, "not_modified_unasked", "It is a 304 to a condition of the client, not of the cache.", "None: the client's own condition was met.";
    HeadOnly, "head_only", "It responds to HEAD, and nothing is stored for GET.", "Use GET.";
    Bypassed, "bypassed", "The request bypasses the cache; the reason of its lookup says why.", "See that reason.";
    NoRoom, "no_room", "The store had no space for it.", "Raise the limits of the store.";
}

impl Lookup {
    /// Reason for forwarding in Cache-Status (RFC 9211 §2.2); `None`: the request was not forwarded, or not for this
    /// reason.
    pub const fn fwd(self) -> Option<Fwd> {
        Some(match self {
            Self::HitFresh
            | Self::HitWhileRevalidate
            | Self::HitIfError
            | Self::HitIfUnreachable
            | Self::HitMaxStale
            | Self::OnlyIfCached => return None,
            Self::MissCold | Self::MissPurged | Self::MissCorrupt => Fwd::UriMiss,
            Self::MissVary => Fwd::VaryMiss,
            Self::MissPart => Fwd::Partial,
            Self::HitForMiss | Self::ValidatorMismatch | Self::ErrorPassed => Fwd::Miss,
            Self::HitValidated | Self::StaleExpired | Self::StoredLifetimeInvalid | Self::StoredNoCache => Fwd::Stale,
            Self::RequestNoCache
            | Self::RequestMaxAge
            | Self::RequestMinFresh
            | Self::RequestAuthorized
            | Self::RequestCookie
            | Self::RequestPrecondition => Fwd::Request,
            Self::BypassMethod | Self::UnsafeMethod => Fwd::Method,
            Self::BypassOff
            | Self::BypassContent
            | Self::BypassCookie
            | Self::BypassNoStore
            | Self::BypassMethodOverride
            | Self::BypassUpgrade => Fwd::Bypass,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Lookup, NoStore};
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_sentences_are_whole() {
        let names: HashSet<_> = Lookup::NAMES.iter().chain(NoStore::NAMES).collect();
        assert_eq!(names.len(), Lookup::ALL.len() + NoStore::ALL.len());
        let lookups = Lookup::ALL.iter().map(|reason| (reason.name(), reason.text(), reason.change()));
        let stores = NoStore::ALL.iter().map(|reason| (reason.name(), reason.text(), reason.change()));
        for (name, text, change) in lookups.chain(stores) {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(text.ends_with('.') && change.ends_with('.'), "{name}");
        }
        for (index, reason) in Lookup::ALL.iter().enumerate() {
            assert_eq!((*reason as usize, reason.name()), (index, Lookup::NAMES[index]));
            assert_eq!(
                reason.fwd().is_none(),
                reason.name().starts_with("hit_") && *reason != Lookup::HitForMiss && *reason != Lookup::HitValidated
                    || *reason == Lookup::OnlyIfCached,
                "{}",
                reason.name()
            );
        }
    }
}
