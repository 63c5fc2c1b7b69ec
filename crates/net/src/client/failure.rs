//! How a request can end without a whole answer.

use super::tls::TlsFailure;
use flatout_http::refusal::Refusal;
use rustix::io::Errno;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The system refused: to make a socket, to connect, to send or to receive.
    System(Errno),
    /// No connection, or no whole answer, within the timeout.
    TimedOut,
    /// The connection ended before a whole response head.
    ClosedEarly,
    /// The connection ended before the end of a body whose length was declared.
    ShortBody,
    /// What arrived breaks a rule of HTTP.
    Malformed(Refusal),
    /// More bytes arrived than the response declared, and nothing had been asked for them.
    Surplus,
    /// The body is whole and of another length than it should have.
    WrongLength,
    /// The body is whole, of the right length, and holds other bytes than it should.
    WrongDigest,
    /// There is no TLS session.
    Tls(TlsFailure),
    /// The server does not speak HTTP/2.
    NoHttp2,
    /// HTTP/2: the server refused or reset the stream, with this error code (RFC 9113 §7).
    StreamReset(u32),
    /// HTTP/2: the server ended the connection, or one side broke a rule, with this error code (RFC 9113 §7).
    Http2(u32),
    /// The run was given up while the answer was under way.
    Abandoned,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        // The runtime's registration of a socket fails with an errno, and so does a socket below TLS.
        match Errno::from_io_error(&error) {
            Some(errno) => Self::System(errno),
            None => TlsFailure::of(&error).map_or(Self::System(Errno::IO), Self::Tls),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Malformed(refusal)
    }
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Self {
        let code = error.reason().map(u32::from);
        if error.is_reset() {
            return Self::StreamReset(code.unwrap_or_default());
        }
        if let Some(code) = code {
            return Self::Http2(code);
        }
        error.into_io().map_or(Self::ClosedEarly, |error| match error.kind() {
            // A connection that ends without a word between frames, or within one.
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::BrokenPipe
                if Errno::from_io_error(&error).is_none() =>
            {
                Self::ClosedEarly
            }
            _ => Self::from(error),
        })
    }
}
