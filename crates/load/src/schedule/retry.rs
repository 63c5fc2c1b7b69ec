//! Connection retries of a closed loop.

/// First pause after a failed connection attempt, in nanoseconds. A guess: long enough to avoid a busy loop on a dead
/// server, short enough to detect a restarted server promptly. The pause doubles up to [`RETRY_PAUSE_NS_MAX`].
pub const RETRY_PAUSE_NS_MIN: u64 = 10_000_000;

/// Maximum pause between connection attempts, in nanoseconds.
pub const RETRY_PAUSE_NS_MAX: u64 = 1_000_000_000;

/// The decision after a failed connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Retry after a pause.
    After {
        /// Length of the pause, in nanoseconds.
        pause_ns: u64,
    },
    /// Never retry: no connection of this share has ever succeeded, or none has for longer than the timeout.
    GiveUp,
}

/// The state of connection attempts over all slots of a share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    timeout_ns: u64,
    has_connected: bool,
    /// Time at which the current series of failures started, in nanoseconds on the driver's clock.
    failing_since_ns: Option<u64>,
}

impl Retries {
    pub(super) const fn new(timeout_ns: u64) -> Self {
        Self { timeout_ns, has_connected: false, failing_since_ns: None }
    }

    pub(super) fn handle_connected(&mut self) {
        self.has_connected = true;
        self.failing_since_ns = None;
    }

    /// Decides what to do after `failures_in_a_row` (from 1) failed attempts of one slot. A run by count ends early if
    /// connecting fails for too long. A run by time lasts its full time, and reconnects to a server that comes back.
    pub(super) fn decide(&mut self, now_ns: u64, failures_in_a_row: u32, is_counted: bool) -> Retry {
        let failing_since_ns = *self.failing_since_ns.get_or_insert(now_ns);
        let give_up_ns = failing_since_ns.saturating_add(self.timeout_ns);
        if !self.has_connected || (is_counted && now_ns >= give_up_ns) {
            return Retry::GiveUp;
        }
        let doublings = failures_in_a_row.saturating_sub(1).min(16);
        let mut pause_ns = (RETRY_PAUSE_NS_MIN << doublings).min(RETRY_PAUSE_NS_MAX);
        if is_counted {
            pause_ns = pause_ns.min(give_up_ns - now_ns);
        }
        Retry::After { pause_ns }
    }
}
