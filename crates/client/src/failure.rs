//! Reasons for a request without complete response.

use flatout_http::http2::frame::ErrorCode;
use flatout_http::refusal::Refusal;
use flatout_net::http2::StreamError;
use flatout_net::tls::ClientTlsFailure;
use rustix::io::Errno;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// A system call failed: creating a socket, connecting, sending or receiving.
    System(Errno),
    /// The connection or the complete response took longer than the timeout.
    TimedOut,
    /// The connection closed before a complete response head.
    ClosedEarly,
    /// The connection closed before the end of a body of declared length.
    ShortBody,
    /// The response violates HTTP.
    Malformed(Refusal),
    /// More bytes arrived than the response declared, without a request for them.
    Surplus,
    /// The body is complete, but its length is wrong.
    WrongLength,
    /// The body has the right length, but its digest is wrong.
    WrongDigest,
    /// The TLS handshake or session failed.
    Tls(ClientTlsFailure),
    /// The server does not speak HTTP/2.
    NoHttp2,
    /// HTTP/2: the server refused or reset the stream, with this error code (RFC 9113 §7).
    StreamReset(u32),
    /// HTTP/2: the server closed the connection, or one side violated the protocol, with this error code (RFC 9113
    /// §7).
    Http2(u32),
    /// The run was aborted before the response was complete.
    Abandoned,
}

impl From<Errno> for RequestFailure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<std::io::Error> for RequestFailure {
    fn from(error: std::io::Error) -> Self {
        // Registering a socket with the runtime fails with an errno, and so does a socket below TLS.
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
            StreamError::Refused => Self::Http2(ErrorCode::NoError as u32),
            StreamError::Reset(code) => Self::StreamReset(code as u32),
            StreamError::Connection(code) => Self::Http2(code as u32),
            StreamError::Closed => Self::ClosedEarly,
            StreamError::System(errno) => Self::System(errno),
            StreamError::Tls(failure) => Self::Tls(failure),
        }
    }
}
