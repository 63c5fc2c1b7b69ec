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
    HitFresh, "hit_fresh", "A stored answer was fresh.", "Purge it, or shorten its lifetime, to see a new one.";
    HitWhileRevalidate, "hit_while_revalidate", "A stored answer was stale; it was served while a new one is fetched.", "Shorten stale-while-revalidate.";
    HitIfError, "hit_if_error", "The origin answered with an error; a stale stored answer was served instead.", "Mend the origin, or shorten stale-if-error.";
    HitIfUnreachable, "hit_if_unreachable", "The origin did not answer; a stale stored answer was served instead.", "Mend the origin, or shorten stale-if-error.";
    HitMaxStale, "hit_max_stale", "A stored answer was stale, and the request's max-stale allows that.", "Send must-revalidate, or let the cache ignore the directives of requests.";
    HitValidated, "hit_validated", "The origin said that the stored answer still holds.", "Give the answer a longer lifetime to save the question.";
    MissCold, "miss_cold", "Nothing was stored under the key.", "Ask again: what may be stored is now.";
    MissVary, "miss_vary", "What is stored under the key is for other values of the fields in Vary.", "Name fewer fields in Vary, or fields of few values.";
    MissPart, "miss_part", "A part is stored that does not hold what was asked for.", "Ask for the whole once.";
    MissPurged, "miss_purged", "What was stored had been purged or invalidated.", "Ask again: what may be stored is now.";
    MissCorrupt, "miss_corrupt", "What was stored on a disk does not match its checksums any more, and was dropped.", "Look for what changed the files; check the disk.";
    HitForMiss, "hit_for_miss", "The last response for the key could not be shared, so requests for it do not wait for one another.", "See why the last response was not stored or not shared.";
    StaleExpired, "stale_expired", "The stored answer was stale, and nothing allows to serve it so.", "Give it a longer lifetime, or stale-while-revalidate.";
    StoredLifetimeInvalid, "stored_lifetime_invalid", "The stored response has an invalid max-age, s-maxage or Expires: it is validated each time.", "Send max-age with a number, or Expires with a date.";
    StoredNoCache, "stored_no_cache", "The stored answer says no-cache: it is validated each time.", "Send max-age instead of no-cache.";
    RequestNoCache, "request_no_cache", "The request says no-cache, in Cache-Control or Pragma.", "Let the cache ignore the directives of requests: request-directives off.";
    RequestMaxAge, "request_max_age", "The stored answer is older than the request's max-age allows.", "Let the cache ignore the directives of requests: request-directives off.";
    RequestMinFresh, "request_min_fresh", "The stored answer will be stale sooner than the request's min-fresh allows.", "Let the cache ignore the directives of requests: request-directives off.";
    RequestAuthorized, "request_authorized", "The request has Authorization, and the stored answer does not say that it is for such requests too.", "Send public, s-maxage or must-revalidate.";
    RequestCookie, "request_cookie", "The request has a cookie that may name its visitor, and the stored response does not say that it may be shared.", "Send public, s-maxage or max-age; or name the cookie in ignore-cookies or key-cookies.";
    RequestPrecondition, "request_precondition", "The request has If-Match or If-Unmodified-Since, which only the origin can decide.", "Leave these fields to requests that change something.";
    OnlyIfCached, "only_if_cached", "The request wants a stored answer only, and there is none it can have: 504.", "Ask without only-if-cached.";
    BypassOff, "bypass_off", "The cache is off for this request.", "Take cache off=#true out of the configuration.";
    BypassMethod, "bypass_method", "Answers to this method are not kept.", "Ask with GET.";
    BypassContent, "bypass_content", "A GET or HEAD with content means what its origin likes; no key stands for it.", "Ask without content.";
    BypassNoStore, "bypass_no_store", "The request says no-store.", "Let the cache ignore the directives of requests: request-directives off.";
    BypassCookie, "bypass_cookie", "The request has a cookie listed in `bypass-cookies`.", "Take the cookie out of bypass-cookies.";
    BypassMethodOverride, "bypass_method_override", "A field such as X-HTTP-Method-Override asks for another method than the request line.", "Ask with the method that is meant.";
    BypassUpgrade, "bypass_upgrade", "The request wants another protocol.", "Nothing: such a connection cannot be cached.";
    UnsafeMethod, "unsafe_method", "The method may change something: it is forwarded, and invalidates what is stored for its target.", "Ask with GET.";
    ValidatorMismatch, "validator_mismatch", "A 304 had no validator of what is stored, so that was dropped.", "Mend the origin: a 304 has the ETag of the 200.";
    ErrorPassed, "error_passed", "The origin failed, and no stored answer may stand in.", "Send stale-if-error, or set it in the rules.";
}

flatout_reason::reasons! {
    /// Reason for not storing a response.
    pub enum NoStore {
        name,
        text,
        /// How to change this outcome.
        change: &'static str,
    }
    Off, "off", "The cache is off for this request.", "Take cache off=#true out of the configuration.";
    MethodNotCacheable, "method_not_cacheable", "It answers a method other than GET.", "Ask with GET; for POST, send Content-Location with the target and an explicit lifetime.";
    RequestContent, "request_content", "The request has content, for which no key stands.", "Ask without content.";
    RequestNoStore, "request_no_store", "The request says no-store.", "Let the cache ignore the directives of requests: request-directives off.";
    NoStoreDirective, "no_store", "It says no-store.", "Send Cache-Control with max-age instead.";
    Private, "private", "It says private: for one visitor only.", "Send public, or leave private out.";
    Authorization, "authorization", "The request has Authorization, and the answer does not say that others may see it.", "Send public, s-maxage or must-revalidate.";
    Cookie, "cookie", "The request has a cookie that may name its visitor, and the response has no explicit lifetime.", "Send public, s-maxage or max-age; or name the cookie in ignore-cookies or key-cookies.";
    EventStream, "event_stream", "It is a stream of events (text/event-stream), which only the client that listens now can use.", "Nothing: events cannot be cached.";
    NotReusable, "not_reusable", "It may be stored, but not be reused without validation, so no other request gets it.", "Send a lifetime: max-age or s-maxage.";
    SetCookie, "set_cookie", "It sets a cookie, which would go to all visitors.", "Send cookies only where they are needed, or choose set-cookie strip.";
    StatusNotCacheable, "status_not_cacheable", "Its status is not cacheable without an explicit lifetime.", "Send max-age or Expires.";
    StatusOfRequest, "status_of_request", "Its status speaks of the one request, not of what was asked for.", "Nothing: another request may fare better.";
    StatusNotUnderstood, "status_not_understood", "It says must-understand, and its status is not one that this cache knows.", "Leave must-understand out.";
    VaryStar, "vary_star", "It says Vary: *: no other request can match.", "Name the fields on which it depends.";
    VaryInvalid, "vary_invalid", "Its Vary is not a list of names, or is too long.", "Name the fields on which it depends, at most 16.";
    VaryForwarded, "vary_forwarded", "Its Vary names a field that the proxy writes for each request, such as X-Forwarded-For with the client's address.", "Leave the field out of Vary, or do not send it to the origin.";
    VariantsTooMany, "variants_too_many", "Its key has as many variants as are kept.", "Name fields of few values in Vary.";
    NoFreshness, "no_freshness", "It has no lifetime and no validator, so it could never be used again.", "Send max-age, or ETag.";
    AlreadyStale, "already_stale", "It was stale when it came, and has no validator.", "Send a longer lifetime, or ETag.";
    MaxAgeInvalid, "max_age_invalid", "Its max-age or s-maxage is no number, which makes it stale, and it has no validator.", "Send max-age with a number.";
    ExpiresInvalid, "expires_invalid", "Its Expires is no date, which makes it stale, and it has no validator.", "Send Expires with a date, or max-age.";
    PartUnusable, "part_unusable", "It is a 206 without one range of bytes that its content agrees with.", "Mend the origin's Content-Range.";
    TooLarge, "too_large", "Its content is larger than the rules allow.", "Raise the largest size kept.";
    Incomplete, "incomplete", "Its content ended too early.", "Mend the origin.";
    CloseDelimited, "close_delimited", "Only the connection's end tells where its content ends.", "Send Content-Length or chunks.";
    TagsTooMany, "tags_too_many", "It has more tags, or longer ones, than are kept.", "Send fewer tags: at most 256, of 1,024 bytes.";
    FieldsTooLarge, "fields_too_large", "Its fields take more room than is kept.", "Send fewer or shorter fields.";
    NotModifiedUnasked, "not_modified_unasked", "It is a 304 that does not answer a question of the cache's.", "Nothing: the client's own condition was met.";
    HeadOnly, "head_only", "It answers HEAD, and nothing is stored for GET.", "Ask with GET.";
    Bypassed, "bypassed", "The request leaves the cache out; the reason of its lookup says why.", "See that reason.";
    NoRoom, "no_room", "The store had no room for it.", "Raise the store's budget.";
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
