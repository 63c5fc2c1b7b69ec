//! All reasons for closing a connection: one table with name, meaning, and whether a message was cut.

flatout_reason::reasons! {
    /// Why a connection was closed.
    pub enum CloseReason {
        name,
        /// True if it cut a request or a response.
        cuts: bool,
        text,
    }
    ClientClosed, "client_closed", false, "The client closed an idle connection.";
    NotPersistent, "not_persistent", false, "The client requested that the connection be closed, or its HTTP version implies it.";
    Draining, "draining", false, "The server is stopping, and no request was in progress.";
    IdleTimeout, "idle_timeout", false, "No request started within the idle timeout.";
    HeadTimeout, "head_timeout", true, "A request head was not complete within the head timeout; the response is 408.";
    BodyTimeout, "body_timeout", true, "A request body was not complete within the body timeout; the response is 408.";
    WriteTimeout, "write_timeout", true, "The client read nothing of a response within the write timeout.";
    Refused, "refused", true, "A request was refused; the name of the refusal says why.";
    RefusedBody, "refused_body", false, "The response was complete before the request's body was read, so the connection could not be reused.";
    ClientCutHead, "client_cut_head", true, "The client closed the connection in the middle of a request head.";
    ClientCutBody, "client_cut_body", true, "The client closed the connection in the middle of a request body.";
    ClientReset, "client_reset", true, "The client reset the connection.";
    ClientAborted, "client_aborted", true, "The client closed the connection while the server waited for more of the response.";
    OriginCutBody, "origin_cut_body", true, "The origin closed its connection before its response was complete; the client's response is incomplete.";
    OriginBodyTimeout, "origin_body_timeout", true, "The origin sent no more of its response within the body timeout; the client's response is incomplete.";
    OriginBodyMalformed, "origin_body_malformed", true, "The framing of the origin's response is malformed; the client's response is incomplete.";
    OriginTruncated, "origin_truncated", true, "The origin's response ended early; the client's response is incomplete.";
    StoredCorrupt, "stored_corrupt", true, "A later chunk of a stored response failed its checksum; flatout cut the response and dropped the entry.";
    PageFailed, "page_failed", true, "The page failed after its response had started; the client's response is incomplete.";
    LengthBroken, "length_broken", true, "The content of a response was longer or shorter than its head declared.";
    TunnelIdle, "tunnel_idle", false, "The upgraded connection was idle longer than `timeouts { stream }` of its proxy.";
    TunnelEnded, "tunnel_ended", false, "One side closed the upgraded connection.";
    FileChanged, "file_changed", true, "The file changed while it was being sent, so the rest would have been from another version.";
    FileFailed, "file_failed", true, "Reading the file failed while it was being sent.";
    DescriptorPressure, "descriptor_pressure", false, "File descriptors ran out, and this connection was idle, or its request head or TLS handshake had been incomplete for a second.";
    DrainDeadline, "drain_deadline", true, "The server is stopping, and the drain timeout expired.";
    TlsHandshakeTimeout, "tls_handshake_timeout", false, "The TLS handshake was not complete within the handshake timeout.";
    TlsFailed, "tls_failed", true, "TLS failed; the name of the failure says why.";
    PrefaceTimeout, "preface_timeout", false, "HTTP/2 was negotiated, and the client's preface did not arrive within the handshake timeout.";
    H2Protocol, "h2_protocol", true, "The client violated HTTP/2, and the server sent GOAWAY with the error code.";
    H2ClientError, "h2_client_error", true, "The client closed the connection with an HTTP/2 error.";
    H2RapidReset, "h2_rapid_reset", true, "The client reset streams faster than the server could respond.";
    H2MadeYouReset, "h2_made_you_reset", true, "The client caused too many stream errors, for which the server had to reset the streams.";
    H2PingFlood, "h2_ping_flood", true, "The client sent too many PING frames.";
    H2SettingsFlood, "h2_settings_flood", true, "The client sent too many SETTINGS frames.";
    H2ContinuationFlood, "h2_continuation_flood", true, "The client split header sections into too many CONTINUATION frames.";
    H2EmptyDataFlood, "h2_empty_data_flood", true, "The client sent too many empty DATA frames.";
    H2WindowUpdateFlood, "h2_window_update_flood", true, "The client sent too many WINDOW_UPDATE frames.";
    H2TableSizeFlood, "h2_table_size_flood", true, "The client changed the HPACK table size more than twice before a header section.";
    H2FrameFlood, "h2_frame_flood", true, "The client sent too many PRIORITY, unknown or unsolicited frames.";
    H2Excess, "h2_excess", true, "The client sent too many small DATA frames, or fields far beyond their limit.";
    SocketFailed, "socket_failed", true, "The kernel reported another error on the socket.";
}

impl CloseReason {
    /// Returns whether the client ended the connection, rather than this server or an origin.
    pub(crate) const fn is_by_client(self) -> bool {
        matches!(
            self,
            Self::ClientClosed
                | Self::ClientCutHead
                | Self::ClientCutBody
                | Self::ClientReset
                | Self::ClientAborted
                | Self::H2ClientError
        )
    }

    /// The logged outcome of a request without response because its connection closed.
    pub const fn unanswered_outcome(self) -> &'static str {
        if self.is_by_client() { CLIENT_CLOSED } else { "no_response" }
    }
}

/// The outcome of a request whose client closed, reset or aborted it before the response.
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
