//! A place for one connection, and the visit that holds it.

use crate::plan::random::Random;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// No visit.
    Nothing,
    /// A visit whose burst is under way.
    Burst,
    /// A visit that thinks, or a closed loop's slot between two visits: a timer stands for it.
    Thought,
    /// Nothing, ever again: a closed loop gave it up.
    Retired,
}

/// One slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) holding: Holding,
    /// Whether it has a connection that can be used.
    pub(super) is_open: bool,
    /// Whose connection it is, among this share's clients of a replay.
    pub(super) client: Option<u32>,
    /// Number of the visit.
    pub(super) visit: u64,
    /// Bursts of the visit begun so far.
    pub(super) call: u32,
    /// Bursts of the visit still to begin.
    pub(super) calls_left: u32,
    /// Whether the visit counts: it was intended after measuring began.
    pub(super) is_measured: bool,
    /// The visit's own stream of random numbers.
    pub(super) random: Random,
    /// Failed attempts to connect since the last connection.
    pub(super) connect_failures: u32,
}

impl Slot {
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
