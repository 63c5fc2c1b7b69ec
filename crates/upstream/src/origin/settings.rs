//! Timeouts and limits of exchanges with origins.

use flatout_http::limits::Limits;
use flatout_http::media::{is_event_stream, is_grpc};
use flatout_http::proxy_protocol::ProxyVersion;

/// Timeouts and limits of a client of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginSettings {
    /// Timeout for connecting, including name resolution and TLS, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Timeout for the complete response head after the request has been sent, in milliseconds. Interim responses do
    /// not extend it.
    pub head_timeout_ms: u64,
    /// How long content is held back until the origin sends 100 (Continue) or a final response, if the client expects
    /// 100 (Continue), in milliseconds. After that, the content is sent to origins that ignore the expectation, as in
    /// Go's client and curl.
    pub continue_timeout_ms: u64,
    /// Timeout for each further piece of a response's body, and for the origin to read more of a request's content, in
    /// milliseconds.
    pub body_timeout_ms: u64,
    /// Body timeout of event streams and gRPC, in which long pauses are normal, in milliseconds. For gRPC, also the
    /// timeout for the response head.
    pub stream_timeout_ms: u64,
    /// Idle time after which a connection is closed, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Maximum number of idle connections to each origin.
    pub idle_connections_max: u32,
    /// How long resolved addresses are used, in milliseconds. The system's resolver does not report the TTL.
    pub resolve_ttl_ms: u64,
    /// How long connections to a name's address are used or kept, in milliseconds, before the name is resolved again to
    /// find out whether it still has that address. The actual time is up to a quarter shorter, and a third of this while
    /// resolutions do not return all of its addresses.
    pub recheck_ms: u64,
    /// Maximum size of a response head in bytes, including those of interim responses.
    pub head_bytes_max: usize,
    /// Maximum number of interim responses (1xx) to a request.
    pub interims_max: u32,
    /// True to use HTTP/2: with prior knowledge over http, and if negotiated by ALPN over https.
    pub http2: bool,
    /// True to accept responses in unknown transfer codings unchanged; see `Limits::unknown_codings`.
    pub unknown_codings: bool,
    /// The version of the PROXY header that names the client at the beginning of each connection; `None` for none. Each
    /// connection is then used for the requests of one client only. Not together with HTTP/2.
    pub proxy_protocol: Option<ProxyVersion>,
}

impl Default for OriginSettings {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 3_000,
            head_timeout_ms: 30_000,
            continue_timeout_ms: 1_000,
            body_timeout_ms: 30_000,
            stream_timeout_ms: 3_600_000,
            idle_timeout_ms: 30_000,
            idle_connections_max: 64,
            resolve_ttl_ms: 10_000,
            recheck_ms: 15_000,
            head_bytes_max: 64 * 1024,
            interims_max: 1_000,
            http2: false,
            unknown_codings: false,
            proxy_protocol: None,
        }
    }
}

impl OriginSettings {
    /// Returns the limits for responses. For chunk extensions and trailers, the limits are the usual ones for clients.
    pub(crate) fn limits(&self) -> Limits {
        Limits { head_bytes_max: self.head_bytes_max, unknown_codings: self.unknown_codings, ..Limits::CLIENT }
    }

    /// Returns the timeout for each further piece of a response's body in milliseconds, which depends on the
    /// Content-Type.
    pub(crate) fn piece_timeout_ms(&self, content_type: Option<&[u8]>) -> u64 {
        match content_type {
            Some(media) if is_event_stream(media) || is_grpc(media) => self.stream_timeout_ms,
            _ => self.body_timeout_ms,
        }
    }

    /// Returns the interval between checks of the deadlines, which is also their precision, in milliseconds.
    pub(crate) fn sweep_interval_ms(&self) -> u64 {
        let shortest =
            self.connect_timeout_ms.min(self.head_timeout_ms).min(self.body_timeout_ms).min(self.idle_timeout_ms);
        let shortest = shortest.min(self.stream_timeout_ms).min(self.continue_timeout_ms);
        (shortest / 10).clamp(5, 100)
    }
}

#[cfg(test)]
mod tests {
    use super::OriginSettings;

    #[test]
    fn deadlines_are_precise_to_a_tenth() {
        assert_eq!(OriginSettings::default().sweep_interval_ms(), 100);
        let quick = OriginSettings { head_timeout_ms: 200, ..OriginSettings::default() };
        assert_eq!(quick.sweep_interval_ms(), 20);
        let none = OriginSettings { body_timeout_ms: 0, ..OriginSettings::default() };
        assert_eq!(none.sweep_interval_ms(), 5);
    }
}
