//! A slot for one connection and the visit that uses it.

use crate::random::Random;

/// The activity of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// The slot holds no visit.
    Nothing,
    /// A visit has a burst in progress.
    Burst,
    /// A timer is set: a visit is in think time, or a slot of a closed loop is between two visits.
    Thought,
    /// The slot is not used again: a closed loop has given it up, or the server permits no stream for it.
    Retired,
}

/// One slot of a share.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSlot {
    pub(super) holding: Holding,
    /// True if the slot has a reusable connection.
    pub(super) is_open: bool,
    /// Client of the slot's connection, numbered within this share of a replay.
    pub(super) client: Option<u32>,
    /// Number of the visit.
    pub(super) visit: u64,
    /// Number of bursts of the visit started so far.
    pub(super) call: u32,
    /// Number of bursts of the visit still to be started.
    pub(super) calls_left: u32,
    /// True if the visit is measured: it was scheduled after measuring began.
    pub(super) is_measured: bool,
    /// The visit's random stream.
    pub(super) random: Random,
    /// Number of failed attempts to connect since the last success.
    pub(super) connect_failures: u32,
    /// Intended start of the last burst, in nanoseconds on the driver's clock.
    pub(super) intended_ns: u64,
}

impl ConnectionSlot {
    pub(super) const fn new() -> Self {
        Self {
            holding: Holding::Nothing,
            is_open: false,
            client: None,
            visit: 0,
            call: 0,
            calls_left: 0,
            is_measured: false,
            random: Random::new(0),
            connect_failures: 0,
            intended_ns: 0,
        }
    }
}
