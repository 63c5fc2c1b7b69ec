//! Failures of an exchange with an origin. One table defines their names, statuses for the client, whether the origin
//! is at fault, and meanings.

use flatout_http::refusal::Refusal;
use flatout_net::tls::ClientTlsFailure;
use std::fmt;

flatout_reason::reasons! {
    /// Reason why an exchange with an origin failed.
    pub enum OriginFailure {
        name,
        /// Status sent to the client if no response has begun: 502 or 504, 4xx if the client is at fault, or 503 if
        /// this process ran out of a resource.
        status: u16,
        /// True if the origin is at fault, so that the failure counts against its health.
        is_origin_fault: bool,
        text,
    }
    Unresolved, "origin_unresolved", 502, true, "The origin's name has no address, or the resolver failed.";
    ResolveTimeout, "origin_resolve_timeout", 504, true, "The lookup of the origin's name did not finish within the connect timeout.";
    Refused, "origin_refused", 502, true, "The origin's host refused the connection: nothing listens there.";
    Unreachable, "origin_unreachable", 502, true, "There is no route to the origin's address.";
    ConnectTimeout, "origin_connect_timeout", 504, true, "No connection was established within the connect timeout.";
    ConnectFailed, "origin_connect_failed", 502, true, "The connection could not be established for another reason.";
    NoLocalPort: resources, "origin_no_local_port", 503, false, "No local port was available for a connection to the origin.";
    NoDescriptor: resources, "origin_no_descriptor", 503, false, "No file descriptor was available for a connection to the origin.";
    TlsUntrusted, "origin_tls_untrusted", 502, true, "No trusted authority has signed the origin's certificate.";
    TlsName, "origin_tls_name", 502, true, "The origin's certificate is not valid for its name.";
    TlsExpired, "origin_tls_expired", 502, true, "The origin's certificate is not valid at this time.";
    TlsFailed, "origin_tls_failed", 502, true, "The TLS handshake with the origin failed.";
    TlsUnconfigured, "origin_tls_unconfigured", 502, false, "The origin uses https, but no name or authority is configured to verify its certificate.";
    ClosedBeforeHead, "origin_closed_before_head", 502, true, "The origin closed the connection before the first byte of a response.";
    Reset, "origin_reset", 502, true, "The origin reset the connection before the response head was complete.";
    CutHead, "origin_cut_head", 502, true, "The origin closed the connection partway through the response head.";
    HeadMalformed, "origin_head_malformed", 502, true, "A response head is malformed.";
    HeadTooLarge, "origin_head_too_large", 502, true, "A response head is larger than the limit, or has too many fields.";
    InterimsTooMany, "origin_interims_too_many", 502, true, "The origin sent more than 1,000 interim responses (1xx) to a request.";
    SwitchedUnasked, "origin_switched_unasked", 502, true, "The origin switched protocols (101), but the request had not asked for it.";
    HeadTimeout, "origin_head_timeout", 504, true, "The response head was not complete within the head timeout.";
    UploadTimeout, "origin_upload_timeout", 504, true, "The origin read no request content for the duration of the body timeout.";
    BodyTimeout, "origin_body_timeout", 504, true, "The origin sent no response data for the duration of the body timeout.";
    CutBody, "origin_cut_body", 502, true, "The origin closed the connection before the end of the response's body.";
    BodyMalformed, "origin_body_malformed", 502, true, "The framing of the response's body is malformed.";
    H2Refused, "origin_h2_refused", 502, true, "The origin refused the HTTP/2 stream, or announced its shutdown, before it processed the request.";
    H2NoStream, "origin_h2_no_stream", 504, true, "No stream became available on the connection within the connect timeout.";
    H2Failed, "origin_h2_failed", 502, true, "The origin reset the stream or violated HTTP/2.";
    UpgradeUnsupported, "origin_upgrade_unsupported", 502, false, "The origin uses HTTP/2, and accepts neither WebSocket in a stream (RFC 8441) nor an upgrade over HTTP/1.1.";
    RequestUnsendable, "origin_request_unsendable", 400, false, "The request cannot be expressed in the origin's HTTP version.";
    ClientCutContent, "origin_content_cut", 400, false, "The client did not send all of the request's content.";
    ContentTooLarge, "origin_content_too_large", 413, false, "The request's content is larger than `content-limit`.";
}

impl From<ClientTlsFailure> for OriginFailure {
    fn from(failure: ClientTlsFailure) -> Self {
        match failure {
            ClientTlsFailure::Name => Self::TlsName,
            ClientTlsFailure::Expired => Self::TlsExpired,
            ClientTlsFailure::Untrusted => Self::TlsUntrusted,
            ClientTlsFailure::Handshake => Self::TlsFailed,
        }
    }
}

/// The condition under which a failed request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Always: no byte of the request reached the origin, or the origin reported that it did not process the request.
    Always,
    /// If the method is idempotent (RFC 9110 §9.2.2): the origin may have processed the request, and no byte of a
    /// response arrived.
    Idempotent,
    /// Never: a response had begun, or a repetition could not succeed.
    Never,
}

/// Failure of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeFailure {
    /// The reason.
    pub failure: OriginFailure,
    /// The HTTP rule that the origin violated, if any.
    pub refusal: Option<Refusal>,
    /// The condition under which the request may be sent again. In addition, its content must still be available: see
    /// [`OutgoingContent::is_spent`](super::OutgoingContent::is_spent).
    pub repeat: Repeat,
}

impl ExchangeFailure {
    /// Creates a failure without a violated rule.
    pub const fn new(failure: OriginFailure, repeat: Repeat) -> Self {
        Self { failure, refusal: None, repeat }
    }

    /// Creates the failure of an exchange whose response head violates the rule of `refusal`.
    pub(super) const fn head(refusal: Refusal) -> Self {
        let failure = match refusal {
            Refusal::HeadTooLarge | Refusal::FieldsTooMany => OriginFailure::HeadTooLarge,
            _ => OriginFailure::HeadMalformed,
        };
        Self { failure, refusal: Some(refusal), repeat: Repeat::Never }
    }

    /// Creates the failure of an exchange whose response body violates the rule of `refusal`.
    pub(super) const fn body(refusal: Refusal) -> Self {
        Self { failure: OriginFailure::BodyMalformed, refusal: Some(refusal), repeat: Repeat::Never }
    }
}

impl fmt::Display for ExchangeFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.failure.text())?;
        match self.refusal {
            Some(refusal) => write!(formatter, " {}", refusal.text()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ExchangeFailure, OriginFailure};
    use flatout_http::refusal::Refusal;
    use std::collections::HashSet;

    #[test]
    fn failure_names_are_unique_and_statuses_are_502_to_504() {
        let names: HashSet<_> = OriginFailure::NAMES.iter().collect();
        assert_eq!(names.len(), OriginFailure::ALL.len());
        for (index, failure) in OriginFailure::ALL.iter().enumerate() {
            assert_eq!((*failure as usize, failure.name()), (index, OriginFailure::NAMES[index]));
            assert!(failure.text().ends_with('.') && failure.name().starts_with("origin_"));
            assert_eq!(
                failure.is_origin_fault(),
                matches!(failure.status(), 502 | 504)
                    && !matches!(failure, OriginFailure::TlsUnconfigured | OriginFailure::UpgradeUnsupported)
            );
        }
    }

    #[test]
    fn a_refused_response_names_the_rule() {
        let failure = ExchangeFailure::head(Refusal::FieldsTooMany);
        assert_eq!(failure.failure, OriginFailure::HeadTooLarge);
        assert!(failure.to_string().ends_with(Refusal::FieldsTooMany.text()));
    }
}
