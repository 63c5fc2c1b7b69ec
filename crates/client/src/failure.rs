//! Reasons that a request has no complete response.

use crate::StreamVersion;
use flatout_http::http2::frame::ErrorCode;
use flatout_http::http3;
use flatout_http::refusal::Refusal;
use flatout_net::http2::StreamError;
use flatout_net::tls::ClientTlsFailure;
use quinn_proto::ConnectionError;
use rustix::io::Errno;

/// The reason a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// A system call failed: creating a socket, connecting, sending or receiving.
    System(Errno),
    /// The connection or the complete response took longer than the timeout.
    TimedOut,
    /// The connection closed before the response head was complete.
    ClosedEarly,
    /// The connection closed before the end of the body.
    ShortBody,
    /// The response violates HTTP.
    Malformed(Refusal),
    /// The server sent more bytes than its response declared, although no other request was in progress.
    Surplus,
    /// The body is complete, but does not have the expected length.
    WrongLength,
    /// The body has the expected length, but not the expected digest.
    WrongDigest,
    /// The TLS handshake or session failed.
    Tls(ClientTlsFailure),
    /// The server does not support HTTP/2.
    NoHttp2,
    /// The server does not support HTTP/3.
    NoHttp3,
    /// The server did not process the request, according to its GOAWAY (RFC 9113 §6.8, RFC 9114 §5.2).
    Unprocessed(StreamVersion),
    /// HTTP/2: the server refused or reset the stream, with this error code (RFC 9113 §7).
    StreamReset(u32),
    /// HTTP/2: the server closed the connection, or one side violated the protocol, with this error code (RFC 9113
    /// §7).
    Http2(u32),
    /// HTTP/3: the server refused or reset the stream, or its response violates a rule (RFC 9114 §8.1).
    Http3Reset(http3::error::ErrorCode),
    /// HTTP/3: the server closed the connection (RFC 9114 §8.1).
    Http3(http3::error::ErrorCode),
    /// HTTP/3: the server violated a rule for the connection.
    Http3Violation(http3::error::ConnectionError),
    /// The QUIC connection could not be established, or was lost.
    Quic(QuicFailure),
    /// The run was aborted before the response was complete.
    Abandoned,
}

flatout_reason::reasons! {
    /// The reason a QUIC connection could not be established, or was lost.
    pub enum QuicFailure { name, text, }
    Silent,    "quic-silent",    "no packet arrived from the server: it may not speak HTTP/3, or UDP may be blocked";
    Version,   "quic-version",   "the server supports no QUIC version that this client supports";
    Refused,   "quic-refused",   "the server refused the connection";
    Idle,      "quic-idle",      "the server sent nothing for the duration of the idle timeout";
    Reset,     "quic-reset",     "the server does not know the connection (stateless reset)";
    Transport, "quic-transport", "one side violated QUIC, or had an internal error";
}

/// Shortest time after which a close of a used connection counts as the end of an idle one, in nanoseconds. Idle timeouts
/// of servers are longer. A server that fails under load also closes connections, but these were in use just before.
pub(super) const IDLE_NS_MIN: u64 = 100_000_000;

/// The code with which a server refuses a stream (RFC 9113 §7).
const REFUSED_STREAM: u32 = ErrorCode::RefusedStream.number();

/// Lowest of QUIC's error codes for TLS alerts (RFC 9001 §4.8).
const CRYPTO_ERROR: u64 = 0x100;

/// Numbers of TLS alerts (RFC 8446 §6).
const BAD_CERTIFICATE: u64 = 42;
const CERTIFICATE_EXPIRED: u64 = 45;
const CERTIFICATE_UNKNOWN: u64 = 46;
const UNKNOWN_CA: u64 = 48;
const DECRYPT_ERROR: u64 = 51;
const NO_APPLICATION_PROTOCOL: u64 = 120;

/// The code with which a server refuses a connection (RFC 9000 §20.1).
const CONNECTION_REFUSED: u64 = 2;

impl RequestFailure {
    /// Returns whether the server states that it did not process the request, so that the request can be sent again
    /// (RFC 9113 §8.7, RFC 9114 §4.1.1).
    pub(super) const fn is_unprocessed(self) -> bool {
        matches!(
            self,
            Self::Unprocessed(_)
                | Self::StreamReset(REFUSED_STREAM)
                | Self::Http3Reset(http3::error::ErrorCode::RequestRejected)
        )
    }

    /// Returns whether the server closed the connection. If it did so before any byte of a response, on a connection
    /// that had been idle for [`IDLE_NS_MIN`], it may have closed it as idle before the request arrived.
    pub(super) const fn is_close(self) -> bool {
        matches!(
            self,
            Self::ClosedEarly
                | Self::System(Errno::CONNRESET | Errno::PIPE)
                | Self::Http3(http3::error::ErrorCode::NoError)
        )
    }

    /// Returns the failure for the reason a QUIC connection ended.
    pub(super) fn of_quic(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::VersionMismatch => Self::Quic(QuicFailure::Version),
            ConnectionError::TransportError(error) => of_local_code(error.code.into(), &error.reason),
            ConnectionError::ConnectionClosed(close) => of_peer_code(close.error_code.into()),
            ConnectionError::ApplicationClosed(close) => {
                Self::Http3(http3::error::ErrorCode::from_number(close.error_code.into_inner()))
            }
            ConnectionError::Reset => Self::Quic(QuicFailure::Reset),
            ConnectionError::TimedOut => Self::Quic(QuicFailure::Idle),
            ConnectionError::LocallyClosed => Self::ClosedEarly,
            ConnectionError::CidsExhausted => Self::Quic(QuicFailure::Transport),
        }
    }
}

/// Returns the failure for an error code that the client has detected.
fn of_local_code(code: u64, reason: &str) -> RequestFailure {
    match code.checked_sub(CRYPTO_ERROR) {
        Some(CERTIFICATE_EXPIRED) => RequestFailure::Tls(ClientTlsFailure::Expired),
        // rustls uses the same alert for a wrong name and for a damaged certificate.
        Some(BAD_CERTIFICATE) if reason.contains("name") => RequestFailure::Tls(ClientTlsFailure::Name),
        // For an authority with the same name but another key, the signature does not verify.
        Some(BAD_CERTIFICATE | CERTIFICATE_UNKNOWN | UNKNOWN_CA | DECRYPT_ERROR) => {
            RequestFailure::Tls(ClientTlsFailure::Untrusted)
        }
        Some(NO_APPLICATION_PROTOCOL) => RequestFailure::NoHttp3,
        Some(0..=0xff) => RequestFailure::Tls(ClientTlsFailure::Handshake),
        _ => RequestFailure::Quic(QuicFailure::Transport),
    }
}

/// Returns the failure for an error code that the server sent.
fn of_peer_code(code: u64) -> RequestFailure {
    match code.checked_sub(CRYPTO_ERROR) {
        Some(NO_APPLICATION_PROTOCOL) => RequestFailure::NoHttp3,
        Some(0..=0xff) => RequestFailure::Tls(ClientTlsFailure::Handshake),
        _ if code == CONNECTION_REFUSED => RequestFailure::Quic(QuicFailure::Refused),
        _ => RequestFailure::Quic(QuicFailure::Transport),
    }
}

impl From<Errno> for RequestFailure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<std::io::Error> for RequestFailure {
    fn from(error: std::io::Error) -> Self {
        // Registering a socket with the runtime fails with an errno. So does a socket that TLS uses.
        match Errno::from_io_error(&error) {
            Some(errno) => Self::System(errno),
            None => ClientTlsFailure::of(&error).map_or(Self::System(Errno::IO), Self::Tls),
        }
    }
}

impl From<Refusal> for RequestFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Malformed(refusal)
    }
}

impl From<StreamError> for RequestFailure {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Refused => Self::Unprocessed(StreamVersion::Http2),
            StreamError::Reset(code) => Self::StreamReset(code.number()),
            StreamError::Connection(code) => Self::Http2(code.number()),
            StreamError::Closed => Self::ClosedEarly,
            StreamError::System(errno) => Self::System(errno),
            StreamError::Tls(failure) => Self::Tls(failure),
        }
    }
}
