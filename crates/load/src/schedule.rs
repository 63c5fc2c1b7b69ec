//! One thread's share of a plan at work: what to begin, when, and on which connection.
//!
//! The driver asks [`Schedule::next`] for a [`Move`] and tells what happened by [`Schedule::handle_answered`],
//! [`Schedule::handle_failed`] and [`Schedule::handle_closed`]. A *slot* is a place for one connection, 0 up to the share's
//! connections; it holds one visit at most. An arrival that finds every slot taken waits and keeps its intended time, so
//! what a stalled server should have answered meanwhile is measured (no coordinated omission). Waiting arrivals take no
//! memory: they are generated again when their turn comes.
//!
//! Asking for the next move and telling events allocate nothing.

use crate::plan::{Plan, PlanError, Share};

/// A burst to begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Where: a place for one connection, from 0.
    pub slot: u32,
    /// Whether the connection must be made first. Never true when the slot has an open connection that may be used.
    pub connect: bool,
    /// Requests to send without waiting for answers, at least 1.
    pub burst: u32,
    /// Whether the connection is to be closed after this burst: the last request says so.
    pub closes: bool,
    /// When the schedule wanted it, in nanoseconds of the driver's clock.
    pub intended_ns: u64,
    /// Number of the visit over all threads, from 0; chooses the request of a replay.
    pub visit: u64,
    /// Number of the first request of the burst over all threads: distinct for each request of the run. Chooses URLs.
    pub request: u64,
    /// Which burst of its visit this is, from 0.
    pub call: u32,
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Begin a burst, then ask again.
    Begin(Begin),
    /// Ask again at this time, or after any event.
    WaitUntil(u64),
    /// Ask again after any event.
    Idle,
    /// Nothing more is begun, ever; what is under way may still be awaited.
    Done,
}

/// What a schedule counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Visits begun after measuring began.
    pub visits: u64,
    /// Visits among them that did all their bursts.
    pub visits_completed: u64,
    /// Bursts begun after measuring began.
    pub bursts: u64,
    /// Arrivals that waited longer than the backlog or the drain time allowed and were never begun.
    pub dropped: u64,
    /// Arrivals that found no free connection and waited.
    pub waited: u64,
    /// Most arrivals that waited at once.
    pub backlog_peak: u64,
    /// Most slots that held a visit at once.
    pub slots_peak: u32,
    /// Whether the server was given up because nothing ever answered.
    pub gave_up: bool,
}

/// A share while it is being used up.
#[derive(Clone, Debug)]
pub struct Schedule {
    tally: Tally,
}

impl Schedule {
    /// Starts a share at `start_ns`. All threads of all agents are given the same `start_ns` (of their own clocks).
    pub fn begin(plan: &Plan, share: Share, start_ns: u64) -> Result<Self, PlanError> {
        plan.check()?;
        let _ = (share, start_ns);
        Ok(Self { tally: Tally::default() })
    }

    /// What to do at `now_ns`.
    pub fn next(&mut self, now_ns: u64) -> Move {
        let _ = now_ns;
        Move::Done
    }

    /// Every answer of the slot's burst has come. `is_open` says whether the connection can be used again. Returns what
    /// this slot does at once, if anything: the quick path of a closed loop. After `None` ask [`Schedule::next`].
    pub fn handle_answered(&mut self, slot: u32, now_ns: u64, is_open: bool) -> Option<Begin> {
        let _ = (slot, now_ns, is_open);
        None
    }

    /// The slot's burst failed, and its connection is gone; `connected` says whether there had been one. The visit is
    /// over. Ask [`Schedule::next`] afterwards.
    pub fn handle_failed(&mut self, slot: u32, now_ns: u64, connected: bool) {
        let _ = (slot, now_ns, connected);
    }

    /// The server closed the connection of a slot between bursts. The visit, if any, goes on with a new connection.
    pub fn handle_closed(&mut self, slot: u32) {
        let _ = slot;
    }

    /// The connection of a slot stands. Only for retries: it ends their growing pauses.
    pub fn handle_connected(&mut self, slot: u32) {
        let _ = slot;
    }

    /// The warm-up is over: time and counts of the plan's stop begin at `from_ns`. All threads are given the same.
    pub fn begin_measuring(&mut self, from_ns: u64) {
        let _ = from_ns;
    }

    /// From when measured, if that is known already.
    pub fn measured_from_ns(&self) -> Option<u64> {
        None
    }

    /// Ends the run early: nothing is begun any more, and arrivals that wait are not counted as dropped.
    pub fn stop(&mut self) {}

    /// Arrivals that wait for a free slot now.
    pub fn backlog(&self) -> u64 {
        0
    }

    /// Whether the slot holds an open connection without a visit, which may be closed when the run is over.
    pub fn is_done(&self) -> bool {
        true
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }
}
