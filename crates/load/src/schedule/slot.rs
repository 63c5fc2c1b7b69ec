//! A slot for one connection, and its visit.

use crate::random::Random;

/// Activity of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// No visit.
    Nothing,
    /// A visit with a burst in progress.
    Burst,
    /// A visit in think time, or a closed loop's slot between two visits: a timer is set.
    Thought,
    /// Abandoned by a closed loop.
    Retired,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSlot {
    pub(super) holding: Holding,
    /// True if it has a reusable connection.
    pub(super) is_open: bool,
    /// Client of its connection, within this share of a replay.
    pub(super) client: Option<u32>,
    /// Number of the visit.
    pub(super) visit: u64,
    /// Bursts of the visit begun so far.
    pub(super) call: u32,
    /// Bursts of the visit still to begin.
    pub(super) calls_left: u32,
    /// True if the visit is measured: it was scheduled after measuring began.
    pub(super) is_measured: bool,
    /// The visit's random stream.
    pub(super) random: Random,
    /// Failed attempts to connect since the last connection.
    pub(super) connect_failures: u32,
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
        }
    }
}
