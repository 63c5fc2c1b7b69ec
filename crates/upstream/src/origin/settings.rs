//! Timeouts and bounds of exchanges with origins.

use flatout_http::limits::Limits;
use flatout_http::media::{is_event_stream, is_grpc};

/// Timeouts and bounds of one client of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginSettings {
    /// Timeout of connecting, including name resolution and TLS, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Timeout of a complete response head since the request was sent, in milliseconds. Interim responses do not
    /// extend it.
    pub head_timeout_ms: u64,
    /// Timeout for more of a response's body, or for the origin to take more of a request's content, in milliseconds.
    pub body_timeout_ms: u64,
    /// The body timeout of event streams and gRPC, where silence is normal, in milliseconds; for gRPC also the
    /// timeout of the head.
    pub stream_timeout_ms: u64,
    /// Idle time after which a connection is closed, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Upper bound of idle connections to each origin.
    pub idle_connections_max: u32,
    /// How long resolved addresses are used, in milliseconds. The system's resolver does not report their TTL.
    pub resolve_ttl_ms: u64,
    /// Upper bound of a response head, also of an interim one, in bytes.
    pub head_bytes_max: usize,
    /// Upper bound of interim responses (1xx) to one request.
    pub interims_max: u32,
    /// True if HTTP/2 is used: with prior knowledge over http, and if negotiated by ALPN over https.
    pub http2: bool,
    /// True if responses in unknown transfer codings are accepted unchanged; see `Limits::unknown_codings`.
    pub unknown_codings: bool,
}

impl Default for OriginSettings {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 3_000,
            head_timeout_ms: 30_000,
            body_timeout_ms: 30_000,
            stream_timeout_ms: 3_600_000,
            idle_timeout_ms: 30_000,
            idle_connections_max: 64,
            resolve_ttl_ms: 10_000,
            head_bytes_max: 64 * 1024,
            interims_max: 32,
            http2: false,
            unknown_codings: false,
        }
    }
}

impl OriginSettings {
    /// The limits of a response. Chunk extensions and trailers have the limits of any client.
    pub(crate) fn limits(&self) -> Limits {
        Limits { head_bytes_max: self.head_bytes_max, unknown_codings: self.unknown_codings, ..Limits::CLIENT }
    }

    /// Timeout for more of a response's body, in milliseconds, by its Content-Type.
    pub(crate) fn piece_timeout_ms(&self, content_type: Option<&[u8]>) -> u64 {
        match content_type {
            Some(media) if is_event_stream(media) || is_grpc(media) => self.stream_timeout_ms,
            _ => self.body_timeout_ms,
        }
    }

    /// Interval between scans of the deadlines, which is also their precision, in milliseconds.
    pub(crate) fn sweep_interval_ms(&self) -> u64 {
        let shortest =
            self.connect_timeout_ms.min(self.head_timeout_ms).min(self.body_timeout_ms).min(self.idle_timeout_ms);
        let shortest = shortest.min(self.stream_timeout_ms);
        (shortest / 10).clamp(5, 100)
    }
}

#[cfg(test)]
mod tests {
    use super::OriginSettings;

    #[test]
    fn deadlines_are_exact_to_a_tenth() {
        assert_eq!(OriginSettings::default().sweep_interval_ms(), 100);
        let quick = OriginSettings { head_timeout_ms: 200, ..OriginSettings::default() };
        assert_eq!(quick.sweep_interval_ms(), 20);
        let none = OriginSettings { body_timeout_ms: 0, ..OriginSettings::default() };
        assert_eq!(none.sweep_interval_ms(), 5);
    }
}
