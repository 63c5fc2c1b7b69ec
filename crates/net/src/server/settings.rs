//! Timeouts and limits of a server, and where each default comes from.

use flatout_http::limits::Limits;

/// How long a worker waits for what, in milliseconds. Each ends a connection with a reason of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a request to begin on an open connection. nginx waits 75 s, Apache 5 s.
    pub idle_timeout_ms: u64,
    /// For a head to be complete, from its first byte. A trickle does not extend it.
    pub head_timeout_ms: u64,
    /// For a request body to be complete, from the end of its head. A trickle does not extend it.
    pub body_timeout_ms: u64,
    /// For more of a gRPC request's content, whose client may be silent between two messages.
    pub stream_timeout_ms: u64,
    /// For the client to take at least one byte of a response.
    pub write_timeout_ms: u64,
    /// For the client to close, after a response that ended the connection before all it sent was read.
    pub linger_timeout_ms: u64,
    /// For a TLS handshake to be complete, and for the preface of HTTP/2.
    pub handshake_timeout_ms: u64,
    /// For what is under way when the server is told to stop.
    pub drain_timeout_ms: u64,
    /// For what is under way when another process has taken the listeners over: it holds nobody up, so it may be long.
    pub hand_over_timeout_ms: u64,
}

impl Timeouts {
    /// What `flatout serve` uses.
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

    /// How often the deadlines are looked through: an eighth of the shortest, from 5 ms to half a second.
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

/// All that a worker's behaviour depends on, beside its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bounds on what a client may send.
    pub limits: Limits,
    /// Bounds on how long it may take.
    pub timeouts: Timeouts,
    /// Connections a worker has open before idle ones must leave for new ones. What the kernel allows beyond it is for
    /// files: a connection that is accepted should find a descriptor for what it asks for.
    pub connections_max: usize,
    /// Connections accepted before those that are open have their turn; at least 1.
    pub accept_batch: usize,
    /// Whether each accepted connection is told to acknowledge at once (TCP_QUICKACK). It costs a system call.
    pub quickack: bool,
    /// Whether files that are not in memory go out by sendfile; if not they are read and sent, so copied twice. Over TLS and
    /// HTTP/2 they are read in any case.
    pub sendfile: bool,
}

/// Connections accepted before those that are open have their turn. Enough for a crowd that comes at once, few enough
/// that nobody notices; not measured.
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
