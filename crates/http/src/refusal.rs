//! Reasons to refuse a message: one table defines the name, status code and sentence of each.
//!
//! A refusal is always the peer's fault. The server responds with the status code and closes the connection; the client
//! counts a bad response. The names appear in the access log and in docs/reasons.md.

flatout_reason::reasons! {
    /// The reason a message is refused.
    pub enum Refusal {
        name,
        /// Status code of the server's response.
        status: u16,
        text,
    }
    /// RFC 9112 §2.2. A recipient may accept a bare LF, but this implementation does not.
    BareLf, "bare_lf", 400, "A line ends with LF without a preceding CR.";
    /// RFC 9112 §2.2.
    BareCr, "bare_cr", 400, "A line contains a CR that is not part of its line ending.";
    /// RFC 9112 §3.
    RequestLine, "request_line", 400, "The request line does not consist of a method, a target and a version, separated by single spaces.";
    /// RFC 9110 §9.1. A method is a token.
    Method, "method", 400, "The method contains an invalid character.";
    /// A TLS ClientHello arrived on a plain port.
    TlsOnPlainPort, "tls_on_plain_port", 400, "This port accepts HTTP, not HTTPS.";
    /// Plain HTTP arrived on a TLS port.
    HttpOnTlsPort, "http_on_tls_port", 400, "This port accepts HTTPS, not HTTP.";
    /// RFC 9110 §9.1.
    MethodTooLong, "method_too_long", 501, "The method is longer than any method that this server knows.";
    /// RFC 9112 §2.3.
    Version, "version", 400, "The HTTP version is malformed.";
    /// RFC 9110 §15.6.6.
    VersionUnsupported, "version_unsupported", 505, "The HTTP version is neither HTTP/1.1 nor HTTP/1.0.";
    /// RFC 9112 §3.2.
    Target, "target", 400, "The request target does not have one of the four forms of RFC 9112.";
    /// RFC 9112 §3.2.
    TargetCharacter, "target_character", 400,
        "The request target contains a control character, a fragment, or bytes that are not UTF-8.";
    /// RFC 9110 §4.2.4 and §4.2.1.
    TargetAuthority, "target_authority", 400, "The authority in the request target is invalid.";
    /// RFC 9110 §7.4.
    TargetScheme, "target_scheme", 421, "This server does not serve the scheme in the request target.";
    /// RFC 9110 §15.5.15.
    TargetTooLong, "target_too_long", 414, "The request target is too long.";
    /// The target contains a percent-encoded NUL, which no file name can contain.
    TargetNul, "target_nul", 400, "The request target contains an encoded NUL.";
    /// RFC 3986 §5.2.4 would drop such a segment. Clients do so before they send the request, so this is an attempted
    /// path traversal.
    PathAboveRoot, "path_above_root", 400, "The path escapes the root with `..` segments.";
    /// RFC 8441 §4.
    ConnectProtocol, "connect_protocol", 501, "This server opens tunnels only for WebSocket.";
    /// RFC 6585 §5.
    HeadTooLarge, "head_too_large", 431, "The header section is too large.";
    /// RFC 6585 §5.
    FieldsTooMany, "fields_too_many", 431, "The header section has too many fields.";
    /// RFC 9112 §5.2.
    ObsFold, "obs_fold", 400, "A header line begins with white space.";
    /// RFC 9112 §5.1.
    SpaceBeforeColon, "space_before_colon", 400, "There is white space between a field name and its colon.";
    /// RFC 9110 §5.1.
    FieldName, "field_name", 400, "A field name is empty or contains an invalid character.";
    /// RFC 9112 §5.
    ColonMissing, "colon_missing", 400, "A header line has no colon.";
    /// RFC 9110 §5.5.
    FieldValue, "field_value", 400, "A field value contains a control character or, over HTTP/2, begins or ends with white space.";
    /// RFC 9110 §5.3. A field that is not a list has several lines.
    FieldDuplicate, "field_duplicate", 400, "A field that may occur only once occurs more than once.";
    /// RFC 9112 §3.2.
    HostMissing, "host_missing", 400, "An HTTP/1.1 request needs a Host field.";
    /// RFC 9112 §3.2.
    HostDuplicate, "host_duplicate", 400, "The request has more than one Host field.";
    /// RFC 9112 §3.2.
    HostInvalid, "host_invalid", 400, "The Host field is not a valid host with an optional port.";
    /// RFC 9112 §3.2.2 lets the target replace Host; RFC 9113 §8.3.1 does not.
    HostMismatch, "host_mismatch", 400, "The request names two hosts: that of its target differs from its Host field.";
    /// RFC 9112 §6.3.
    LengthInvalid, "length_invalid", 400, "Content-Length is not a single decimal number.";
    /// RFC 9112 §6.3.
    LengthDuplicate, "length_duplicate", 400, "Content-Length occurs more than once.";
    /// RFC 9112 §6.1.
    LengthWithTransferEncoding, "length_with_transfer_encoding", 400,
        "The message has both Content-Length and Transfer-Encoding.";
    /// RFC 9112 §6.1. HTTP/1.0 does not define Transfer-Encoding.
    TransferEncodingVersion, "transfer_encoding_version", 400, "An HTTP/1.0 message has Transfer-Encoding.";
    /// RFC 9112 §6.3.
    TransferEncodingInvalid, "transfer_encoding_invalid", 400,
        "Transfer-Encoding is malformed, repeats chunked, or does not end with chunked.";
    /// RFC 9112 §6.1.
    TransferEncodingUnknown, "transfer_encoding_unknown", 501, "This server supports no transfer coding except chunked.";
    /// RFC 9110 §7.6.1.
    ConnectionInvalid, "connection_invalid", 400, "The Connection field is not a list of names.";
    /// RFC 9110 §10.1.1.
    ExpectUnknown, "expect_unknown", 417, "This server supports no expectation except 100-continue.";
    /// RFC 9110 §15.5.14.
    BodyTooLarge, "body_too_large", 413, "The content is too large.";
    /// RFC 9112 §7.1.
    ChunkSize, "chunk_size", 400, "A chunk size is too large or not a hexadecimal number.";
    /// RFC 9112 §7.1.1.
    ChunkExtension, "chunk_extension", 400, "A chunk extension is malformed.";
    /// The limit applies to all extensions of a body; see `Limits::chunk_extension_bytes_max`.
    ChunkExtensionTooLarge, "chunk_extension_too_large", 413, "The chunk extensions are too large.";
    /// RFC 9112 §7.1.
    ChunkEnd, "chunk_end", 400, "A chunk's data is not followed by CR LF.";
    /// RFC 9112 §7.1.2.
    TrailerTooLarge, "trailer_too_large", 431, "The trailer section is too large.";
    /// RFC 9110 §6.5.1. Fields that concern framing, routing or content format are forbidden in trailers.
    TrailerForbidden, "trailer_forbidden", 400, "The trailer section contains a field that is not allowed there.";
    /// RFC 9112 §4.
    StatusLine, "status_line", 502, "The status line is malformed.";
}

#[cfg(test)]
mod tests {
    use super::Refusal;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_statuses_are_errors() {
        let names: HashSet<_> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
        assert_eq!(names.len(), Refusal::ALL.len());
        for refusal in Refusal::ALL {
            assert!((400..600).contains(&refusal.status()), "{refusal:?}");
            assert!(refusal.text().ends_with('.'), "{refusal:?}");
        }
    }
}
