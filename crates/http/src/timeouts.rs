//! Timeouts of a server.

/// Timeouts of the server, in milliseconds. Each has a close reason.
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
