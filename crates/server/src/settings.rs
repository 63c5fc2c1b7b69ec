//! Timeouts and limits of a server, and the sources of the defaults.

use flatout_http::limits::Limits;
use flatout_http::timeouts::Timeouts;
use flatout_os::socket::BACKLOG;

/// All settings of a worker, besides its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bounds of requests.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Open connections per worker above which idle ones must close for new ones. The remaining descriptors are for
    /// files: an accepted connection should find one for its response.
    pub connections_max: usize,
    /// Connections that the kernel queues for each listener until they are accepted. While they come faster than the
    /// worker can serve them, the queue is shorter.
    pub backlog: u32,
    /// Connections accepted before open ones have their turn; at least 1.
    pub accept_batch: usize,
    /// True if TCP_QUICKACK is set on each accepted connection. It costs a system call.
    pub quickack: bool,
    /// True if uncached files are sent by sendfile; otherwise they are read and sent, so copied twice. Over TLS and
    /// HTTP/2 they are always read.
    pub sendfile: bool,
}

/// Connections accepted before open ones have their turn. Enough for a burst of connections, few enough not to cause
/// delays; not measured.
pub const ACCEPT_BATCH: usize = 64;

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::DEFAULT,
            timeouts: Timeouts::DEFAULT,
            connections_max: usize::MAX,
            backlog: BACKLOG as u32,
            accept_batch: ACCEPT_BATCH,
            quickack: false,
            sendfile: true,
        }
    }
}
