//! Timeouts and limits of a server, and the sources of the defaults.

use flatout_http::limits::Limits;

/// Timeouts of a worker, in milliseconds. Each has a close reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the start of a request on an open connection. nginx waits 75 s, Apache 5 s.
    pub idle_timeout_ms: u64,
    /// For a complete head since its first byte. A trickle does not extend it.
    pub head_timeout_ms: u64,
    /// For a complete request body since the end of its head. A trickle does not extend it.
    pub body_timeout_ms: u64,
    /// For more of a gRPC request's content, whose client may be silent between two messages.
    pub stream_timeout_ms: u64,
    /// For the client to take at least one byte of a response.
    pub write_timeout_ms: u64,
    /// For the client to close, after a last response that preceded the end of its request.
    pub linger_timeout_ms: u64,
    /// For a complete TLS handshake, and for the preface of HTTP/2.
    pub handshake_timeout_ms: u64,
    /// For exchanges in progress when the server is stopping.
    pub drain_timeout_ms: u64,
    /// For exchanges in progress after another process has taken over the listeners. It delays nothing else, so it
    /// may be long.
    pub hand_over_timeout_ms: u64,
}

impl Timeouts {
    /// The defaults of `flatout serve`.
    pub const DEFAULT: Self = Self {
        idle_timeout_ms: 60_000,
        head_timeout_ms: 10_000,
        body_timeout_ms: 30_000,
        stream_timeout_ms: 3_600_000,
        write_timeout_ms: 30_000,
        linger_timeout_ms: 2_000,
        handshake_timeout_ms: 10_000,
        drain_timeout_ms: 10_000,
        hand_over_timeout_ms: 600_000,
    };

    /// Interval between scans of the deadlines: an eighth of the shortest timeout, from 5 ms to half a second.
    pub fn sweep_interval_ms(&self) -> u64 {
        let shortest = self
            .idle_timeout_ms
            .min(self.head_timeout_ms)
            .min(self.body_timeout_ms)
            .min(self.stream_timeout_ms)
            .min(self.write_timeout_ms)
            .min(self.linger_timeout_ms)
            .min(self.handshake_timeout_ms)
            .min(self.drain_timeout_ms);
        (shortest / 8).clamp(5, 500)
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

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
            accept_batch: ACCEPT_BATCH,
            quickack: false,
            sendfile: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timeouts;

    #[test]
    fn the_sweep_follows_the_shortest_timeout() {
        assert_eq!(Timeouts::DEFAULT.sweep_interval_ms(), 250);
        assert_eq!(Timeouts { head_timeout_ms: 100, ..Timeouts::DEFAULT }.sweep_interval_ms(), 12);
        assert_eq!(Timeouts { idle_timeout_ms: 1, ..Timeouts::DEFAULT }.sweep_interval_ms(), 5);
    }
}
