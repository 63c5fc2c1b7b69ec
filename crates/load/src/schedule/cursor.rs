//! Arrivals of one share in an open loop. Every arrival of the plan is generated, and every n-th belongs to this share.
//! In a replay, the arrivals of every n-th session belong to this share.

use crate::plan::arrivals::Times;
use crate::plan::{ReplayLine, Share};

/// An arrival of this share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Number of the arrival among all arrivals of the plan.
    pub(super) number: u64,
    /// Intended start, in nanoseconds on the driver's clock.
    pub(super) intended_ns: u64,
    /// The line of a replay, if any.
    pub(super) line: Option<ReplayLine>,
}

/// Peekable arrivals of a share. A clone continues from the same position, so waiting arrivals can be counted without
/// storing them.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// Arrival times from the start, for looking back.
    fresh: Times,
    times: Times,
    start_ns: u64,
    index: u64,
    shares: u64,
    /// The next arrival; `None` at the end.
    peeked: Option<Arrival>,
    /// Number of arrivals taken.
    taken: u64,
}

impl Cursor {
    pub(super) fn new(fresh: Times, share: Share, start_ns: u64) -> Self {
        let mut times = fresh.clone();
        let (index, shares) = (u64::from(share.index), u64::from(share.shares.max(1)));
        if times.line().is_none() {
            times.leave_out(index);
        }
        let mut cursor = Self { fresh, times, start_ns, index, shares, peeked: None, taken: 0 };
        cursor.look();
        cursor
    }

    fn look(&mut self) {
        self.peeked = loop {
            let (number, line) = (self.times.index(), self.times.line());
            let Some(time_ns) = self.times.next() else { break None };
            match line {
                // All connections of a client belong to one thread.
                Some(line) if u64::from(line.session) % self.shares != self.index => continue,
                Some(_) => {}
                None => self.times.leave_out(self.shares - 1),
            }
            break Some(Arrival { number, intended_ns: self.start_ns.saturating_add(time_ns), line });
        };
    }

    pub(super) fn peek(&self) -> Option<Arrival> {
        self.peeked
    }

    /// Returns the number of the plan's first arrival, of any share, at `from_ns` or later. Iterates from the start, so
    /// that every share finds the same arrival.
    pub(super) fn first_from(&self, from_ns: u64) -> u64 {
        let before = |time_ns: &u64| self.start_ns.saturating_add(*time_ns) < from_ns;
        self.fresh.clone().take_while(before).count() as u64
    }

    /// Returns the number of arrivals taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn take(&mut self) -> Option<Arrival> {
        let arrival = self.peeked?;
        self.taken += 1;
        self.look();
        Some(arrival)
    }
}
