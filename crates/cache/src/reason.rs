//! Lookup results, and reasons for not storing a response. Two tables define their names in logs and metrics, their
//! meanings, and remedies.

use crate::status::Fwd;

flatout_reason::reasons! {
    /// Result of a lookup.
    pub enum Lookup {
        name,
        text,
        /// How to change this outcome.
        change: &'static str,
    }
    HitFresh, "hit_fresh", "The stored response is fresh.", "To get a new one, purge it or shorten its lifetime.";
    HitWhileRevalidate, "hit_while_revalidate", "The stored response is stale; flatout serves it while it fetches a new one.", "Shorten stale-while-revalidate.";
    HitIfError, "hit_if_error", "The origin responded with an error, so flatout serves a stale stored response.", "Fix the origin, or shorten stale-if-error.";
    HitIfUnreachable, "hit_if_unreachable", "The origin did not respond, so flatout serves a stale stored response.", "Fix the origin, or shorten stale-if-error.";
    HitMaxStale, "hit_max_stale", "The stored response is stale, but the request's max-stale allows serving it.", "Send must-revalidate from the origin, or set request-directives #false.";
    HitValidated, "hit_validated", "The origin confirmed that the stored response is still valid.", "Give the response a longer lifetime to avoid the validation.";
    MissCold, "miss_cold", "No response was stored for the cache key.", "Repeat the request: if the response can be stored, it is stored now.";
    MissVary, "miss_vary", "No stored response matches the request's values of the fields listed in Vary.", "List fewer fields in Vary, or only fields with few values.";
    MissPart, "miss_part", "Only part of the response is stored, and some of the requested bytes are missing.", "Request the whole response once.";
    MissPurged, "miss_purged", "The stored response had been purged or invalidated.", "Repeat the request: if the response can be stored, it is stored now.";
    MissCorrupt, "miss_corrupt", "The response stored on disk no longer matched its checksums and was dropped.", "Find out what changed the files, and check the disk.";
    HitForMiss, "hit_for_miss", "The last response for the cache key could not be shared, so requests do not wait for one another.", "Find out why the last response was not stored or shared.";
    StaleExpired, "stale_expired", "The stored response was stale, and nothing allows serving it stale.", "Give it a longer lifetime, or set stale-while-revalidate.";
    StoredLifetimeInvalid, "stored_lifetime_invalid", "The stored response has an invalid max-age, s-maxage or Expires, so it is validated each time.", "Send max-age with a number, or Expires with a date.";
    StoredNoCache, "stored_no_cache", "The stored response has no-cache, so it is validated each time.", "Send max-age instead of no-cache.";
    RequestNoCache, "request_no_cache", "The request has no-cache in Cache-Control or Pragma.", "Make the cache ignore request directives: request-directives #false.";
    RequestMaxAge, "request_max_age", "The stored response is older than the request's max-age allows.", "Make the cache ignore request directives: request-directives #false.";
    RequestMinFresh, "request_min_fresh", "The stored response will be stale sooner than the request's min-fresh allows.", "Make the cache ignore request directives: request-directives #false.";
    RequestAuthorized, "request_authorized", "The request has Authorization, and the stored response does not allow reuse for such requests.", "Send public, s-maxage or must-revalidate.";
    RequestCookie, "request_cookie", "The request has a cookie that may identify a visitor, and the stored response does not say that it may be shared.", "Send public, s-maxage or max-age, or list the cookie in ignore-cookies or key-cookies.";
    RequestPrecondition, "request_precondition", "The request has If-Match or If-Unmodified-Since, which only the origin can evaluate.", "Use these fields only in requests that change something.";
    OnlyIfCached, "only_if_cached", "The request has only-if-cached, and no stored response is usable: 504.", "Send the request without only-if-cached.";
    BypassOff, "bypass_off", "The cache is off for this request.", "Remove cache off=#true from the configuration.";
    BypassMethod, "bypass_method", "Responses to this method are not stored.", "Use GET.";
    BypassContent, "bypass_content", "A GET or HEAD with content is not cacheable.", "Send the request without content.";
    BypassNoStore, "bypass_no_store", "The request has no-store.", "Make the cache ignore request directives: request-directives #false.";
    BypassCookie, "bypass_cookie", "The request has a cookie listed in `bypass-cookies`.", "Remove the cookie from bypass-cookies.";
    BypassOverride, "bypass_override", "A field such as X-HTTP-Method-Override or X-Original-URL overrides the method or the target of the request line.", "Send the intended method and target in the request line.";
    BypassUpgrade, "bypass_upgrade", "The request asks for a protocol upgrade.", "Not possible: an upgraded connection cannot be cached.";
    UnsafeMethod, "unsafe_method", "The method is unsafe: the request is forwarded and invalidates the stored responses for its URL.", "Use GET.";
    ValidatorMismatch, "validator_mismatch", "A 304 did not match the validator of the stored response, which was dropped.", "Fix the origin: a 304 must have the same ETag as the 200.";
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
    MethodNotCacheable, "method_not_cacheable", "The request's method is not GET.", "Use GET; for POST, send an explicit lifetime and Content-Location with the URL of the request.";
    RequestContent, "request_content", "The request has content, which is not part of the cache key.", "Send the request without content.";
    RequestNoStore, "request_no_store", "The request has no-store.", "Make the cache ignore request directives: request-directives #false.";
    NoStoreDirective, "no_store", "The response has no-store.", "Send Cache-Control with max-age instead.";
    Private, "private", "The response is private: it is for one visitor only.", "Send public, or remove private.";
    Authorization, "authorization", "The request has Authorization, and the response does not say that it may be shared.", "Send public, s-maxage or must-revalidate.";
    Cookie, "cookie", "The request has a cookie that may identify a visitor, and the response has no explicit lifetime.", "Send public, s-maxage or max-age, or list the cookie in ignore-cookies or key-cookies.";
    EventStream, "event_stream", "The response is an event stream (text/event-stream), which is useful only to the current client.", "Not possible: events cannot be cached.";
    NotReusable, "not_reusable", "Each reuse of the response requires validation, so waiting requests cannot share it.", "Send a lifetime: max-age or s-maxage.";
    SetCookie, "set_cookie", "The response sets a cookie, which all visitors would receive.", "Send cookies only where they are needed, or use set-cookie \"strip\".";
    StatusNotCacheable, "status_not_cacheable", "The status of the response is not cacheable without an explicit lifetime.", "Send max-age or Expires.";
    StatusOfRequest, "status_of_request", "The status of the response applies only to this request, not to the resource.", "No change needed: another request may succeed.";
    StatusNotUnderstood, "status_not_understood", "The response has must-understand, and this cache does not know its status.", "Remove must-understand.";
    VaryStar, "vary_star", "The response has Vary: *, so no other request can match.", "List the fields on which the response depends.";
    VaryInvalid, "vary_invalid", "The Vary of the response is not a list of names, or is too long.", "List the fields on which the response depends, at most 16.";
    VaryForwarded, "vary_forwarded", "The Vary of the response lists a field that flatout sets in each request, such as X-Forwarded-For.", "Remove the field from Vary, or do not send it to the origin.";
    NoFreshness, "no_freshness", "The response has neither a lifetime nor a validator, so it could never be reused.", "Send max-age or ETag.";
    AlreadyStale, "already_stale", "The response was already stale on arrival and has no validator.", "Send a longer lifetime or ETag.";
    MaxAgeInvalid, "max_age_invalid", "The response has no validator, and is stale because its max-age or s-maxage is not a number.", "Send max-age with a number.";
    ExpiresInvalid, "expires_invalid", "The response has no validator, and is stale because its Expires is not a date.", "Send max-age, or Expires with a date.";
    PartUnusable, "part_unusable", "The response is a 206 that cannot be stored: it is unsolicited, its length is unknown, or its content is not a single byte range.", "Fix the origin's Content-Range.";
    TooLarge, "too_large", "The content of the response is larger than object-max.", "Raise object-max.";
    Incomplete, "incomplete", "The content of the response ended too early.", "Fix the origin.";
    CloseDelimited, "close_delimited", "The end of the connection marks the end of the response, so flatout cannot detect a truncated one.", "Send Content-Length, or use chunked transfer coding.";
    TagsTooMany, "tags_too_many", "The response has too many tags, or a tag that is too long.", "Send at most 256 tags of at most 1,024 bytes each.";
    FieldsTooLarge, "fields_too_large", "The header fields of the response are larger than the limit.", "Send fewer or shorter fields.";
    NotModifiedUnasked, "not_modified_unasked", "The response is a 304 to the client's own conditional request.", "No change needed: a 304 has no content to store.";
    HeadOnly, "head_only", "The method is HEAD, and no response to GET is stored.", "Use GET.";
    Bypassed, "bypassed", "The request bypasses the cache; the lookup reason says why.", "See the lookup reason.";
    NoRoom, "no_room", "The store had no space for the response.", "Raise the store's limits.";
}

impl Lookup {
    /// Returns the reason for forwarding to report in Cache-Status (RFC 9211 §2.2), or `None` if this result does not
    /// forward the request.
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
            | Self::BypassOverride
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
