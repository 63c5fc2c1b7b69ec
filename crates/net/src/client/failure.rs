//! How a request can end without a whole answer.

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
        // Only the runtime's registration of a socket fails this way, and always with an errno.
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Malformed(refusal)
    }
}
