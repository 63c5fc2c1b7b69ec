//! Outcomes of forwarded requests. One table defines their names in logs and metrics, their statuses and meanings.

use crate::forward::ALLOW_FORWARDED;
use flatout_balance::limit::QueueRefusal;
use flatout_cache::reason::Lookup;
use flatout_handler::routed::Refusal;
use flatout_upstream::origin::OriginFailure;

flatout_reason::reasons! {
    /// Outcome of forwarding a request. Cache decisions and origin failures have separate tables.
    pub enum ForwardOutcome {
        name,
        /// Status of the response, or 0 if the origin's status is used.
        status: u16,
        text,
    }
    Forwarded, "forwarded", 0, "An origin responded.";
    ForwardedAgain, "forwarded_again", 0, "An origin responded after an earlier attempt had failed.";
    Upgraded, "upgraded", 101, "The origin switched protocols, and the connection is now a tunnel: 101.";
    UpgradeInvalid, "upgrade_invalid", 502, "The origin switched to a protocol that the client had not requested: 502.";
    LoopDetected, "loop_detected", 508, "The request has already passed through this proxy twice, or through 16 flatout proxies, as CDN-Loop shows, so it is in a loop: 508.";
    MaxForwards, "max_forwards", 200, "Max-Forwards is 0, so this server responds itself: 200.";
    ConnectRefused, "connect_refused", 501, "The method is CONNECT, which this server does not support: 501.";
    NoHealthyOrigin, "no_healthy_origin", 503, "All origins are failing their health checks: 503.";
    LengthRequired, "origin_length_required", 411, "The origins speak HTTP/1.0, so they need a Content-Length, and the content is too large to be buffered: 411.";
    BufferFailed, "request_buffer_failed", 503, "The request's content could not be buffered, because there was no space, or its buffer could not be read: 503.";
    Purged, "purged", 200, "An allowed client sent PURGE: 200.";
    PurgeDenied, "purge_denied", 403, "The client is not allowed to use PURGE, or the request has more tags than a response can have: 403.";
    OriginQueueFull: overload, "origin_queue_full", 503, "The origin is at its concurrency limit, and its queue is full: 503.";
    OriginQueueTimeout: overload, "origin_queue_timeout", 503, "The request waited in the origin's queue until the queue timeout expired: 503.";
    OriginQueueClient, "origin_queue_client", 503, "The origin is at its concurrency limit, and requests of the same client take up a quarter of its queue: 503.";
    EsiComposed, "esi_composed", 0, "flatout assembled the page from its ESI fragments.";
    EsiIncomplete, "esi_incomplete", 0, "flatout assembled the page without an optional fragment that failed.";
    EsiMalformed, "esi_malformed", 0, "The page's ESI markup is malformed; flatout sends the rest of the page unprocessed.";
    EsiEncoded, "esi_encoded", 0, "The origin compressed an ESI page although the request did not allow compression; flatout sends the page unprocessed.";
    EsiFragmentFailed, "esi_fragment_failed", 502, "A required ESI fragment could not be fetched: 502.";
}

impl From<ForwardOutcome> for Refusal {
    fn from(outcome: ForwardOutcome) -> Self {
        let refusal = Self::new(outcome.status(), sentence(outcome.status()), outcome);
        match outcome {
            // The response to OPTIONS lists the methods forwarded to origins.
            ForwardOutcome::MaxForwards => refusal.with("Allow", ALLOW_FORWARDED),
            _ if outcome.status() == 503 => refusal.with("Retry-After", "1"),
            _ => refusal,
        }
    }
}

impl From<QueueRefusal> for ForwardOutcome {
    fn from(refusal: QueueRefusal) -> Self {
        match refusal {
            QueueRefusal::Full => Self::OriginQueueFull,
            QueueRefusal::Timeout => Self::OriginQueueTimeout,
            QueueRefusal::ClientShare => Self::OriginQueueClient,
        }
    }
}

/// Creates the refusal of a request because its origin failed.
pub(crate) fn origin_failed(failure: OriginFailure) -> Refusal {
    use OriginFailure::{ClosedBeforeHead, ConnectFailed, CutBody, CutHead, H2Refused, Refused, Reset};
    use OriginFailure::{TlsExpired, TlsFailed, TlsName, TlsUnconfigured, TlsUntrusted, Unreachable, Unresolved};
    let text = match failure {
        Unresolved | Refused | Unreachable | ConnectFailed => "Bad gateway: the origin cannot be reached.",
        TlsUntrusted | TlsName | TlsExpired | TlsFailed | TlsUnconfigured => {
            "Bad gateway: no secure connection to the origin is possible."
        }
        ClosedBeforeHead | Reset | CutHead | CutBody | H2Refused => "Bad gateway: the origin closed the connection.",
        _ => sentence(failure.status()),
    };
    Refusal::new(failure.status(), text, failure)
}

/// Creates the refusal of a request because the fetched response does not contain the requested range.
pub(crate) fn not_held() -> Refusal {
    Refusal::new(502, sentence(502), Lookup::MissPart)
}

/// Creates the refusal of a request with only-if-cached for which no stored response is usable (RFC 9111 §5.2.1.7).
pub(crate) fn only_if_cached(reason: Lookup) -> Refusal {
    Refusal::new(504, "No response is stored, and the request accepts only a stored one.", reason)
}

/// Returns the sentence shown to visitors. The specific reason is only logged, because it would disclose internals.
const fn sentence(status: u16) -> &'static str {
    match status {
        200 => "Max-Forwards is 0, so this server responds itself.",
        400 => "The request was incomplete.",
        411 => "The request must declare the length of its content.",
        413 => "The content is too large.",
        501 => "This server does not support that method.",
        502 => "Bad gateway: the origin's response was invalid.",
        503 => "The server is busy. Please try again in a moment.",
        504 => "Gateway timeout: the origin did not respond in time.",
        508 => "Proxy loop detected.",
        _ => "The server cannot handle this request.",
    }
}

#[cfg(test)]
mod tests {
    use super::ForwardOutcome;
    use crate::esi::EsiError;
    use flatout_balance::group::Change;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_told() {
        let all = ForwardOutcome::NAMES.iter().chain(Change::NAMES).chain(EsiError::NAMES);
        let names: HashSet<_> = all.clone().collect();
        assert_eq!(names.len(), all.count());
        for (index, outcome) in ForwardOutcome::ALL.iter().enumerate() {
            assert_eq!((*outcome as usize, outcome.name()), (index, ForwardOutcome::NAMES[index]));
            assert!(outcome.text().ends_with('.'));
            assert!(outcome.status() == 0 || outcome.text().ends_with(&format!(": {}.", outcome.status())));
        }
        assert!(Change::ALL.iter().all(|change| change.text().ends_with('.')));
        assert!(EsiError::ALL.iter().all(|error| error.text().ends_with('.')));
    }
}
