//! All reasons for closing a connection, in one table with name, meaning, and whether a message was truncated.

flatout_reason::reasons! {
    /// The reason a connection was closed.
    pub enum CloseReason {
        name,
        /// True if closing the connection truncated a request or a response.
        cuts: bool,
        text,
    }
    ClientClosed, "client_closed", false, "The client closed an idle connection.";
    NotPersistent, "not_persistent", false, "The client requested that the connection be closed, or its HTTP version requires this.";
    Draining, "draining", false, "The server is stopping, and no request was in progress.";
    IdleTimeout, "idle_timeout", false, "No request started within the idle timeout.";
    HeadTimeout, "head_timeout", true, "A request head was not complete within the head timeout; the server responded with 408.";
    BodyTimeout, "body_timeout", true, "A client sent no more of a request body for the duration of the body timeout, or less than the configured rate requires; the server responded with 408.";
    WriteTimeout, "write_timeout", true, "A client read no response data for the duration of the write timeout. If a client of HTTP/2 or HTTP/3 only keeps a stream's window closed, this ends the stream, and the connection goes on.";
    Refused, "refused", true, "A request was refused; the name of the refusal says why.";
    RefusedBody, "refused_body", false, "The response was complete before the request's body was read, so the connection could not be reused.";
    ClientCutHead, "client_cut_head", true, "The client closed the connection in the middle of a request head.";
    ClientCutBody, "client_cut_body", true, "The client closed the connection in the middle of a request body.";
    ContentTooLarge, "content_too_large", true, "The request's content exceeded the handler's limit; the server responded with 413.";
    ClientReset, "client_reset", true, "The client reset the connection.";
    ClientAborted, "client_aborted", true, "The client closed the connection while the server was waiting for more response data.";
    OriginCutBody, "origin_cut_body", true, "The origin closed its connection before its response was complete; the client's response is incomplete.";
    OriginBodyTimeout, "origin_body_timeout", true, "The origin sent no response data for the duration of the body timeout; the client's response is incomplete.";
    OriginBodyMalformed, "origin_body_malformed", true, "The framing of the origin's response is malformed; the client's response is incomplete.";
    OriginTruncated, "origin_truncated", true, "The origin's response ended early; the client's response is incomplete.";
    DelayedOthers, "delayed_others", true, "The client read a shared response so slowly that it delayed other clients, and the response did not fit into the store; the client's response is incomplete.";
    StoredCorrupt, "stored_corrupt", true, "While flatout was sending a stored response, the checksum of a chunk was wrong; flatout aborted the response and dropped the entry.";
    PageFailed, "page_failed", true, "The page failed after its response had started; the client's response is incomplete.";
    LengthBroken, "length_broken", true, "The content of a response was longer or shorter than its head declared.";
    TunnelIdle, "tunnel_idle", false, "The upgraded connection was idle for longer than the proxy's `timeouts { stream }` allows.";
    TunnelEnded, "tunnel_ended", false, "One side closed the upgraded connection.";
    FileChanged, "file_changed", true, "The file changed while it was being sent, so the rest would have come from another version.";
    FileFailed, "file_failed", true, "Reading the file failed while it was being sent.";
    DescriptorPressure, "descriptor_pressure", false, "The process ran out of file descriptors, and this connection was idle, or its request head, TLS handshake or PROXY header had been incomplete for a second.";
    ConnectionsLimit, "connections_limit", false, "The client's address already had as many connections as `limit-connections` allows; the server reset the new connection at once.";
    HandshakesLimit, "handshakes_limit", false, "The client's address had too many incomplete TLS handshakes. Incomplete PROXY headers count as handshakes.";
    HandshakesTotal: overload, "handshakes_total", false, "All clients together had too many incomplete TLS handshakes, and this one was among the oldest, or over QUIC, the newest.";
    HeadsLimit, "heads_limit", true, "The client's address had too many incomplete request heads.";
    HeadsTotal: overload, "heads_total", true, "All clients together had too many incomplete request heads, and this one was among the oldest.";
    DrainDeadline, "drain_deadline", true, "The server is stopping, and the drain timeout expired.";
    TlsHandshakeTimeout, "tls_handshake_timeout", false, "The TLS handshake was not complete within the handshake timeout.";
    TlsFailed, "tls_failed", true, "TLS failed; the name of the failure says why.";
    ProxyHeaderInvalid, "proxy_header_invalid", false, "The connection to a listener with `proxy-protocol` did not begin with a valid PROXY header.";
    ProxyHeaderTimeout, "proxy_header_timeout", false, "The PROXY header was not complete within the handshake timeout.";
    ProxyHeaderUntrusted, "proxy_header_untrusted", false, "The connection to a listener with `proxy-protocol` did not come from an address that this setting lists; the server reset it at once.";
    PrefaceTimeout, "preface_timeout", false, "HTTP/2 or HTTP/3 was negotiated, but the client's preface or SETTINGS did not arrive within the handshake timeout.";
    H2Protocol, "h2_protocol", true, "The client violated HTTP/2, and the server sent GOAWAY with the error code; the name of the violation says why.";
    H2ClientError, "h2_client_error", true, "The client closed the connection with an HTTP/2 error.";
    H2Excess, "h2_excess", true, "Over HTTP/2, the client sent too many small DATA frames, or a field section many times larger than the limit.";
    H2Flood, "h2_flood", true, "The client sent too many frames or resets over HTTP/2; the name of the violation says which.";
    H3Protocol, "h3_protocol", true, "The client violated HTTP/3, and the server closed the connection with the error code; the name of the violation says why.";
    H3ClientError, "h3_client_error", true, "The client closed the connection with an HTTP/3 or QUIC error.";
    H3Excess, "h3_excess", true, "Over HTTP/3, the client sent too many small DATA frames, a frame that is too large, or a field section many times larger than the limit.";
    H3Flood, "h3_flood", true, "The client sent too many frames, streams or resets over HTTP/3; the name of the violation says which.";
    QuicProtocol, "quic_protocol", true, "The client violated QUIC, or its packets could not be decrypted.";
    SocketFailed, "socket_failed", true, "The kernel reported another error on the socket.";
}

impl CloseReason {
    /// Returns whether the client closed the connection, rather than this server or an origin.
    pub(crate) const fn is_by_client(self) -> bool {
        matches!(
            self,
            Self::ClientClosed
                | Self::ClientCutHead
                | Self::ClientCutBody
                | Self::ClientReset
                | Self::ClientAborted
                | Self::H2ClientError
                | Self::H3ClientError
        )
    }

    /// Returns the error for content that is incomplete for this reason: `too_large` if it exceeded its limit,
    /// otherwise `cut`.
    pub fn content_fault<T>(self, too_large: T, cut: T) -> T {
        if self == Self::ContentTooLarge { too_large } else { cut }
    }

    /// Returns the logged outcome of a request that got no response because its connection was closed.
    pub const fn unanswered_outcome(self) -> &'static str {
        if self.is_by_client() { CLIENT_CLOSED } else { "no_response" }
    }
}

/// The outcome of a request that the client closed, reset or aborted before the response.
pub const CLIENT_CLOSED: &str = "client_closed";

#[cfg(test)]
mod tests {
    use super::CloseReason;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = CloseReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), CloseReason::ALL.len());
        assert!(CloseReason::ALL.iter().all(|reason| reason.text().ends_with('.')));
    }
}
