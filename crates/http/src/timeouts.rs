//! Timeouts of an HTTP server.

/// Declares [`Timeouts`] and the list of its settings. `$dollar` stands for a dollar sign.
macro_rules! timeouts {
    ($dollar:tt settings { $($(#[$doc:meta])* $field:ident: $default_ms:literal, $name:literal;)* }
     fixed { $($(#[$fixed_doc:meta])* $fixed:ident: $fixed_ms:literal;)* }) => {
        /// Timeouts of the server, in milliseconds. For each timeout there is a reason to close the connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Timeouts {
            $($(#[$doc])* pub $field: u64,)*
            $($(#[$fixed_doc])* pub $fixed: u64,)*
        }

        impl Timeouts {
            /// The default timeouts of `flatout serve`.
            pub const DEFAULT: Self = Self { $($field: $default_ms,)* $($fixed: $fixed_ms,)* };

            /// Returns the interval between scans of the deadlines: an eighth of the shortest timeout, from 5 to 500
            /// ms.
            pub fn sweep_interval_ms(&self) -> u64 {
                let shortest = [$(self.$field,)* $(self.$fixed,)*].into_iter().min().unwrap_or(0);
                (shortest / 8).clamp(5, 500)
            }
        }

        /// Returns a slice with `$row(name, field)` for each timeout that a configuration may set.
        #[macro_export]
        macro_rules! timeout_settings {
            ($dollar row:path) => {
                &[$($dollar row($name, |timeouts| &mut timeouts.$field)),*]
            };
        }
    };
}

timeouts! {
    $
    settings {
        /// Maximum wait for the start of a request on an open connection. nginx waits 75 s, Apache 5 s.
        idle_timeout_ms: 60_000, "idle";
        /// Maximum time for a complete head, from its first byte. A client that trickles bytes does not extend it.
        head_timeout_ms: 10_000, "head";
        /// Maximum wait for at least one more byte of a request body, or for as many as the minimum rate demands.
        body_timeout_ms: 30_000, "body";
        /// Maximum wait for more content of a gRPC request, whose client may be silent between two messages.
        stream_timeout_ms: 3_600_000, "stream";
        /// Maximum wait for the client to accept at least one more byte of a response.
        write_timeout_ms: 30_000, "write";
        /// Maximum time for a complete TLS handshake, and for the client preface of HTTP/2.
        handshake_timeout_ms: 10_000, "handshake";
        /// Maximum time for exchanges in progress when the server is stopping.
        drain_timeout_ms: 10_000, "drain";
    }
    fixed {
        /// Maximum wait for the client to close after a last response that was sent before the request ended.
        linger_timeout_ms: 2_000;
        /// Maximum time for exchanges in progress after another process has taken over the listeners. Nothing else
        /// waits for them, so this may be long.
        hand_over_timeout_ms: 600_000;
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
