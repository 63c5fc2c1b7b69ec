//! When a closed loop tries again to connect.

/// First pause after a failed connect. A guess: long enough that a dead server is not a busy loop, short enough that a
/// restarted one is noticed at once. It doubles up to [`RETRY_PAUSE_NS_MAX`].
pub const RETRY_PAUSE_NS_MIN: u64 = 10_000_000;

/// Longest pause between attempts to connect.
pub const RETRY_PAUSE_NS_MAX: u64 = 1_000_000_000;

/// What a connection does after it could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Try again after a pause.
    After {
        /// Length of the pause, in nanoseconds.
        pause_ns: u64,
    },
    /// Never try again: nothing has ever answered this share, or nothing has for longer than its patience.
    GiveUp,
}

/// What is known of attempts to connect, over all slots of a share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    patience_ns: u64,
    has_connected: bool,
    /// Since when every attempt has failed.
    failing_since_ns: Option<u64>,
}

impl Retries {
    pub(super) const fn new(patience_ns: u64) -> Self {
        Self { patience_ns, has_connected: false, failing_since_ns: None }
    }

    pub(super) fn handle_connected(&mut self) {
        self.has_connected = true;
        self.failing_since_ns = None;
    }

    /// Decides after `failures_in_a_row` (1 and up) failed attempts of one slot. A run by count ends before its last
    /// request when no connection could be made for long; a run by time ends with its time, and a server that comes back
    /// meanwhile is found again.
    pub(super) fn decide(&mut self, now_ns: u64, failures_in_a_row: u32, is_counted: bool) -> Retry {
        let failing_since_ns = *self.failing_since_ns.get_or_insert(now_ns);
        let give_up_ns = failing_since_ns.saturating_add(self.patience_ns);
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
