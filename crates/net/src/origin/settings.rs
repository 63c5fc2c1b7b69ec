//! How patient this process is with origins, and how much it takes from them.

use flatout_http::limits::Limits;
use flatout_http::media::{is_event_stream, is_grpc};

/// Timeouts and bounds of one client of origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginSettings {
    /// For a connection, the look-up of its name and TLS included, in milliseconds.
    pub connect_timeout_ms: u64,
    /// For the whole head of a response, from when the request is sent, in milliseconds. Interim responses do not
    /// extend it.
    pub head_timeout_ms: u64,
    /// For more of a response's body, or for the origin to take more of a request's content, in milliseconds.
    pub body_timeout_ms: u64,
    /// The same for an event stream and for gRPC, where silence is normal, in milliseconds; for gRPC, it is the timeout
    /// of the head as well.
    pub stream_timeout_ms: u64,
    /// How long a connection without use is kept, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Connections kept to each origin without use.
    pub idle_connections_max: u32,
    /// How long looked-up addresses are used, in milliseconds. The system's resolver does not say how long they hold.
    pub resolve_ttl_ms: u64,
    /// Bytes of a response head, an interim one's included.
    pub head_bytes_max: usize,
    /// Interim responses (1xx) to one request.
    pub interims_max: u32,
    /// Whether HTTP/2 is spoken: with prior knowledge over http, and where ALPN agrees on it over https.
    pub http2: bool,
    /// Whether responses in unknown transfer codings are taken as they come; see `Limits::unknown_codings`.
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
    /// The bounds on a response. A chunked body's extensions and trailers have those of any client.
    pub(crate) fn limits(&self) -> Limits {
        Limits { head_bytes_max: self.head_bytes_max, unknown_codings: self.unknown_codings, ..Limits::CLIENT }
    }

    /// How long more of a response's body may take, by its Content-Type.
    pub(crate) fn piece_timeout_ms(&self, content_type: Option<&[u8]>) -> u64 {
        match content_type {
            Some(media) if is_event_stream(media) || is_grpc(media) => self.stream_timeout_ms,
            _ => self.body_timeout_ms,
        }
    }

    /// How often the deadlines are looked at: they are exact to this.
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
