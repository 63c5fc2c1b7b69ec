//! Timeouts and limits of a server, and the reasons for their defaults.

use flatout_http::limits::Limits;
use flatout_http::timeouts::Timeouts;
use flatout_os::socket::BACKLOG;

flatout_reason::defaults! {
    /// All settings of a worker, in addition to its handler.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Settings {
        /// Limits on requests.
        pub limits: Limits = Limits::DEFAULT,
        /// Timeouts.
        pub timeouts: Timeouts = Timeouts::DEFAULT,
        /// Number of open connections per worker at which idle connections must close in favour of new ones. The
        /// remaining file descriptors are for files, so that an accepted connection can open a file for its response.
        pub connections_max: usize = usize::MAX,
        /// Maximum number of connections that the kernel queues for each listener until they are accepted. While more
        /// clients connect than the worker can serve, the queue is shorter.
        pub backlog: u32 = BACKLOG as u32,
        /// Maximum number of connections accepted before open connections have their turn; at least 1.
        pub accept_batch: usize = ACCEPT_BATCH,
        /// True if TCP_QUICKACK is set on each accepted connection, which costs a system call.
        pub quickack: bool = false,
        /// True if uncached files are sent by sendfile; otherwise they are read and sent, which copies them twice. Over
        /// TLS, HTTP/2 and HTTP/3 they are always read.
        pub sendfile: bool = true,
    }
}

/// Default number of connections accepted before open connections have their turn. An estimate: enough for a burst of
/// connections, and few enough not to cause delays.
pub const ACCEPT_BATCH: usize = 64;

/// Maximum total growth of the receive windows of all clients of one worker, over HTTP/2 and HTTP/3, in bytes. Enough
/// for a few large uploads over long distances.
pub const RECEIVE_WINDOW_BYTES_MAX: u64 = 64 << 20;

/// Maximum total of additional room for the responses of all clients of one worker, in the kernel or in QUIC, in bytes.
pub const SEND_BUFFER_BYTES_MAX: u64 = 128 << 20;
