//! One share's arrivals of an open loop: every arrival of the plan is generated, and every n-th is this share's; in a
//! replay, those of every n-th session.

use crate::plan::arrivals::Times;
use crate::plan::{Line, Share};

/// An arrival of this share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Its number among all arrivals of the plan.
    pub(super) number: u64,
    /// When it is wanted, in nanoseconds of the driver's clock.
    pub(super) intended_ns: u64,
    /// The line of a replay.
    pub(super) line: Option<Line>,
}

/// Arrivals of a share, of which the next one can be looked at. A clone goes on from where the original stood, which is
/// how waiting arrivals are counted without being kept.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// From the start, for looking back.
    fresh: Times,
    times: Times,
    start_ns: u64,
    index: u64,
    shares: u64,
    /// The next arrival, and none when there is none any more.
    peeked: Option<Arrival>,
    /// How many arrivals of this share were taken.
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
                // A client's connections are one thread's.
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

    /// Number of the first arrival of the plan, of whichever share, that is wanted at `from_ns` or later. Goes through all
    /// arrivals from the start, so that every share finds the same.
    pub(super) fn first_from(&self, from_ns: u64) -> u64 {
        let before = |time_ns: &u64| self.start_ns.saturating_add(*time_ns) < from_ns;
        self.fresh.clone().take_while(before).count() as u64
    }

    /// How many arrivals of this share were taken.
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
